"""How tables and figures call, colour and explain each kind of mask. A kind that is not here goes by its own name."""

from typing import NamedTuple


class Naming(NamedTuple):
    """One kind of mask, for readers."""

    label: str
    colour: str
    """Of Okabe and Ito's palette, which colour-blind readers can tell apart."""
    caption: str
    """What can be read off a picture of its attention weights."""
    hides_in: tuple[int, ...] = ()
    """Blocks, counted from 0, in which lower-ranked peers have no weight at all."""
    hears_ranks: bool = True
    """Whether ranks change anything, so that a picture should show them."""


EVERYBODY = "Each row of a block sums to one."
HATCHED = "hatched columns are peers hidden by rank."

KINDS: dict[str, Naming] = {
    "rank": Naming(
        "rank mask",
        "#0072b2",
        f"Each row of a block sums to one over the agents its viewer can see; {HATCHED}",
        hides_in=(0, 1),
    ),
    "none": Naming("no mask", "#7a7a7a", EVERYBODY, hears_ranks=False),
    "dropout": Naming(
        "dropout",
        "#e69f00",
        "Weights are dropped at random and the others scaled up, so a row sums to one only on average.",
        hears_ranks=False,
    ),
    "signed": Naming(
        "signed bias",
        "#009e73",
        f"{EVERYBODY} A learned bias tells higher-ranked peers from lower ones; nobody is hidden.",
    ),
    "floor": Naming(
        "learned floor",
        "#cc79a7",
        f"{EVERYBODY} Lower-ranked peers are damped by a learned amount; nobody is hidden.",
    ),
    "first": Naming(
        "first block only",
        "#56b4e9",
        f"Peers are hidden in block 1 only, and there {HATCHED}",
        hides_in=(0,),
    ),
    "split": Naming(
        "half the heads",
        "#d55e00",
        f"{EVERYBODY} Weights are means over heads, of which half see everybody.",
    ),
}


def naming(mask: str) -> Naming:
    """By its name in `MaskKind`.

    >>> naming("rank").label
    'rank mask'
    >>> naming("something new").label
    'something new'
    """
    return KINDS.get(mask, Naming(mask, "#000000", EVERYBODY))


def policy_name(mask: str, dropout: str = "") -> str:
    """What a line of a table or of a figure is called; `dropout` is on or off in play.

    >>> policy_name("dropout", "off")
    'dropout, off in play'
    """
    return f"{naming(mask).label}, {dropout} in play" if mask == "dropout" and dropout else naming(mask).label


def place_of(mask: str) -> tuple[int, str]:
    """For sorting: the paper's policy first, then its ablations, then others; unknown kinds last."""
    return (list(KINDS).index(mask) if mask in KINDS else len(KINDS), mask)
