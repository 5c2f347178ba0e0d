"""IPPO (de Witt et al. 2020): as MAPPO, but a critic that knows no more than one agent sees."""

from dataclasses import dataclass

from jaxtyping import PRNGKeyArray

from diamond_attention.build import interface_of
from diamond_attention.learning.mappo import WIDTH
from diamond_attention.learning.ppo_method import PPO, begin_with
from diamond_attention.learning.ppo_settings import RelativeOfPpoSettings
from diamond_attention.policies.flat import FlatSettings, OwnCritic, observation_size
from diamond_attention.policies.kind import Described, KindSettings, needs_of_flat
from diamond_attention.worlds.contract import World


@dataclass(frozen=True)
class IppoSettings(RelativeOfPpoSettings):
    """IPPO: a shared policy and a shared critic, both on each agent's own flat observation; for one team size."""

    name = "ippo"


def own_critic(world: World, policy: KindSettings, key: PRNGKeyArray) -> OwnCritic:
    interface = interface_of(world)
    width = getattr(policy, "width", WIDTH)
    return OwnCritic(observation_size(interface), width, interface.sees_peers, key=key)


IPPO = PPO._replace(
    settings=IppoSettings,
    policy=FlatSettings(),
    begin=begin_with(own_critic),
    described=lambda policy, world: Described(
        "ippo", "IPPO", colour="#aa4499", place=21, needs=needs_of_flat(world.sees_peers)
    ),
)
