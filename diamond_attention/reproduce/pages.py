"""What an entry becomes: a page of Markdown, LaTeX, CSV and JSON, and its figure."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from diamond_attention.broadcast import faults_in_order
from diamond_attention.errors import UserError
from diamond_attention.jobs.contract import Words
from diamond_attention.reports.anchors import ORACLES, anchors
from diamond_attention.reports.depots import draw_depots
from diamond_attention.reports.faults import draw_faults
from diamond_attention.reports.paper import SAYS_HOW_IT_PLAYED
from diamond_attention.reports.scores import draw_heatmap, draw_team_sizes
from diamond_attention.reports.tables import (
    Line,
    as_csv,
    explanations,
    markdown_table,
    policy_and_method,
    table_lines,
    value_of,
)
from diamond_attention.reproduce.asked import keep_asked
from diamond_attention.reproduce.entries import Entry, Figure, Group, Wanted
from diamond_attention.reproduce.make import gather, missing_seeds
from diamond_attention.reproduce.packed import ENDING, MOST_BYTES, pack, unpack
from diamond_attention.reproduce.plan import SHORTENED, Scale, at_scale, plan
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.files import make_folders, read_file, write_file
from diamond_attention.runs.folder import Run
from diamond_attention.worlds.registry import WORLDS

LARGEST_BENCH = 1 << 24

Lines = Sequence[tuple[Wanted, Line]]
"""What was played, each line with what wanted it."""


@dataclass(frozen=True)
class Table:
    """Words in rows, and the sentences above them."""

    above: Sequence[str]
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False
    """Whether the report shows it only to who asks."""


def write_entry(name: str, entry: Entry, wanted: Sequence[Wanted], roots: Sequence[Path], scale: Scale) -> Path:
    """NAME.md, .tex, .csv, .json, a figure and the packed runs, in the first of the folders."""
    with TemporaryDirectory() as folder:
        own = Path(folder)
        # Groups are played for other entries too: all that they have is packed, and this one's alone is shown.
        pack({each.group.name: gather(each.group, roots, scale) for each in wanted}, own / (name + ENDING))
        unpack(own / (name + ENDING), own)
        plays: dict[Group, tuple[Words, ...]] = defaultdict(tuple)
        for each in wanted:
            plays[each.group] += each.plays
        for group, asked in plays.items():
            keep_asked(gather(group, [own], scale), asked)
        return write_pages(name, entry, wanted, own, roots[0], scale)


def write_pages(name: str, entry: Entry, wanted: Sequence[Wanted], own: Path, to: Path, scale: Scale) -> Path:
    """Of the entry's own runs, which lie unpacked beside their packed file in `own`."""
    found = {each.group.name: gather(each.group, [own], scale) for each in wanted}
    runs = [run for each in found.values() for run in each]
    lines = [
        (each, line)
        for each in wanted
        if any(run.episodes.exists() for run in found[each.group.name])
        for line in table_lines(found[each.group.name])
    ]
    if wanted and not lines:
        raise UserError(f"no run of {name} has been played yet; run the command without --redraw.")
    make_folders(to)
    benches = [Path(step.words[-1]) for step in plan(entry, (), scale, (), to) if step.alone]
    tables = [*(tables_of(entry, lines) if lines else []), *(speed(file) for file in benches if file.exists())]
    pictures = figures_of(name, entry, runs, to)
    if lines:
        tables.append(how_played([each for each in wanted if found[each.group.name]], scale))
    about = preface(entry, wanted, scale, found, lines)
    if lines:
        packed = f"settings, versions, flags and every episode of each are in `{name}{ENDING}`"
        about.append(f"Every training seed has its rows in `{name}.csv`; {packed}.")
    made = {"title": entry.title, "about": about, "tables": [vars(table) for table in tables], "pictures": pictures}
    texts = {"md": as_markdown(entry.title, about, tables, pictures), "json": json.dumps(made, indent=1) + "\n"}
    if lines:
        texts |= {
            "tex": as_latex(entry.title, about, tables),
            "csv": as_csv([({"group": each.group.name}, line) for each, line in lines]),
        }
        write_file(to / (name + ENDING), read_file(own / (name + ENDING), MOST_BYTES))
    for ending, text in texts.items():
        write_file(to / f"{name}.{ending}", text.encode())
    return to / f"{name}.md"


