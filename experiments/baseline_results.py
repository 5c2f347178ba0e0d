"""The tables of docs/baselines.md: XOR beside the paper's Table 1, what a decision takes, and how methods were tuned.

    python experiments/baseline_results.py

measures decisions anew and writes results/decisions.csv; run it on an otherwise idle machine.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

import result_rows
import xor_results
from result_rows import described

from diamond_attention.bench.decisions import DECISIONS, TEAM_SIZES, decisions_on_this_core
from diamond_attention.evaluation.statistics import score_interval, seed_interval
from diamond_attention.policies.diamond_settings import MASKS
from diamond_attention.reports.paper import PAPER_XOR, TRAINED_AND_PLAYED
from diamond_attention.reports.tables import markdown_table
from diamond_attention.reproduce.entries import ENTRIES, XOR_COMMITMENTS
from diamond_attention.reproduce.plan import training
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.settings import described_as
from diamond_attention.worlds.spread import Spread

CROSS_CHECK = result_rows.RESULTS / "mappo_cross_check.csv"
TIMED = result_rows.RESULTS / "decisions.csv"
MILLISECONDS = ("median_milliseconds", "percentile_95_milliseconds", "median_cpu_milliseconds")
DECISION_COLUMNS = ("group", "agents", "tasks", *MILLISECONDS, "decisions", "jax", "commit", "cores", "load")
TUNING = result_rows.RESULTS / "baseline_tuning.csv"
OURS = ("rank", "none", "dropout")
"""Masks of our own lines."""
PLAYS = ("greedy", "sampled")


# --- XOR ------------------------------------------------------------------------------------------


def xor() -> str:
    """The paper's Table 1: a line for each method, greedy and sampled success, and in brackets what the paper has."""
    rates: dict[tuple, list[float]] = defaultdict(list)
    lines: dict[tuple[str, str, str], None] = {}
    for row in xor_results.rows():
        preset, mask = result_rows.preset_of(row), row["mask"]
        if mask in MASKS and mask not in OURS:
            continue
        if mask == "dropout" and row["dropout"] == "on":
            continue
        trained, played = _size(row["trained_on"]), (int(row["players"]), int(row["actions"]))
        if (trained, played) in TRAINED_AND_PLAYED:
            rates[mask, preset, trained, played, row["play"]].append(float(row["success"]))
            lines[mask, preset, row["preset"]] = None
    table = []
    for mask, preset, _ in sorted(lines, key=lambda line: (described(line[0]).place, line[1])):
        cells = [_xor_cell(rates, mask, preset, *sizes) for sizes in TRAINED_AND_PLAYED]
        seeds = {len(found) for key, found in rates.items() if key[:2] == (mask, preset)}
        count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)}–{max(seeds)}"
        policy = described(mask)
        milliseconds = times_of(f"{preset.split()[0]}_{mask}_3x3").get(3, "")
        table.append([policy.in_play("off"), preset, policy.robot_needs, milliseconds, count, *cells])
    headings = [_sizes_as_text(*sizes) for sizes in TRAINED_AND_PLAYED]
    return markdown_table(["policy", "preset", "a robot needs", "3×3, ms", "seeds", *headings], table)


def _xor_cell(rates: Mapping[tuple, list[float]], mask: str, preset: str, trained: tuple, played: tuple) -> str:
    found = [rates.get((mask, preset, trained, played, play)) for play in PLAYS]
    ours = [f"{seed_interval(each).mean:.2f}" if each else "–" for each in found]
    paper = [PAPER_XOR.get((mask, trained, played, play)) for play in PLAYS]
    return " / ".join(ours) + (" ({:.2f} / {:.2f})".format(*paper) if None not in paper else "")


def _sizes_as_text(trained: tuple[int, int], played: tuple[int, int]) -> str:
    text = ["{}×{}".format(*size) for size in (trained, played)]
    return text[0] if trained == played else " → ".join(text)


