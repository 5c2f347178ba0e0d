"""MASAC: soft actor-critic with a shared policy on flat observations, and central critics."""

from dataclasses import dataclass

from diamond_attention.learning.off_policy import off_policy_method
from diamond_attention.learning.sac import SacSettings, sac_rules
from diamond_attention.policies.kind import Described, needs_of_flat
from diamond_attention.policies.soft import SoftSettings

HIDDEN = (256, 256)


@dataclass(frozen=True)
class MasacSettings(SacSettings):
    """MASAC: a shared policy on flat observations, two critics that see everything; for one team size."""

    name = "masac"


MASAC = off_policy_method(
    MasacSettings,
    SoftSettings(),
    sac_rules(lambda inputs, agents: HIDDEN),
    lambda policy, world: Described(
        "masac", "MASAC", colour="#44aa99", place=24, needs=needs_of_flat(world.sees_peers)
    ),
)