def preface(
    entry: Entry, wanted: Sequence[Wanted], scale: Scale, found: Mapping[str, Sequence[Run]], lines: Lines
) -> list[str]:
    """What a reader must know of a table before believing it."""
    about = [f"**Not comparable**: {SHORTENED[scale]}."] if scale != "full" else []
    if scale == "full":
        lacking = {each.group.name: list(missing_seeds(each.group, found[each.group.name])) for each in wanted}
        some = [f"{group} {','.join(map(str, seeds))}" for group, seeds in lacking.items() if seeds and found[group]]
        if some:
            about.append(f"Training seeds that are missing: {'; '.join(some)}.")
    failed = {
        group: [str(run.seed) for run in runs if run.failure is not None] for group, runs in found.items() if runs
    }
    if any(failed.values()):
        some = [f"{group} {','.join(seeds)}" for group, seeds in failed.items() if seeds]
        about.append(f"Training seeds that failed: {'; '.join(some)}.")
    there = {each.group.name for each, _ in lines} | {group for group, seeds in failed.items() if seeds}
    left_out = [each.group.name for each in entry.wanted if each.group.name not in there]
    if left_out:
        about.append(f"Not made: {', '.join(left_out)}.")
    now = describe_environment()
    about.append(f"Command: `{' '.join(map(str, now['command']))}`")
    for what in ("commit", "device"):
        values = sorted({getattr(line, what) for _, line in lines} or {str(now[what])})
        about.append(f"{what.capitalize()}: {', '.join(values)}")
    trained = [run.environment for runs in found.values() for run in runs] or [now]
    versions: dict[str, set[str]] = defaultdict(set)
    for environment in trained:
        for package, version in environment.get("versions", {}).items():
            versions[package].add(str(version))
    flags = sorted({environment["xla_flags"] for environment in trained if environment.get("xla_flags")})
    if flags:
        about.append(f"XLA_FLAGS of some or all: `{'`, `'.join(flags)}`")
    about.append("Versions: " + ", ".join(f"{name} {' and '.join(sorted(all_))}" for name, all_ in versions.items()))
    return about


# --- Tables ---------------------------------------------------------------------------------------


def tables_of(entry: Entry, lines: Lines) -> list[Table]:
    """What the entry shows of each world, and what it cost."""
    worlds = dict.fromkeys(line.world for _, line in lines) if entry.table else ()
    lines_of = {world: [each for each in lines if each[1].world == world] for world in worlds}
    shown = [by_fault(own) if entry.table == "by fault" else scores(entry, own) for own in lines_of.values()]
    return [*shown, cost(lines)]


def scores(entry: Entry, lines: Lines) -> Table:
    """A line for each setting, a column for each size or map: greedy / sampled where both were played."""
    sizes: dict[str, tuple[int, int]] = {}
    cells: dict[tuple[str, str, str], dict[tuple[str, str], Line]] = defaultdict(dict)
    printed: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for wanted, line in sorted(lines, key=lambda each: each[1].played_on):
        pair = entry.table == "trained and played" and line.trained_on != line.played_at
        column = f"{line.trained_on} → {line.played_at}" if pair else line.played_at
        sizes[column] = line.played_on
        policy = policy_and_method(line)
        cells[policy, wanted.line, line.robot_needs][column, line.play] = line
        if line.paper is not None:
            play = line.play if line.world in SAYS_HOW_IT_PLAYED else "one number"
            printed[line.label][column][play] = f"{line.paper:.2f}"
    order = {each.line: place for place, each in enumerate(entry.wanted)}
    rows = []
    for key in sorted(cells, key=lambda key: order[key[1]]):
        seeds = {f"{len(line.per_seed)}/{line.seeds_trained}" for line in cells[key].values()}
        values = [_both({play: value_of(line) for (at, play), line in cells[key].items() if at == c}) for c in sizes]
        rows.append([*key, " ".join(sorted(seeds)), *values])
    rows += [
        [f"{label}, the paper's", "", "", "", *(_both(at[column]) for column in sizes)]
        for label, at in printed.items()
    ]
    some = [line for _, line in lines]
    for oracle, label in ORACLES.items():
        known = anchors(WORLDS[some[0].world](), oracle)
        if any(size in known for size in sizes.values()):
            means = [f"{known[size].mean:.0f}" if size in known else "" for size in sizes.values()]
            rows.append([label, "", "", "", *means])
    above = [explanations(some)[0], "Greedy play; where both are given, greedy / sampled."]
    if printed and some[0].world not in SAYS_HOW_IT_PLAYED:
        above.append("The paper has one number, and does not say how it played.")
    if any(line.paper is not None and line.policy != line.label for line in some):
        above.append("The paper has one line for dropout, and does not say whether it was on in play.")
    return Table(above, ["policy", "group", "a robot needs", "seeds", *sizes], rows)


def by_fault(lines: Lines) -> Table:
    """A line for each fault of the broadcast, a column for each group: greedy / sampled where both were played."""
    columns: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for wanted, line in lines:
        columns[wanted.group.name, line.played_at][line.broadcast][line.play] = value_of(line)
    faults = sorted({fault for values in columns.values() for fault in values}, key=faults_in_order)
    rows = [[fault or "perfect", *(_both(values[fault]) for values in columns.values())] for fault in faults]
    headings = ["broadcast", *(f"{group} at {at}" for group, at in columns)]
    return Table([explanations([line for _, line in lines])[0], "Greedy play."], headings, rows)


def _both(by_play: Mapping[str, str]) -> str:
    return " / ".join(by_play[play] for play in ("greedy", "sampled", "one number") if play in by_play)


