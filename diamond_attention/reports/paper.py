"""Numbers printed in the paper, to stand beside ours. Nothing is ever computed from them."""

from collections.abc import Sequence

from diamond_attention.reports.episodes import Way
from diamond_attention.worlds.contract import World
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.xor import Xor

PAPER_XOR: dict[tuple[str, tuple[int, int], tuple[int, int], str], float] = {
    # (mask, trained at (n, k), played at (n, k), play): Table 1, rows "Ours", "w/o mask" and "(dropout)"
    ("rank", (2, 2), (2, 2), "greedy"): 1.0,
    ("rank", (2, 2), (2, 2), "sampled"): 1.0,
    ("rank", (2, 3), (3, 3), "greedy"): 0.0,
    ("rank", (2, 3), (3, 3), "sampled"): 0.0,
    ("rank", (3, 3), (3, 3), "greedy"): 1.0,
    ("rank", (3, 3), (3, 3), "sampled"): 1.0,
    ("none", (2, 2), (2, 2), "greedy"): 0.0,
    ("none", (2, 2), (2, 2), "sampled"): 0.5,
    ("none", (2, 3), (3, 3), "greedy"): 0.0,
    ("none", (2, 3), (3, 3), "sampled"): 0.22,
    ("none", (3, 3), (3, 3), "greedy"): 0.0,
    ("none", (3, 3), (3, 3), "sampled"): 0.22,
    ("dropout", (2, 2), (2, 2), "greedy"): 0.0,
    ("dropout", (2, 2), (2, 2), "sampled"): 0.5,
    ("dropout", (2, 3), (3, 3), "greedy"): 0.0,
    ("dropout", (2, 3), (3, 3), "sampled"): 0.22,
    ("dropout", (3, 3), (3, 3), "greedy"): 0.0,
    ("dropout", (3, 3), (3, 3), "sampled"): 0.22,
}

AT_CHANCE = ("mappo", "qmix", "ippo", "masac", "ph-marl", "gsa")
"""Baselines for which Table 1 prints what independent sampling can reach, and nothing for greedy play."""
TRAINED_AND_PLAYED = {((2, 2), (2, 2)): 0.5, ((2, 3), (3, 3)): 0.22, ((3, 3), (3, 3)): 0.22}
for baseline in AT_CHANCE:
    PAPER_XOR |= {(baseline, *sizes, "greedy"): 0.0 for sizes in TRAINED_AND_PLAYED}
    PAPER_XOR |= {(baseline, *sizes, "sampled"): chance for sizes, chance in TRAINED_AND_PLAYED.items()}
PAPER_XOR |= {("mat", *sizes, play): 1.0 for sizes in TRAINED_AND_PLAYED for play in ("greedy", "sampled")}
PAPER_XOR |= {("mat", (2, 3), (3, 3), "greedy"): 0.0, ("mat", (2, 3), (3, 3), "sampled"): 0.44}

PAPER_SMACLITE: dict[tuple[str, str, str], float] = {
    # (mask, map trained on, map played): Table 2, columns "Ours", "w/o mask" and "(dropout)". Whether play was greedy
    # or sampled is not said.
    ("rank", "2s3z", "2s3z"): 0.832,
    ("rank", "2s3z", "3s5z"): 0.497,
    ("none", "2s3z", "2s3z"): 1.0,
    ("none", "2s3z", "3s5z"): 0.0,
    ("dropout", "2s3z", "2s3z"): 1.0,
    ("dropout", "2s3z", "3s5z"): 0.0,
    **{(baseline, "2s3z", "2s3z"): 1.0 for baseline in ("mappo", "ippo", "qmix", "mat")},
}


SAYS_HOW_IT_PLAYED = (Xor.name,)
"""Worlds whose numbers in the paper stand under greedy or sampled; elsewhere it prints one and does not say which."""


def paper_number(world: World, policy: str, trained: Sequence[tuple], way: Way) -> float | None:
    """What the paper prints for the same policy, trained and played alike; None where it prints nothing."""
    if way.broadcast:
        return None
    if isinstance(world, Smaclite):
        played = dict(way.varied)
        original_starts = float(played.get("jitter", 0)) == 0
        return PAPER_SMACLITE.get((policy, world.map, played.get("map", ""))) if original_starts else None
    if not isinstance(world, Xor) or len(trained) != 1:
        return None
    return PAPER_XOR.get((policy, (int(trained[0][0]), int(trained[0][1])), way.size, way.play))
