"""Tables of JaxMARL's scripts on our worlds, and of our IPPO beside JaxMARL's.

    diamond train spread-gpu --agents 4 --method ippo --ippo.cut-after 25 --ippo.envs 128 --ippo.steps 128 \
        --ippo.batch 4096 --ippo.epochs 4 --ippo.learning-rate 2.5e-4 --ippo.gamma 0.99 --ippo.gae-lambda 0.95 \
        --ippo.entropy-coefficient 0.01 --ippo.precision float32 --total-steps 10000000 --seeds 0:3 \
        --ippo.no-normalise-values --out RUNS/equal

and once more without the last setting into RUNS/normalised;

    python experiments/jaxmarl_results.py RUNS

puts the R of those runs' training episodes into results/, every tenth update, as JaxMARL's rows have it.
`python experiments/tables.py` makes the tables.
"""

import argparse
from pathlib import Path
from statistics import mean

import result_rows

AGENTS = 4
EVERY = 10
OURS = {
    "equal": result_rows.RESULTS / "jaxmarl_ippo_ours.csv",
    "normalised": result_rows.RESULTS / "jaxmarl_ippo_ours_normalised.csv",
}
SPEED = result_rows.RESULTS / "jaxmarl_speed.csv"
SIDE_BY_SIDE = {
    "JaxMARL's IPPO": result_rows.RESULTS / "jaxmarl_ippo_spread.csv",
    "JaxMARL's IPPO, rewards × 0.1": result_rows.RESULTS / "jaxmarl_ippo_spread_scaled.csv",
    "our IPPO": OURS["equal"],
    "our IPPO, values normalised": OURS["normalised"],
}
R = {"R": ("R", 1)}
SCRIPTS = (
    ("ippo_ff_mpe.py", "Simple Spread", "jaxmarl_ippo_spread.csv", R | {"entropy": ("entropy", 2)}),
    ("the same", "rewards × 0.1", "jaxmarl_ippo_spread_scaled.csv", R | {"entropy": ("entropy", 2)}),
    ("qmix_rnn.py", "Simple Spread", "jaxmarl_qmix_spread.csv", {"R": ("R, greedy", 1)}),
    (
        "ippo_rnn_smax.py",
        "2s3z",
        "jaxmarl_ippo_smaclite.csv",
        {"return": ("return", 2), "win_rate": ("win rate", 2)},
    ),
    (
        "qmix_rnn.py",
        "2s3z",
        "jaxmarl_qmix_smaclite.csv",
        {"return": ("return, greedy", 2), "test_battle_won": ("win rate, greedy", 2)},
    ),
)
"""Each script, its world, its rows, and what of them is told with how many decimals."""
LINES = 8
"""About so many of a table, however many rows there are."""


def gather(runs: Path) -> None:
    for name, file in OURS.items():
        rows = []
        for folder in sorted((runs / name).glob("seed_*")):
            for row in result_rows.read(folder / "metrics.csv"):
                if int(row["update"]) % EVERY == 0:
                    r = f"{float(row['return']) / AGENTS:.6g}"
                    seed = folder.name.removeprefix("seed_")
                    rows.append({"seed": seed, "update": row["update"], "env_steps": row["step"], "R": r})
        rows.sort(key=lambda row: (int(row["update"]), int(row["seed"])))
        result_rows.write(file, ("seed", "update", "env_steps", "R"), rows)


def by_steps(file: Path, score: str = "R") -> dict[int, list[float]]:
    """The score of every seed, after so many steps; only where all seeds have one."""
    rows = result_rows.read(file)
    seeds = {row["seed"] for row in rows}
    steps = dict.fromkeys(int(row["env_steps"]) for row in rows)
    found = {at: [float(row[score]) for row in rows if int(row["env_steps"]) == at] for at in steps}
    return {at: scores for at, scores in found.items() if len(scores) == len(seeds)}


def told(scores: list[float]) -> str:
    return f"{mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"


def side_by_side() -> str:
    """Where all have a row; of those some, with the first and the last."""
    each = {name: by_steps(file) for name, file in SIDE_BY_SIDE.items()}
    shared = sorted(set.intersection(*(set(scores) for scores in each.values())))
    apart = max(1, len(shared) // LINES)
    chosen = sorted({*shared[::apart], *shared[-1:]})
    lines = ["| steps of teams | " + " | ".join(each) + " |", "| --- |" + " --- |" * len(each)]
    lines += [f"| {at:,} | " + " | ".join(told(scores[at]) for scores in each.values()) + " |" for at in chosen]
    return "\n".join(lines)


def speeds() -> str:
    rows = result_rows.read(SPEED)
    lines = ["| game | this project | JaxMARL |", "| --- | --- | --- |"]
    for game in dict.fromkeys(row["game"] for row in rows):
        of = {row["of"]: int(row["env_steps_per_processor_second"]) for row in rows if row["game"] == game}
        lines.append(f"| {game} | {of['this project']:,} | {of['JaxMARL']:,} |")
    return "\n".join(lines)


def scripts() -> str:
    """The first row and the last of each, the mean over seeds."""
    lines = ["| script | world | seeds | steps of teams | what | first row | last row |", "| --- |" + " --- |" * 6]
    for script, world, file, what in SCRIPTS:
        for score, (told_as, decimals) in what.items():
            scores = by_steps(result_rows.RESULTS / file, score)
            first, last = min(scores), max(scores)
            ends = " | ".join(f"{mean(scores[at]):.{decimals}f} after {at:,}" for at in (first, last))
            lines.append(f"| {script} | {world} | {len(scores[last])} | {last:,} | {told_as} | {ends} |")
    return "\n".join(lines)


TABLES = {"jaxmarl-scripts": scripts, "jaxmarl-ippo": side_by_side, "jaxmarl-speed": speeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path)
    gather(parser.parse_args().runs)


if __name__ == "__main__":
    main()
