"""Policies of every kind with random weights, once in JAX and once without, and views to ask both about."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diamond_attention.build import interface_of
from diamond_attention.deploy.bundle import Bundle, bundle_of
from diamond_attention.deploy.view import View
from diamond_attention.policies.commitments import CommitmentsSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.flat import FlatSettings
from diamond_attention.policies.gsa import GsaSettings
from diamond_attention.policies.mat import MatSettings
from diamond_attention.policies.port_hamiltonian import PortHamiltonianSettings
from diamond_attention.policies.q_values import QSettings
from diamond_attention.policies.registry import POLICIES
from diamond_attention.policies.soft import SoftSettings
from diamond_attention.runs.arrays import named_arrays
from diamond_attention.runs.bundle import PolicyAt, bundle_files
from diamond_attention.runs.folder import Run
from diamond_attention.runs.settings import Settings
from diamond_attention.view import AgentView
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

AGENTS, TASKS = 5, 6
XOR = Xor(max_agents=AGENTS, max_tasks=TASKS)
SPREAD = Spread(max_agents=AGENTS, max_tasks=AGENTS)
DISPATCH = Dispatch(max_agents=AGENTS, max_tasks=TASKS)

# Every mask once; every third block and every head; what dropout keeps, in each of them.
CASES: dict[str, tuple[Any, Any]] = {
    **{f"diamond {mask}": (SPREAD, DiamondSettings(width=8, mask=mask)) for mask in ("rank", "none", "signed")},
    **{f"diamond {mask}": (SPREAD, DiamondSettings(width=8, mask=mask)) for mask in ("floor", "first", "split")},
    **{f"diamond dropout, {w.name}": (w, DiamondSettings(width=8, mask="dropout")) for w in (SPREAD, XOR, DISPATCH)},
    "diamond paper, split": (SPREAD, DiamondSettings(width=8, mask="split", third_block="paper")),
    "diamond paper, dropout": (SPREAD, DiamondSettings(width=8, mask="dropout", third_block="paper")),
    "diamond dropout off": (SPREAD, DiamondSettings(width=8, mask="dropout", dropout_at_execution=False)),
    "diamond rank, xor": (XOR, DiamondSettings(width=8)),
    "diamond floor, dispatch": (DISPATCH, DiamondSettings(width=8, mask="floor")),
    "commitments, xor": (XOR, CommitmentsSettings(width=8, rounds=3)),
    "commitments, dispatch": (DISPATCH, CommitmentsSettings(width=8, rounds=16)),
    **{f"flat, {world.name}": (world, FlatSettings(width=8)) for world in (XOR, SPREAD, DISPATCH)},
    **{f"mat, {w.name}": (w, MatSettings(width=8, blocks=2, heads=2)) for w in (XOR, SPREAD, DISPATCH)},
    **{f"q-values, {world.name}": (world, QSettings(width=8)) for world in (SPREAD, DISPATCH)},
    **{f"soft, {world.name}": (world, SoftSettings(width=8)) for world in (SPREAD, DISPATCH)},
    "gsa, spread": (SPREAD, GsaSettings()),
    "gsa nearest": (SPREAD, GsaSettings(goal="nearest", one_sided=True, radius=2.0)),
    "gsa, xor": (XOR, GsaSettings()),
    "ph-marl, spread": (SPREAD, PortHamiltonianSettings(radius=3.0)),
    "ph-marl nearest": (SPREAD, PortHamiltonianSettings(goal="nearest", radius=3.0)),
    "ph-marl, xor": (XOR, PortHamiltonianSettings()),
}


PLAUSIBLE = {"exploration": 0.25, "claim": -0.4}
"""Numbers that must lie somewhere."""


def random_policy(world: Any, settings: Any, seed: int = 0) -> Any:
    """With every number drawn anew: initial weights are too small to tell much, and take long to make orthogonal."""
    generator = np.random.default_rng(seed)
    interface = interface_of(world)
    shapes = jax.eval_shape(lambda: POLICIES[settings.kind].build(settings, interface, jax.random.key(0)))
    arrays = {}
    for name, leaf in named_arrays(shapes).items():
        scale = 1.0 / np.sqrt(leaf.shape[-1]) if leaf.ndim > 1 else 0.3
        arrays[name] = (scale * generator.normal(size=leaf.shape)).astype(np.float32)
    arrays |= {name: np.float32(value) for name, value in PLAUSIBLE.items() if name in arrays}
    return jax.tree.unflatten(jax.tree.structure(shapes), list(arrays.values()))


def files_of(world: Any, settings: Any, policy: Any) -> dict[str, bytes]:
    """The two files of a bundle."""
    size = {"agents": str(world.max_agents), "tasks": str(world.max_tasks)}
    run = Run(Path("made"), "", 0, (0,), Settings(world=world, policy=settings, **size))
    return bundle_files(run, PolicyAt(policy, 0, 0), {})


def bundle_for(world: Any, settings: Any, policy: Any) -> Bundle:
    files = files_of(world, settings, policy)
    return bundle_of(json.loads(files["policy.json"]), files["policy.safetensors"], "made")


def made(name: str) -> tuple[Any, Bundle]:
    """One of CASES as load_policy gives it, without dropout where that is only for learning; and its bundle."""
    world, settings = CASES[name]
    played = POLICIES[settings.kind].in_play(settings, None)
    return random_policy(world, played), bundle_for(world, settings, random_policy(world, settings))


def team_views(bundle: Bundle, agents: int, tasks: int, seed: int) -> View:
    """Views of a whole team, all random: who is there, what is legal, ranks that tie. Agent 0 is always there."""
    generator = np.random.default_rng(seed)
    interface = bundle.interface
    present = generator.random(agents) < 0.8
    present[0] = True
    listed = np.array([[i, *(j for j in range(agents) if j != i)] for i in range(agents)])
    open_ = generator.random(tasks) < 0.8
    open_[-1] = True
    drawn = generator.integers(4, size=agents) / np.float32(4)  # of few numbers, so that some are equal
    legal, kept = None, None
    if interface.action.kind != "continuous":
        options = interface.action.options(tasks)
        legal = generator.random((agents, options)) < 0.7
        legal[:, interface.action.number :] &= open_
        legal[:, -1] = True
    if getattr(bundle.policy, "mask", "") == "dropout":
        kept = generator.random((agents, 3, tasks, agents)) < 0.5
    return View(
        generator.normal(size=(agents, agents, len(interface.agent_features))).astype(np.float32),
        generator.normal(size=(agents, tasks, len(interface.task_features))).astype(np.float32),
        present[listed],
        np.broadcast_to(open_, (agents, tasks)),
        drawn[listed].astype(np.float32),
        legal,
        kept,
    )


def each_view(views: View) -> Iterator[View]:
    for agent in range(len(views.agents)):
        yield View(*(None if part is None else part[agent] for part in views))


def in_jax(views: View) -> AgentView:
    """The same for a policy of the package; rows of who is not there are zero, as in every world."""
    there = [np.where(present[..., None], rows, 0) for rows, present in zip(views[:2], views[2:4], strict=True)]
    return AgentView(*there, *views[2:])
