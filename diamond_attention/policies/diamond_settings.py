"""The settings of Diamond Attention, the kinds of mask among them, and what tables and figures call each."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from diamond_attention.errors import UserError
from diamond_attention.policies.kind import Described
from diamond_attention.ranges import Between, check_ranges

MaskKind = Literal["rank", "none", "dropout", "signed", "floor", "first", "split"]
"""What ranks do to attention.

    rank      hide lower-ranked peers: the paper
    none      nothing; nobody is hidden (ablation)
    dropout   nothing; attention weights are dropped at random (ablation)

The hard mask breaks symmetry by blinding: the top-ranked agent sees nobody it could bump into. Four forms
that break it and leave every peer visible somewhere:

    signed    nobody is hidden; a learned bias favours higher-ranked peers and disfavours lower-ranked ones
    floor     lower-ranked peers are damped by a learned amount instead of hidden
    first     the hard mask in the first block; the second sees everybody
    split     the hard mask in half of the channels; the other half sees everybody
"""


ThirdBlock = Literal["choice", "paper"]


@dataclass(frozen=True)
class DiamondSettings:
    """Diamond Attention: agents that attend to each other and to the tasks, under a mask made from ranks."""

    kind: Literal["diamond"] = "diamond"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(2, 4096)] = 64
    """Features of every token. More: more capacity; time grows with its square."""
    mask: MaskKind = "rank"
    """What ranks do to attention: rank hides lower-ranked peers (the paper), none and dropout are the ablations;
    signed, floor, first and split break symmetry without blinding anybody (see policies/diamond_settings.py)."""
    third_block: ThirdBlock = "choice"
    """The last block of a continuous policy. choice, which is ours, weighs the tasks against each other; paper is
    Eq. 4 over the viewer alone, where every task has weight one."""
    dropout_rate: Annotated[float, Between(0, 0.999)] = 0.5
    """Share of attention weights that mask=dropout hides; the paper does not state it, a half is torch's default."""
    dropout_at_execution: bool = True
    """Whether mask=dropout also hides while a trained policy is evaluated. SB3, and so the paper, says no."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")
        if self.mask not in get_args(MaskKind):
            raise UserError(f"policy.mask is {self.mask!r}; it must be one of {', '.join(get_args(MaskKind))}.")
        if self.third_block not in get_args(ThirdBlock):
            raise UserError(
                f"policy.third_block is {self.third_block!r}; it must be one of {', '.join(get_args(ThirdBlock))}."
            )
        if self.mask == "split" and self.width % 2:
            raise UserError(f"policy.width is {self.width}; policy.mask split needs an even one.")
        if self.mask == "dropout" and self.dropout_rate == 0:
            raise UserError(
                "policy.mask is dropout and policy.dropout_rate is 0, which hides nothing; "
                "raise the rate or use policy.mask none."
            )


def in_play(settings: DiamondSettings, dropout: bool | None) -> DiamondSettings:
    """Without dropout its ablation is, weight for weight, the policy without a mask."""
    if settings.mask != "dropout":
        if dropout is not None:
            raise UserError(f"--dropout was given, but policy.mask is {settings.mask}, which has none; leave it out.")
        return settings
    on = settings.dropout_at_execution if dropout is None else dropout
    return settings if on else dataclasses.replace(settings, mask="none")


EVERYBODY = "Each row of a block sums to one."
HATCHED = "hatched columns are peers hidden by rank."

MASKS: dict[str, Described] = {
    mask.key: mask._replace(place=place)
    for place, mask in enumerate(
        (
            Described(
                "rank",
                "rank mask",
                "#0072b2",
                f"Each row of a block sums to one over the agents its viewer can see; {HATCHED}",
                "An agent sees only itself and those ranked above it.",
                hides_in=(0, 1),
                hears_ranks=True,
            ),
            Described("none", "no mask", "#7a7a7a", EVERYBODY),
            Described(
                "dropout",
                "dropout",
                "#e69f00",
                "Weights are dropped at random and the others scaled up, so a row sums to one only on average.",
            ),
            Described(
                "signed",
                "signed bias",
                "#009e73",
                EVERYBODY,
                "Nobody is hidden: a learned bias tells higher-ranked peers from lower ones.",
                hears_ranks=True,
            ),
            Described(
                "floor",
                "learned floor",
                "#cc79a7",
                EVERYBODY,
                "Nobody is hidden: lower-ranked peers are damped by a learned amount.",
                damps="damped by a learned amount",
                hears_ranks=True,
            ),
            Described(
                "first",
                "first block only",
                "#56b4e9",
                f"Each row of a block sums to one over the agents its viewer can see; {HATCHED}",
                "In block 1 an agent sees only itself and those ranked above it, in block 2 everybody.",
                hides_in=(0,),
                hears_ranks=True,
            ),
            Described(
                "split",
                "half the heads",
                "#d55e00",
                f"{EVERYBODY} Weights are means over heads.",
                "Half of the heads see only the viewer and those ranked above it, the others everybody.",
                damps="seen by half of the heads only",
                hears_ranks=True,
            ),
        )
    )
}


def describe(settings: DiamondSettings) -> Described:
    return MASKS[settings.mask]
