"""MAPPO (Yu et al. 2022): PPO with a shared policy on flat observations, and one critic that sees everything."""

from dataclasses import dataclass

from jaxtyping import PRNGKeyArray

from diamond_attention.learning.ppo_method import PPO, begin_with
from diamond_attention.learning.ppo_settings import RelativeOfPpoSettings
from diamond_attention.policies.flat import FlatSettings, StateCritic, state_size
from diamond_attention.policies.kind import Described, KindSettings, needs_of_flat
from diamond_attention.worlds.contract import World, example_views

WIDTH = FlatSettings.width


@dataclass(frozen=True)
class MappoSettings(RelativeOfPpoSettings):
    """MAPPO: a shared policy on flat observations, one critic that sees everything; for one team size."""

    name = "mappo"


def central_critic(world: World, policy: KindSettings, key: PRNGKeyArray) -> StateCritic:
    return StateCritic(state_size(example_views(world)[1]), getattr(policy, "width", WIDTH), key=key)


MAPPO = PPO._replace(
    settings=MappoSettings,
    policy=FlatSettings(),
    begin=begin_with(central_critic),
    described=lambda policy, world: Described(
        "mappo", "MAPPO", colour="#882255", place=20, needs=needs_of_flat(world.sees_peers)
    ),
)