def _size(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text.count("x") == 1 else ()


# --- Decisions ------------------------------------------------------------------------------------


def timed_groups() -> dict[str, Sequence[int]]:
    """The lines of the tables, by their group, and for how many agents a decision of theirs is timed."""
    in_xor = [each.group.name for each in ENTRIES["table1"].wanted if each.group.name.endswith("3x3")]
    groups: dict[str, Sequence[int]] = dict.fromkeys([*in_xor, XOR_COMMITMENTS.name], (3,))
    groups |= {each.group.name: () for each in ENTRIES["table2"].wanted}
    return groups | {each.group.name: TEAM_SIZES for each in ENTRIES["spread"].wanted}


def measure() -> None:
    """Greedy decisions of every group's own network in its own world, fresh weights; one core.

    Rows that are there are kept.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX sizes its thread pool
    environment, rows = describe_environment(), result_rows.read(TIMED)
    about = {"decisions": DECISIONS, "jax": environment["versions"]["jax"], "commit": environment["commit"]}
    about["cores"] = os.cpu_count()
    wanted = {each.group.name: each.group for entry in ENTRIES.values() for each in entry.wanted}
    known: dict[tuple, list[dict]] = {}
    for name, sizes in timed_groups().items():
        settings = training(wanted[name], "full")[1]
        # Groups that differ in nothing but how they learn are timed once.
        network = (type(settings.world), settings.sizes, settings.policy, settings.method.name, sizes)
        there = [row for row in rows if row["group"] == name]
        if network not in known and there:
            known[network] = there
        elif network not in known:
            conditions = {**about, "load": round(os.getloadavg()[0], 1)}
            timed = decisions_on_this_core(settings, sizes)
            known[network] = [
                {**each, **conditions, **{one: f"{each[one]:.4f}" for one in MILLISECONDS}} for each in timed
            ]
        rows = [row for row in rows if row["group"] != name] + [{**each, "group": name} for each in known[network]]
        result_rows.write(TIMED, DECISION_COLUMNS, rows)
        print(name, *(row["median_cpu_milliseconds"] for row in known[network]), flush=True)


def times_of(group: str) -> dict[int, str]:
    """Median milliseconds of the processor for a group's decision, by the number of agents."""
    rows = [row for row in result_rows.read(TIMED) if row["group"] == group]
    return {int(row["agents"]): f"{float(row['median_cpu_milliseconds']):.2f}" for row in rows}


def decisions() -> str:
    """A line for each policy: its time on Simple Spread by team size, in XOR and on 2s3z, with each one's network."""
    names = [each.group.name.removeprefix("spread_") for each in ENTRIES["spread"].wanted]
    names = [name for name in names if not name.startswith("spread-paper")] + ["commitments"]
    wanted = {each.group.name: each.group for entry in ENTRIES.values() for each in entry.wanted}
    table: dict[tuple[str, ...], None] = {}
    for name in names:
        in_xor = XOR_COMMITMENTS.name if name == "commitments" else f"xor_{name}_3x3"
        policy = described_as(training(wanted.get(f"spread_{name}") or wanted[in_xor], "full")[1])
        label = f"Diamond Attention, {policy.label}" if policy.key in MASKS else policy.label
        spread, xor, battle = (times_of(group) for group in (f"spread_{name}", in_xor, f"smaclite_{name}"))
        cells = (*(spread.get(size, "") for size in TEAM_SIZES), xor.get(3, ""), *(list(battle.values()) or [""]))
        table[label, policy.robot_needs, *cells] = None
    heads = [*(f"{size} agents, ms" for size in TEAM_SIZES), "XOR 3×3, ms", "2s3z, ms"]
    return markdown_table(["policy", "a robot needs", *heads], [list(row) for row in table])


# --- Tuning ---------------------------------------------------------------------------------------


def tuning() -> str:
    """The three best settings of each method, and how many were tried."""
    found: dict[str, list[tuple[float, list[str]]]] = defaultdict(list)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in result_rows.read(TUNING):
        if row["place"] == "N=3":
            groups[row["method"], row["settings"]].append(row["score"])
    for (method, settings), scores in groups.items():
        mean = sum(map(float, scores)) / len(scores) if all(scores) else float("-inf")
        cells = [f"{mean:.0f}" if all(scores) else "not finished", " ".join(f"{float(s):.0f}" for s in scores if s)]
        found[method].append((mean, [settings, *cells]))
    table = [
        [*([described(method, Spread()).label, str(len(found[method]))] if i == 0 else ["", ""]), *cells]
        for method in sorted(found, key=result_rows.place_of)
        for i, (_, cells) in enumerate(sorted(found[method], key=lambda each: -each[0])[:3])
    ]
    return markdown_table(["method", "tried", "the three best settings", "R at N=3", "by seed"], table)


# --- Another implementation -----------------------------------------------------------------------


def cross_check() -> str:
    """MAPPO by BenchMARL and by us: mean over seeds, Student's interval, and every seed."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in result_rows.read(CROSS_CHECK):
        scores[row["implementation"]].append(float(row["R"]))
    table = []
    for name, each in scores.items():
        interval = score_interval(each)
        by_seed = " ".join(f"{r:.0f}" for r in each)
        table.append([name, f"{interval.mean:.0f} [{interval.low:.0f}, {interval.high:.0f}]", by_seed])
    return markdown_table(["MAPPO of", "R at N=4", "by seed"], table)


# --- Tables that `diamond reproduce` made ---------------------------------------------------------


def reproduced(entry: str, number: int) -> result_rows.Table:
    """The table of that number on a page that `diamond reproduce` wrote, which results/ has a copy of."""

    def table() -> str:
        parts = (result_rows.RESULTS / f"{entry}.md").read_text().split("\n\n")
        return [part.strip() for part in parts if part.startswith("| ")][number]

    return table


def with_times(made: result_rows.Table, heading: str) -> result_rows.Table:
    """The same table with the milliseconds of each line's group beside what a robot needs."""

    def table() -> str:
        headings, _, *lines = [line.strip("|").split("|") for line in made().split("\n")]
        rows = [[cell.strip() for cell in line] for line in (headings, *lines)]
        group, needs = rows[0].index("group"), rows[0].index("a robot needs")
        for number, row in enumerate(rows):
            milliseconds = next(iter(times_of(row[group]).values()), "")
            row.insert(needs + 1, milliseconds if number else heading)
        return markdown_table(rows[0], rows[1:])

    return table


REPRODUCED = ("spread", "food", "table2")

TABLES: dict[str, result_rows.Table] = {
    **{f"reproduced-{entry}": reproduced(entry, 0) for entry in REPRODUCED},
    **{f"reproduced-{entry}-cost": reproduced(entry, 1) for entry in REPRODUCED},
    **{f"faults-{world}": reproduced("faults", number) for number, world in enumerate(("xor", "dispatch", "spread"))},
    "reproduced-spread": with_times(reproduced("spread", 0), "4 agents, ms"),
    "reproduced-table2": with_times(reproduced("table2", 0), "ms"),
    "reproduced-dispatch": reproduced("dispatch", 0),
    "baselines-cross-check": cross_check,
    "baselines-xor": xor,
    "baselines-decisions": decisions,
    "baselines-tuning": tuning,
}

if __name__ == "__main__":
    measure()
