"""The shipped `smaclite` with an imperfect broadcast: win rates, since there is no robot for it to lose packets.

    python experiments/fleet_smaclite.py results/fleet_smaclite.csv

What `diamond evaluate smaclite --map 2s3z --jitter 0.5 --greedy --episodes 64 --seed S --broadcast.lost 0.5` plays,
for every fault beside none and five evaluation seeds. Rows that are there are kept, and what is missing is played.
"""

import os
import sys
import tempfile
from pathlib import Path

import result_rows

from diamond_attention.broadcast import Broadcast, faults_in_order
from diamond_attention.evaluation.conditions import variant_to_play
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.runs.folder import open_run

MAP, JITTER, EPISODES, SEEDS = "2s3z", 0.5, 64, range(5)
FAULTS = (
    Broadcast(),
    *(Broadcast(lost=lost) for lost in (0.1, 0.3, 0.5, 0.7, 0.9)),
    *(Broadcast(late=late) for late in (0.5, 1.0)),
    Broadcast(always_first=1),
)
COLUMNS = ("policy", "map", "jitter", "play", "broadcast", "seed", "episodes", "battles won", "steps")


def row_of(broadcast: Broadcast, seed: int) -> dict[str, object]:
    run = open_run("smaclite")
    world = variant_to_play(run, map=MAP, jitter=JITTER)
    rows = evaluate(run, world=world, episodes=EPISODES, play=("greedy",), broadcast=broadcast, seed=seed)
    won, steps = sum(row["battle_won"] for row in rows), sum(row["length"] for row in rows)
    cells = ("smaclite", MAP, JITTER, "greedy", str(broadcast), seed, EPISODES, won, round(steps / EPISODES, 2))
    return dict(zip(COLUMNS, cells, strict=True))


def main() -> None:
    file = Path(sys.argv[1]).absolute()
    rows: dict[tuple[str, str], dict[str, object]] = {}
    rows |= {(row["broadcast"], row["seed"]): dict(row) for row in result_rows.read(file)}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where the evaluation puts its copy of the policy and every episode
        for seed in SEEDS:
            for broadcast in FAULTS:
                if (str(broadcast), str(seed)) not in rows:
                    rows[str(broadcast), str(seed)] = row = row_of(broadcast, seed)
                    print(*row.values(), file=sys.stderr, flush=True)
                    order = sorted(rows, key=lambda key: (faults_in_order(key[0]), int(key[1])))
                    result_rows.write(file, COLUMNS, [rows[key] for key in order])
        os.chdir("/")


if __name__ == "__main__":
    main()