def cost(lines: Lines) -> Table:
    """What each policy was trained on, for how long, how large it is, and what a robot needs to play it."""
    rows: dict[tuple[str, ...], None] = {}
    for wanted, line in lines:
        seconds = "" if line.seconds is None else f"{line.seconds:,.0f}"
        numbers = (f"{line.steps:,}", seconds, str(line.seeds_trained), line.device, f"{line.parameters:,}")
        rows[wanted.group.name, *numbers, line.robot_needs, " ".join(wanted.group.train)] = None
    training = ["env-steps of a seed", "seconds, all seeds", "seeds", "device"]
    heads = ["group", *training, "parameters", "a robot needs", "diamond train"]
    above = "What it cost: seconds of training with compiling; parameters of the policy that plays."
    return Table([above], heads, [list(row) for row in rows], folded=True)


def how_played(wanted: Sequence[Wanted], scale: Scale) -> Table:
    """What `diamond evaluate` was told of each group."""
    groups: dict[str, dict[str, None]] = defaultdict(dict)
    for each in wanted:
        for play in each.plays:
            groups[" ".join(at_scale(without_fault(play), scale))][each.group.name] = None
    above = ["How it was played: what `diamond evaluate GROUP` was told."]
    if any(without_fault(play) != play for each in wanted for play in each.plays):
        above.append("With nothing wrong, and once with the fault of every line above: `--broadcast.NAME VALUE`.")
    rows = [[play, ", ".join(names)] for play, names in groups.items()]
    return Table(above, ["diamond evaluate", "groups"], rows, folded=True)


def without_fault(play: Words) -> Words:
    """The words that say nothing of the broadcast."""
    faults = {place for place, word in enumerate(play) if word.startswith("--broadcast.")}
    return tuple(word for place, word in enumerate(play) if not faults & {place, place - 1})


def speed(file: Path) -> Table:
    """What `diamond bench` measured."""
    found = json.loads(read_file(file, LARGEST_BENCH))
    rows = []
    for row in found.get("simulation", ()):
        where = ", ".join(str(row[name]) for name in ("map",) if name in row)
        beside = f"VMAS, same run: {row['vmas_steps_per_second']:,.0f}" if row.get("times_vmas") else ""
        rows.append([f"simulation {where}".strip(), f"{row['envs']:,}", f"{row['steps_per_second']:,.0f}", beside])
    for row in (*found.get("training", ()), *found.get("results", ())):
        solved = row.get("slowest_seconds_to_solve")
        beside = f"solved after {solved:.1f} s, slowest seed" if solved is not None else ""
        rows.append(["training", f"{row['seeds']} seed(s)", f"{row['steps_per_second']:,.0f}", beside])
    for row in found.get("decisions", ()):
        rows.append(["a decision", f"{row['agents']} agents", "", f"{row['median_milliseconds']:.2f} ms, one core"])
    above = [f"{found['preset']}, {found['environment']['device']}"]
    return Table(above, ["what", "at once", "env-steps/s", "beside it"], rows)


# --- Figures --------------------------------------------------------------------------------------


DRAWN: dict[Figure, Callable[[Sequence[Run], Path], Path | None]] = {
    "team_size": draw_team_sizes,
    "heatmap": draw_heatmap,
    "faults": draw_faults,
    "depots": draw_depots,
}


def figures_of(name: str, entry: Entry, runs: Sequence[Run], to: Path) -> list[str]:
    """Pictures of the entry, drawn now or by its commands; names below the folder."""
    if entry.figure is not None:
        draw = DRAWN[entry.figure]
        return [f"{name}.png"] if draw(runs, to / f"{name}.png") else []
    folders = [to / command[-1] for command in entry.commands]
    found = [picture for folder in folders if folder.is_dir() for picture in sorted(folder.glob("*.png"))]
    return [str(picture.relative_to(to)) for picture in found]


# --- As text --------------------------------------------------------------------------------------


def as_markdown(title: str, about: Sequence[str], tables: Sequence[Table], pictures: Sequence[str]) -> str:
    parts = [f"# {title}", "\n".join(f"- {each}" for each in about)]
    for table in tables:
        parts += [*table.above, markdown_table(table.headings, table.rows)]
    return "\n\n".join([*parts, *(f"![{title}]({picture})" for picture in pictures)]) + "\n"


def as_latex(title: str, about: Sequence[str], tables: Sequence[Table]) -> str:
    """A tabular each; what a reader must know stands above as comments."""
    text = [f"% {each}" for each in (title, *about)]
    for table in tables:
        body = [" & ".join(map(escaped, row)) + r" \\" for row in (table.headings, *table.rows)]
        text += [f"% {each}" for each in table.above]
        text += [rf"\begin{{tabular}}{{{'l' * len(table.headings)}}}", r"\hline", body[0], r"\hline"]
        text += [*body[1:], r"\hline", r"\end{tabular}", ""]
    return "\n".join(text)


LATEX = {"\\": r"\textbackslash{}", "×": r"$\times$", "π": r"$\pi$", "–": "--", "…": r"\ldots{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
