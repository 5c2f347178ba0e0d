"""MAPPO (Yu et al. 2022): PPO with a shared policy on flat observations, and one critic that sees everything."""

from dataclasses import dataclass

from jaxtyping import PRNGKeyArray

from diamond_attention.learning.ppo_method import PPO, begin_with
from diamond_attention.learning.ppo_settings import RelativeOfPpoSettings
from diamond_attention.policies.flat import FlatSettings, StateCritic
from diamond_attention.policies.kind import Described, KindSettings
from diamond_attention.worlds.contract import World, example_views

WIDTH = FlatSettings.width
ONE_SIZE = "nothing; one team size"


@dataclass(frozen=True)
class MappoSettings(RelativeOfPpoSettings):
    """MAPPO: a shared policy on flat observations, one critic that sees everything; for one team size."""

    name = "mappo"


def central_critic(world: World, policy: KindSettings, key: PRNGKeyArray) -> StateCritic:
    _, view = example_views(world)
    features = sum(rows.shape[0] * (rows.shape[1] + 1) for rows in (view.agents, view.tasks))
    return StateCritic(features, getattr(policy, "width", WIDTH), key=key)


MAPPO = PPO._replace(
    settings=MappoSettings,
    policy=FlatSettings(),
    begin=begin_with(central_critic),
    described=lambda policy, world: Described("mappo", "MAPPO", colour="#882255", place=20, needs=ONE_SIZE),
)
