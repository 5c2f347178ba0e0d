"""`diamond bench PRESET --check`: the GPU's numbers held against the CPU's, on the same views, weights and keys.

A compiler's fault says nothing: twice a product of tiny matrices came back wrong from a GPU, and training only went
worse. So a step of the world, its views, every kind of policy that plays it, with its gradient, and what every method
lowers, with the gradient for its critics and mixers, for a few seeds at once, are computed on both. Weights are drawn
at random, since fresh ones are so small in places that a wrong number would be lost.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from diamond_attention.actions import Actions, random_actions
from diamond_attention.bench.simulation import random_step, with_agents
from diamond_attention.build import build_policy
from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Learner, LearnerState, Method
from diamond_attention.learning.registry import METHODS
from diamond_attention.learning.seeds import stack_seeds
from diamond_attention.policies.contract import Policy
from diamond_attention.policies.kind import KindSettings
from diamond_attention.policies.registry import POLICIES
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.assemble import build_learner
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.settings import Settings
from diamond_attention.view import AgentView
from diamond_attention.worlds.contract import State, TeamSize, World

TEAMS = 256
STEPS_BEFORE = 20
"""Of random play, so that teams are somewhere else than where they began."""
SIZES = (3, 4, 5)
"""Agents, where the world leaves that open: what a compiler makes of small matrices depends on how small they are."""
FEW = {"envs": 64, "steps": 4, "batch": 256, "replay": 256, "warmup": 256, "precision": "float32"}
"""Settings of a method, as far as it has them."""
SEEDS = 3
"""Of every method, side by side as in training: a compiler has erred in products of several seeds alone."""
PRECISIONS = {"float32": 1e-3, "default": 5e-2}
"""What products are computed in, and how far apart numbers may be then, as a share of the largest of their array. By
default a GPU rounds to ten bits what it multiplies."""


class Compared(NamedTuple):
    """One thing that both computed."""

    what: str
    precision: str
    apart: float
    """The largest difference of any array, as a share of its largest number on the CPU."""

    @property
    def agrees(self) -> bool:
        return self.apart <= PRECISIONS[self.precision]

    def __str__(self) -> str:
        verdict = "agrees" if self.agrees else f"DIFFERS, more than {PRECISIONS[self.precision]:g}"
        return f"{self.what}, products in {self.precision}: {self.apart:.1e} {verdict}"


def check_device(settings: Settings) -> bool:
    """Whether this process's GPU and the CPU agree everywhere; prints each comparison as it is made."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        raise UserError("--check holds a GPU against the CPU, and JAX finds no GPU here; run it where there is one.")
    agree = True
    for compared in compare(settings, device, jax.local_devices(backend="cpu")[0], SIZES):
        print(compared, flush=True)
        agree &= compared.agrees
    print(f"{device.device_kind} and the CPU {'agree' if agree else 'DIFFER where it says so above'}.")
    return agree


def compare(settings: Settings, device: Any, reference: Any, sizes: Sequence[int]) -> Iterator[Compared]:
    """A step, its views, and every policy and method with its gradient, for teams of these sizes, or the preset's."""

    def on_both(what: str, function: Callable, *given: Any) -> Iterator[Compared]:
        right = _on(reference, function, *given)
        for precision in PRECISIONS:
            with jax.default_matmul_precision(precision):
                yield Compared(what, precision, _apart(_on(device, function, *given), right))

    # Worlds of one size, such as a battle's map, have the same for each.
    for world, size in dict.fromkeys(with_agents(settings, agents) for agents in sizes):
        at = f"{world.name} {int(size.agents)}x{int(size.tasks)}"
        states, keys = _on(reference, partial(_somewhere, world, size), jax.random.key(0))
        actions = _on(reference, partial(_anything, world), states, keys)
        yield from on_both(f"{at}, a step", partial(_stepped, world), states, actions, keys)
        yield from on_both(f"{at}, views", partial(_seen, world), states, keys)
        views = _on(reference, partial(_seen, world), states, keys)
        for kind, about in POLICIES.items():
            try:
                policy = _on(reference, partial(_random_policy, world, about.settings()), jax.random.key(1))
            except UserError:  # a kind that does not play this world
                continue
            drawn, chosen = _on(reference, _played, policy, views, keys)
            yield from on_both(f"{at}, {kind} and its gradient", _answered, policy, drawn, chosen)
        for name, method in METHODS.items():
            if method.collect is None or method.loss is None:
                continue
            learner = _learner(settings, name, world, size)
            try:
                begun = [_on(reference, partial(_begun, method, learner), key) for key in _keys(2)]
            except UserError:  # a method that does not learn this world
                continue
            state = stack_seeds(begun)
            played = _on(reference, jax.vmap(partial(method.collect, learner)), state, _keys(2))
            loss = jax.vmap(partial(_lowered, method, learner))
            yield from on_both(f"{at}, the loss of {name} and its gradient", loss, state, played, _keys(3))


