"""A policy for a world: what its views and actions look like, and fresh weights for them."""

import jax
from jaxtyping import PRNGKeyArray

from diamond_attention.policies.contract import Policy
from diamond_attention.policies.kind import Interface, KindSettings
from diamond_attention.policies.registry import POLICIES
from diamond_attention.worlds.contract import World, example_views


def interface_of(world: World) -> Interface:
    """What a policy that plays this world is given and must answer."""
    view, _ = example_views(world)
    features = (view.agents.shape[-1], view.tasks.shape[-1])
    room = (world.max_agents, world.max_tasks)
    return Interface(
        *features,
        world.action_kind,
        *room,
        world.sees_peers,
        world.has_places,
        agent_frames=tuple(feature.frame for feature in world.agent_features),
        task_frames=tuple(feature.frame for feature in world.task_features),
        own_legal_actions=view.legal_actions is not None and not world.same_legal_actions,
    )


def build_policy(world: World, settings: KindSettings, key: PRNGKeyArray) -> Policy:
    """A policy for this world's views and actions, with fresh weights."""
    return POLICIES[settings.kind].build(settings, interface_of(world), key)


def plays_too(settings: KindSettings, built_for: World, other: World) -> bool:
    """Whether a policy built for a world plays another size of it: it plays any, or has the same arrays there."""

    def shapes(world: World) -> list[tuple[int, ...]]:
        policy = jax.eval_shape(lambda: build_policy(world, settings, jax.random.key(0)))
        return [leaf.shape for leaf in jax.tree.leaves(policy)]

    return POLICIES[settings.kind].any_size or shapes(other) == shapes(built_for)
