"""Does what a plan says, and writes what comes of it: a table as Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.reports.tables import Line, as_json, as_markdown, headings, table_lines, text_rows
from diamond_attention.reproduce.entries import Entry, Group
from diamond_attention.reproduce.plan import SHORTENED, Scale, Step, note_played, runs_in
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.files import make_folders, write_file
from diamond_attention.runs.folder import Run

Say = Callable[[str], None]


def chosen_groups(entry: Entry, only: Sequence[str]) -> list[Group]:
    """Those whose names match one of the patterns; all where there is none."""
    for pattern in only:
        if not any(fnmatch(group.name, pattern) for group in entry.groups):
            names = ", ".join(group.name for group in entry.groups[:3])
            raise UserError(f"--only is {pattern!r}, which matches no group; there are {names} …")
    return [group for group in entry.groups if not only or any(fnmatch(group.name, one) for one in only)]


def carry_out(steps: Sequence[Step], out: Path, say: Say) -> None:
    """Every command that is not done, in a process of its own: a device is given back, and a crash is one step's."""
    waiting = [step for step in steps if not step.done]
    began = time.monotonic()
    for number, step in enumerate(waiting):
        spent = time.monotonic() - began
        left = f", about {spent / number * (len(waiting) - number) / 60:.0f} min left" if number else ""
        say(f"[{number + 1} of {len(waiting)}{left}] diamond {' '.join(step.words)}")
        status = run_to_its_end([sys.executable, "-m", "diamond_attention", *step.words, "--quiet"])
        # A seed that failed, with status 1, is a result: it stands in the table as failed.
        if status not in (0, 1):
            raise UserError(
                f"`diamond {' '.join(step.words)}` ended with status {status}; what is done is kept, and the same "
                "command goes on from there."
            )
        if step.words[0] == "evaluate":
            note_played(out / step.group, step.words)


def run_to_its_end(command: Sequence[str]) -> int:
    """The status of a command. Ctrl-C reaches it too, and it is left the time to save what it has."""
    interrupted = False
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        while True:
            try:
                status = child.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return status


# --- Writing --------------------------------------------------------------------------------------


def gather(group: Group, roots: Sequence[Path], scale: Scale) -> list[Run]:
    """The runs of a group in all folders, each seed once."""
    found: dict[int, Run] = {}
    for root in roots:
        for run in runs_in(root / group.name, group, scale):
            if run.seed in found:
                raise UserError(
                    f"seed {run.seed} of {group.name} is in {found[run.seed].path.parent} and in "
                    f"{run.path.parent}; leave one of the folders out."
                )
            found[run.seed] = run
    return list(found.values())


def write_table(name: str, entry: Entry, groups: Sequence[Group], roots: Sequence[Path], scale: Scale) -> Path:
    """NAME.md, .tex, .csv and .json in the first of the folders."""
    found = {group.name: gather(group, roots, scale) for group in groups}
    runs = [run for each in found.values() for run in each]
    missing = [name for name, each in found.items() if not each]
    lines = table_lines(runs)
    about = preface(entry, scale, lines, runs, missing)
    make_folders(roots[0])
    texts = {
        "md": f"# {entry.title}\n\n" + "\n".join(f"- {each}" for each in about) + f"\n\n{as_markdown(lines)}\n",
        "tex": as_latex(lines, [entry.title, *about]),
        "csv": as_csv(lines),
        "json": json.dumps({"about": about, "lines": as_json(lines)}, indent=1) + "\n",
    }
    for ending, text in texts.items():
        write_file(roots[0] / f"{name}.{ending}", text.encode())
    return roots[0] / f"{name}.md"


def preface(
    entry: Entry, scale: Scale, lines: Sequence[Line], runs: Sequence[Run], missing: Sequence[str]
) -> list[str]:
    """What a reader must know of a table before believing it."""
    about = []
    if scale != "full":
        about.append(f"**Not comparable**: {SHORTENED[scale]}.")
    seeds = {len(line.per_seed) for line in lines}
    if min(seeds) < entry.seeds:
        fewest, most = min(seeds), max(seeds)
        number = str(most) if fewest == most else f"{fewest} to {most}"
        about.append(f"Training seeds: {number}, where a full table has {entry.seeds}.")
    failed = [f"{run.path.parent.name} seed {run.seed}" for run in runs if run.failure is not None]
    if failed:
        about.append(f"Failed: {', '.join(failed)}.")
    if missing:
        about.append(f"Missing: {', '.join(missing)}.")
    now = describe_environment()
    about.append(f"Command: `{' '.join(map(str, now['command']))}`")
    for what in ("commit", "device"):
        about.append(f"{what.capitalize()}: {', '.join(sorted({getattr(line, what) for line in lines}))}")
    versions: dict[str, Any] = now["versions"]
    about.append("Versions: " + ", ".join(f"{package} {version}" for package, version in versions.items()))
    return about


def as_latex(lines: Sequence[Line], about: Sequence[str]) -> str:
    """A tabular; what a reader must know stands above it as comments."""
    heads, rows = headings(lines), text_rows(lines)
    body = [" & ".join(map(_escaped, row)) + r" \\" for row in (heads, *rows)]
    top = [f"% {each}" for each in about]
    rules = [rf"\begin{{tabular}}{{{'l' * len(heads)}}}", r"\hline", body[0], r"\hline", *body[1:], r"\hline"]
    return "\n".join([*top, *rules, r"\end{tabular}"]) + "\n"


LATEX = {"\\": r"\textbackslash{}", "×": r"$\times$", "π": r"$\pi$", "–": "--", "…": r"\ldots{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def as_csv(lines: Sequence[Line]) -> str:
    """One row for each line and training seed."""
    rows = []
    for record in as_json(lines):
        measures, per_seed, seeds = record.pop("measures"), record.pop("per_seed"), record.pop("seeds")
        for i, seed in enumerate(seeds):
            own = {name: values["per_seed"][i] for name, values in measures.items()}
            rows.append({**record, "seed": seed, "score": per_seed[i], **own})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
