"""The kinds of policy that play without JAX, by their names in a bundle; another is one file and one line here."""

from collections.abc import Callable, Mapping
from typing import Any

from diamond_attention.deploy.commitments import Commitments
from diamond_attention.deploy.diamond import Diamond
from diamond_attention.deploy.flat import FlatActor, QValues, Soft
from diamond_attention.deploy.interface import Deployed, Interface
from diamond_attention.deploy.layers import Take
from diamond_attention.deploy.mat import Mat
from diamond_attention.deploy.neighbours import Gsa, PortHamiltonian

KINDS: dict[str, Callable[[Mapping[str, Any], Interface, Take], Deployed]] = {
    "diamond": Diamond,
    "commitments": Commitments,
    "flat": FlatActor,
    "mat": Mat,
    "q-values": QValues,
    "soft": Soft,
    "gsa": Gsa,
    "ph-marl": PortHamiltonian,
}
