"""MAT (Wen et al. 2022): PPO on the Multi-Agent Transformer, with a value for each agent on its encoder."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.learning.ppo_method import PPO, begin_with
from diamond_attention.learning.ppo_settings import RelativeOfPpoSettings
from diamond_attention.policies.kind import Described, KindSettings
from diamond_attention.policies.mat import MatSettings, TwoLayers, gelu
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.contract import World


@dataclass(frozen=True)
class MatMethodSettings(RelativeOfPpoSettings):
    """MAT: agents decide one after the other, and hear what those before them chose; for one team size."""

    name = "mat"


class EncodedCritic(eqx.Module):
    """A value for each agent, from the policy's encoder, which its gradient reaches too."""

    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    value: eqx.nn.Linear
    reads_views: ClassVar[bool] = True

    def __init__(self, width: int, *, key: PRNGKeyArray):
        layers = TwoLayers(width, 1, key=key)
        self.first, self.norm, self.value = layers.first, layers.norm, layers.second

    def __call__(self, view: TeamView, views: AgentView | None, policy: Any) -> Float[Array, " agent"]:
        def one(token: Array) -> Array:
            return self.value(self.norm(gelu(self.first(token))))[0]

        return jax.vmap(one)(policy.encode(views))


def encoded_critic(world: World, policy: KindSettings, key: PRNGKeyArray) -> EncodedCritic:
    if not isinstance(policy, MatSettings):
        raise UserError(f"policy.kind is {policy.kind}, and method mat learns policy.kind mat only.")
    return EncodedCritic(policy.width, key=key)


MAT = PPO._replace(
    settings=MatMethodSettings,
    policy=MatSettings(),
    begin=begin_with(encoded_critic),
    described=lambda policy, world: Described(
        "mat", "MAT", colour="#117733", place=22, needs="all views, an order, N turns; one team size"
    ),
)
