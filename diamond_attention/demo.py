"""The demo: the paper's central claim, trained, evaluated, tabulated and drawn in a few minutes."""

from dataclasses import replace
from pathlib import Path

from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.policies.diamond_settings import MaskKind
from diamond_attention.ranges import Between, check_number
from diamond_attention.reports.figures import draw_attention, draw_learning_curves
from diamond_attention.reports.tables import print_table, table_lines
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.progress import Progress
from diamond_attention.runs.seeds import MOST_SEEDS
from diamond_attention.runs.train import train

MASKS: tuple[MaskKind, ...] = ("rank", "none", "dropout")
TEAM_SIZES = ("2", "3")
EPISODES = 10_000


def demo(out: Path, seeds: int, progress: Progress) -> int:
    """Every policy at every size, with the preset `xor-demo`."""
    check_number("--seeds", seeds, Between(1, MOST_SEEDS))
    settings = PRESETS["xor-demo"][1]
    runs = []
    for size in TEAM_SIZES:
        for mask in MASKS:
            trained = train(
                replace(settings, agents=size, policy=replace(settings.policy, mask=mask)),
                range(seeds),
                out / f"n{size}_{mask}",
                preset="xor-demo",
                overwrite=True,
                progress=progress,
            )
            for run in trained:
                if run.failure is None:
                    for dropout in (True, False) if mask == "dropout" else (None,):
                        evaluate(run, episodes=EPISODES, dropout=dropout)
            runs += trained
    print_table(table_lines(runs))
    shown = next(run for run in reversed(runs) if run.failure is None and run.settings.policy.mask == "rank")
    print(f"{EPISODES:,} evaluation episodes for each seed.")
    print("What one team sees and chooses:", draw_attention(shown, out / "attention.png"))
    print("Success while training:        ", draw_learning_curves(runs, out / "learning_curves.png"))
    print("Next, after `source .venv/bin/activate`:")
    print("  diamond train xor --players 5 --seeds 0:3           the size the paper could not learn")
    print("  diamond train xor-paper --players 3 --seeds 0:3     the numbers of the paper's appendix")
    print("  diamond list                                        presets, worlds and your runs")
    return 1 if any(run.failure is not None for run in runs) else 0