def _keys(number: int) -> Array:
    """One for each seed."""
    return jax.random.split(jax.random.key(number), SEEDS)


def _on(device: Any, function: Callable, *given: Any) -> Any:
    """As numpy arrays or keys of the host, which any device takes."""
    arrays, rest = eqx.partition(given, eqx.is_array)
    return eqx.filter_jit(function)(*eqx.combine(jax.device_put(arrays, device), rest))


def _apart(here: Any, there: Any) -> float:
    """Infinite where one has a number and the other has none."""
    worst = 0.0
    for ours, theirs in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        one, right = np.asarray(ours, float), np.asarray(theirs, float)
        if (np.isfinite(one) != np.isfinite(right)).any():
            return float("inf")
        known = np.isfinite(right)
        largest = np.abs(right[known]).max(initial=1e-6)
        worst = max(worst, float(np.abs(one[known] - right[known]).max(initial=0.0) / largest))
    return worst


# --- What is computed -----------------------------------------------------------------------------


def _somewhere(world: World, size: TeamSize, key: Array) -> tuple[State, Array]:
    """Teams after some random play, and a key for each."""
    keys = jax.random.split(key, (TEAMS, STEPS_BEFORE + 2))
    starts = jax.vmap(lambda own: world.reset(own, size))(keys[:, 0])
    played, _ = jax.vmap(lambda start, own: jax.lax.scan(partial(random_step, world), start, own))(
        starts, keys[:, 2:]
    )
    return played, keys[:, 1]


def _anything(world: World, states: State, keys: Array) -> Actions:
    views = _seen(world, states, keys)
    return jax.vmap(partial(random_actions, world.action_kind))(views, keys)


def _stepped(world: World, states: State, actions: Actions, keys: Array) -> Any:
    after = jax.vmap(world.step)(states, actions, keys)
    return jax.tree.map(_as_numbers, (after.state, after.reward, after.terminated, after.measures))


def _seen(world: World, states: State, keys: Array) -> AgentView:
    ranks = jax.vmap(lambda key: draw_ranks(key, world.max_agents))(keys)
    return jax.vmap(world.views)(states, ranks)


def _random_policy(world: World, settings: KindSettings, key: Array) -> Policy:
    return _redrawn(build_policy(world, settings, key), key)


def _redrawn(weights: Any, key: Array) -> Any:
    arrays, rest = eqx.partition(weights, lambda x: eqx.is_inexact_array(x) and x.ndim > 0)
    leaves, structure = jax.tree.flatten(arrays)
    drawn = [
        leaf + jax.random.normal(own, leaf.shape) / leaf.shape[-1] ** 0.5
        for leaf, own in zip(leaves, jax.random.split(key, len(leaves)), strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, drawn), rest)


def _played(policy: Policy, views: AgentView, keys: Array) -> tuple[AgentView, Actions]:
    views = jax.vmap(policy.draw)(views, keys)
    memory = policy.first_memory(views.ranks.shape[-2])
    return views, jax.vmap(lambda own, key: policy.act(own, memory, key, False).actions)(views, keys)


def _answered(policy: Policy, views: AgentView, actions: Actions) -> Any:
    """Log-probabilities and entropies of those who are there, and the gradient of their means."""
    memory = policy.first_memory(views.ranks.shape[-2])
    present = views.agent_present[:, :, 0]

    def mean(policy: Policy) -> tuple[Array, Any]:
        answers = jax.vmap(lambda own, action: policy.ask_again(own, memory, action))(views, actions)
        log_probability, entropy = (jnp.where(present, each, 0.0) for each in answers)
        return jnp.mean(log_probability) + jnp.mean(entropy), (log_probability, entropy)

    gradient, answers = eqx.filter_grad(mean, has_aux=True)(policy)
    return answers, gradient


def _learner(settings: Settings, name: str, world: World, size: TeamSize) -> Learner:
    """This method's own settings here, for few steps of few teams, in full precision."""
    own = settings if settings.method.name == name else with_method(settings, name)
    few = {field: value for field, value in FEW.items() if hasattr(own.method, field)}
    learner = build_learner(dataclasses.replace(own, method=dataclasses.replace(own.method, **few)))
    return learner._replace(world=world, sizes=((int(size.agents), int(size.tasks)),))


def _begun(method: Method, learner: Learner, key: Array) -> LearnerState:
    """A learner with random weights."""
    state = method.begin(learner, key)
    return state._replace(weights=_redrawn(state.weights, key))


def _lowered(method: Method, learner: Learner, state: LearnerState, played: Any, key: Array) -> Any:
    """The loss and its parts as one array, some of which are next to nothing; and the gradient."""
    (loss, parts), gradient = method.loss(learner, state, played, key)  # type: ignore[misc]
    return jnp.stack([loss, *parts.values()]), gradient


def _as_numbers(x: Array) -> Array:
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
