"""How long full trainings took, from the rows in results/: writes them into diamond_attention/reproduce/times.csv.

    python experiments/full_times.py

A training counts where all of its seeds and all of its steps are there; `seconds` is training with compiling. Where
rows do not have it, it is what `diamond bench` measured of compiling, and of as many steps as it takes.
"""

import json

import result_rows

from diamond_attention.reproduce.entries import ENTRIES, Group
from diamond_attention.reproduce.plan import TIMES, training

COLUMNS = ("scale", "what", "seconds", "device")
BENCHED = {"spread_rank": "bench_spread_gpu.json", "smaclite_rank": "bench_smaclite_gpu.json"}
"""Groups that are the preset of that bench."""


def rows() -> list[dict[str, str]]:
    groups = {each.group.name: each.group for entry in ENTRIES.values() for each in entry.wanted}
    found = {f"train {name}": benched(groups[name], file) for name, file in BENCHED.items()}
    for entry in ENTRIES:
        for row in result_rows.read(result_rows.RESULTS / f"{entry}.csv"):
            if row["seconds"] and is_whole(row, groups[row["group"]]):
                what = f"train {row['group']}"
                device = row["device"].removeprefix("gpu: ").replace("cpu: cpu", "CPU cores")
                found[what] = dict(zip(COLUMNS, ("full", what, row["seconds"], device), strict=True))
    return list(found.values())


def benched(group: Group, file: str) -> dict[str, str]:
    bench = json.loads((result_rows.RESULTS / file).read_text())
    row = max(bench["training"], key=lambda row: row["seeds"])
    steps = group.seeds * training(group, "full")[1].total_steps
    seconds = row["compile_seconds"] + steps / row["steps_per_second"]
    device = bench["environment"]["device"].removeprefix("gpu: ")
    return dict(zip(COLUMNS, ("full", f"train {group.name}", f"{seconds:.1f}", device), strict=True))


def is_whole(row: dict[str, str], group: Group) -> bool:
    settings = training(group, "full")[1]
    steps = settings.total_updates * settings.method.steps_per_update
    return (int(row["seeds_trained"]), int(row["steps"])) == (group.seeds, steps)


def main() -> None:
    others = [row for row in result_rows.read(TIMES) if row["scale"] != "full"]
    result_rows.write(TIMES, COLUMNS, [*others, *rows()])


if __name__ == "__main__":
    main()
