"""pH-MARL and its ablation GSA (Sebastian et al.): soft actor-critic whose actors play any team size."""

from collections.abc import Sequence
from dataclasses import dataclass

from diamond_attention.learning.off_policy import off_policy_method
from diamond_attention.learning.sac import SacSettings, Team, sac_rules
from diamond_attention.policies.gsa import GsaSettings
from diamond_attention.policies.kind import Described
from diamond_attention.policies.port_hamiltonian import PortHamiltonianSettings


@dataclass(frozen=True)
class PhMarlSettings(SacSettings):
    """pH-MARL: forces that keep the team a port-Hamiltonian system; it is told which landmark is whose."""

    name = "ph-marl"

    team: Team = "sum"
    """Whether the randomness that is priced is the mean of the agents' or their sum."""


@dataclass(frozen=True)
class GsaMethodSettings(PhMarlSettings):
    """GSA: pH-MARL's attention without its physics; it is told which landmark is whose."""

    name = "gsa"


def pyramid(inputs: int, agents: int) -> Sequence[int]:
    return 2 * inputs, inputs, max(inputs // agents, 1)


PH_MARL = off_policy_method(
    PhMarlSettings,
    PortHamiltonianSettings(),
    sac_rules(pyramid),
    Described("ph-marl", "pH-MARL", colour="#999933", place=26),
)
GSA = off_policy_method(
    GsaMethodSettings, GsaSettings(), sac_rules(pyramid), Described("gsa", "GSA", colour="#cc6677", place=25)
)
