"""pH-MARL and its ablation GSA (Sebastian et al.): soft actor-critic whose actors play any team size."""

from collections.abc import Sequence
from dataclasses import dataclass

from diamond_attention.learning.off_policy import off_policy_method
from diamond_attention.learning.sac import SacSettings, Team, sac_rules
from diamond_attention.policies.gsa import GsaSettings
from diamond_attention.policies.kind import Described
from diamond_attention.policies.neighbours import NeighbourSettings
from diamond_attention.policies.port_hamiltonian import PortHamiltonianSettings
from diamond_attention.worlds.contract import World


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


def described_ph_marl(policy: PortHamiltonianSettings, world: World) -> Described:
    key, label, told = as_told(policy, world, "ph-marl", "pH-MARL")
    return Described(key, label, colour="#999933", place=26, needs=f"two rounds with neighbours{told}")


def described_gsa(policy: GsaSettings, world: World) -> Described:
    released = ("gsa-released", "GSA, as released") if policy.one_sided else ("gsa", "GSA")
    key, label, told = as_told(policy, world, *released)
    return Described(key, label, colour="#cc6677", place=25, needs=f"a round with neighbours{told}")


def as_told(policy: NeighbourSettings, world: World, key: str, label: str) -> tuple[str, str, str]:
    """(key, label, what else a robot needs), by what an agent is told to make for, where there are goals at all."""
    if policy.goal == "own":
        return key, label, ", a task of its own" if world.has_places else ""
    return f"{key}-nearest", f"{label}, nearest goal", ""


PH_MARL = off_policy_method(PhMarlSettings, PortHamiltonianSettings(), sac_rules(pyramid), described_ph_marl)
GSA = off_policy_method(GsaMethodSettings, GsaSettings(), sac_rules(pyramid), described_gsa)
