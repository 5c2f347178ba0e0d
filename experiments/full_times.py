"""How long full trainings took, from the rows in results/: writes them into diamond_attention/reproduce/times.csv.

    python experiments/full_times.py

A training counts where all of its seeds and all of its steps are there; `seconds` is training with compiling.
"""

import result_rows

from diamond_attention.reproduce.entries import ENTRIES, Group
from diamond_attention.reproduce.plan import TIMES, training

COLUMNS = ("scale", "what", "seconds", "device")


def rows() -> list[dict[str, str]]:
    groups = {each.group.name: each.group for entry in ENTRIES.values() for each in entry.wanted}
    found = {}
    for entry in ENTRIES:
        for row in result_rows.read(result_rows.RESULTS / f"{entry}.csv"):
            if row["seconds"] and is_whole(row, groups[row["group"]]):
                what = f"train {row['group']}"
                device = row["device"].removeprefix("gpu: ").replace("cpu: cpu", "CPU cores")
                found[what] = dict(zip(COLUMNS, ("full", what, row["seconds"], device), strict=True))
    return list(found.values())


def is_whole(row: dict[str, str], group: Group) -> bool:
    settings = training(group, "full")[1]
    steps = settings.total_updates * settings.method.steps_per_update
    return (int(row["seeds_trained"]), int(row["steps"])) == (group.seeds, steps)


def main() -> None:
    others = [row for row in result_rows.read(TIMES) if row["scale"] != "full"]
    result_rows.write(TIMES, COLUMNS, [*others, *rows()])


if __name__ == "__main__":
    main()
