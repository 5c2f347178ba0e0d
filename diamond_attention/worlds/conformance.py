"""A check to run over any world, ours or yours: does it keep the contract?

    from diamond_attention.worlds.conformance import check_world
    check_world(MyWorld(max_agents=4, max_tasks=3))

It raises `ConformanceError` with one sentence about the first promise that is not kept.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.actions import Actions, ActOrChooseTask, ChooseTask, Continuous, random_actions
from diamond_attention.view import AgentView, viewer_first
from diamond_attention.worlds.contract import State, TeamSize, World, no_actions

STEPS = 5


class ConformanceError(AssertionError):
    """The world breaks its contract."""


def check_world(world: World, size: TeamSize | None = None, seed: int = 0) -> None:
    """Checks shapes, purity, key use, presence masks, ranks, and symmetry under swapping two agents.

    `size` is the team to play with, the largest by default; give a smaller one to see the padding. A world that is
    only played at sizes of its own is checked at the first of them.
    """
    size = size or (world.sizes or (TeamSize(world.max_agents, world.max_tasks),))[0]
    _check_facts(world, size)
    key = jax.random.key(seed)
    ranks = jax.random.uniform(key, (world.max_agents,), jnp.float32)
    state = world.reset(key, size)
    for step in range(STEPS):
        key, action_key, step_key = jax.random.split(key, 3)
        views = world.views(state, ranks)
        _check_views(world, state, views, ranks, size)
        _check_team_view(world, state, size)
        actions = random_actions(world.action_kind, views, action_key)
        _check_step(world, state, actions, step_key, step)
        transition = world.step(state, actions, step_key)
        if bool(transition.terminated):
            break
        state = transition.state
    _check_purity(world, size, seed)
    _check_symmetry(world, size, seed)
    _check_frames(world, world.views(world.reset(jax.random.key(seed), size), ranks))


def _require(promise: bool | np.bool_ | Array, sentence: str) -> None:
    if not bool(promise):
        raise ConformanceError(sentence)


def _check_facts(world: World, size: TeamSize) -> None:
    _require(dataclasses.is_dataclass(world), "the world must be a frozen dataclass: its fields are its settings.")
    _require(World in type(world).__mro__, "the world must inherit from World, for the facts it does not state.")
    fields = {field.name for field in dataclasses.fields(world)}  # type: ignore[arg-type]
    for name in ("max_agents", "max_tasks"):
        _require(name in fields, f"the world needs a field {name}: the padding is set by whoever plays it.")
    try:
        hash(world)
    except TypeError:
        raise ConformanceError(
            "the world cannot be hashed; make it a frozen dataclass with hashable fields."
        ) from None
    _require(isinstance(world.name, str) and bool(world.name), "the world needs a name.")
    _require(
        isinstance(world.time_limit, int) and world.time_limit >= 1, "time_limit must be a whole number of steps."
    )
    _require(
        isinstance(world.action_kind, ChooseTask | ActOrChooseTask | Continuous),
        "action_kind must be one of diamond_attention.actions.",
    )
    _require(
        0 < int(size.agents) <= world.max_agents and 0 <= int(size.tasks) <= world.max_tasks,
        f"size {tuple(size)} does not fit the padding ({world.max_agents} agents, {world.max_tasks} tasks).",
    )
    scored = world.as_scored()
    _require(
        (scored.name, scored.max_agents, scored.max_tasks, scored.action_kind)
        == (world.name, world.max_agents, world.max_tasks, world.action_kind),
        "as_scored must give the same world, padding and actions, with other settings only.",
    )
    world.check_size(size)
    for name in world.varies:
        _require(name in fields, f"varies names {name}, which is no setting of the world.")


def _check_views(world: World, state: State, views: AgentView, ranks: Array, size: TeamSize) -> None:
    agents, tasks = world.max_agents, world.max_tasks
    _require(isinstance(views, AgentView), "views must return an AgentView.")
    shapes = {
        "agents": (agents, agents, views.agents.shape[-1]),
        "tasks": (agents, tasks, views.tasks.shape[-1]),
        "agent_present": (agents, agents),
        "task_present": (agents, tasks),
        "ranks": (agents, agents),
    }
    for name, shape in shapes.items():
        _require(getattr(views, name).shape == shape, f"views().{name} must have shape {shape}.")
    for name, named in (("agents", world.agent_features), ("tasks", world.task_features)):
        number = getattr(views, name).shape[-1]
        _require(
            len(named) in (0, number),
            f"views().{name} has {number} features and the world names {len(named)}.",
        )
    if isinstance(world.action_kind, ActOrChooseTask):
        expected = (agents, world.action_kind.fixed_actions + tasks)
        legal = views.legal_actions
        _require(
            legal is not None and legal.shape == expected and legal.dtype == bool,
            f"views().legal_actions must be boolean and have shape {expected}.",
        )
        _require(np.asarray(legal).any(axis=1).all(), "every agent, absent ones too, needs a legal action.")
    _require(
        not world.same_legal_actions or views.legal_actions is None or _same_to_all(views.legal_actions),
        "same_legal_actions is True, and views().legal_actions is not the same to all viewers.",
    )
    _require(views.agent_present.dtype == bool, "views().agent_present must be boolean.")
    _require(views.task_present.dtype == bool, "views().task_present must be boolean.")
    _require(views.ranks.dtype == jnp.float32, "views().ranks must be float32: coarser numbers tie.")
    for name in ("agents", "tasks"):
        _require(jnp.all(jnp.isfinite(getattr(views, name))), f"views().{name} must be finite, absent rows included.")
    orders = np.asarray([viewer_first(i, agents) for i in range(agents)])
    _require(
        np.array_equal(np.asarray(views.ranks), np.asarray(ranks)[orders]),
        "views().ranks must hold the ranks it was given, the viewer's own first and the others by index.",
    )
    own = np.asarray(views.agent_present)[:, 0]
    _require(own.sum() <= int(size.agents), "more agents see themselves as present than the team has.")
    _require(own.any(), "no agent of the team sees itself as present.")
    _require(jnp.all(jnp.sum(views.task_present, axis=1) <= size.tasks), "views() shows more tasks than there are.")
    # Ranks may only be heard, never seen: everything else must stay the same when they change.
    other = world.views(state, ranks[::-1])
    for name in ("agents", "tasks", "agent_present", "task_present"):
        _require(
            jnp.array_equal(getattr(views, name), getattr(other, name)),
            f"views().{name} depends on the ranks; they may only be in views().ranks.",
        )


def _check_frames(world: World, views: AgentView) -> None:
    """What the features say of their frames: a viewer that re-centres its view on a peer must get that peer's."""

    def of_frame(frame: str) -> tuple[np.ndarray, np.ndarray]:
        columns = [
            [column for column, feature in enumerate(named) if feature.frame == frame]
            for named in (world.agent_features, world.task_features)
        ]
        return np.asarray(views.agents)[..., columns[0]], np.asarray(views.tasks)[..., columns[1]]

    views = _by_index(views)
    (peers, places), common = of_frame("place"), of_frame("common")
    if all(rows.shape[-1] == 0 for rows in (peers, places, *common)):
        return
    for name in ("agent_present", "task_present"):
        _require(
            _same_to_all(getattr(views, name)),
            f"a feature has the frame common or place, and views().{name} is not the same to all viewers.",
        )
    there, tasks = np.asarray(views.agent_present)[0], np.asarray(views.task_present)[0]
    for name, rows, shown in (("agents", common[0], there), ("tasks", common[1], tasks)):
        _require(
            np.allclose(rows[:, shown], rows[:1, shown], atol=1e-5),
            f"a feature of views().{name} has the frame common, and two viewers see it differently.",
        )
    _require(peers.shape[-1] == places.shape[-1], "agents and tasks must have as many features of the frame place.")
    for viewer in np.flatnonzero(there):
        for peer in np.flatnonzero(there):
            _require(
                np.allclose((places[viewer] - peers[viewer, peer])[tasks], places[peer, tasks], atol=1e-5),
                "a task's place less a peer's (features of the frame place) must be its place as that peer sees it.",
            )


def _same_to_all(shown: Array) -> bool:
    return np.array_equal(shown, np.broadcast_to(shown[:1], shown.shape))


def _check_symmetry(world: World, size: TeamSize, seed: int) -> None:
    """Swapping two agents must swap their views and change nothing else: no agent is told apart by its index.

    The rows of agents in a state are found by their length, so the world is padded to numbers of agents
    and tasks that nothing else has.
    """
    agents = max(world.max_agents, 3)
    tasks = world.max_tasks + (world.max_tasks == agents)
    world = dataclasses.replace(world, max_agents=agents, max_tasks=tasks)  # type: ignore[type-var]
    if int(size.agents) < 2:
        return
    key = jax.random.key(seed)
    ranks = jax.random.uniform(key, (agents,), jnp.float32)
    state = world.reset(key, size)
    swap = jnp.arange(agents).at[jnp.array([0, 1])].set(jnp.array([1, 0]))
    swapped = jax.tree.map(lambda x: x[swap] if jnp.ndim(x) and x.shape[0] == agents else x, state)
    before, after = (_by_index(world.views(s, r)) for s, r in ((state, ranks), (swapped, ranks[swap])))
    for name in ("agents", "agent_present", "ranks"):
        expected = getattr(before, name)[swap][:, swap]
        _require(
            np.allclose(getattr(after, name), expected, atol=1e-5),
            f"swapping two agents does not swap views().{name}: something tells agents apart by their index.",
        )
    for name in ("tasks", "task_present"):
        _require(
            np.allclose(getattr(after, name), getattr(before, name)[swap], atol=1e-5),
            f"swapping two agents does not swap views().{name}: something tells agents apart by their index.",
        )


def _by_index(views: AgentView) -> AgentView:
    """The same views with every agent listed at its own index instead of the viewer first."""
    agents = views.ranks.shape[0]
    back = np.argsort(np.asarray([viewer_first(i, agents) for i in range(agents)]), axis=1)
    unordered = {
        name: jnp.stack([getattr(views, name)[viewer][back[viewer]] for viewer in range(agents)])
        for name in ("agents", "agent_present", "ranks")
    }
    return views._replace(**unordered)


def _check_team_view(world: World, state: State, size: TeamSize) -> None:
    view = world.team_view(state)
    _require(view.agents.shape[0] == world.max_agents, "team_view().agents must have a row for each agent.")
    _require(view.tasks.shape[0] == world.max_tasks, "team_view().tasks must have a row for each task.")
    _require(view.agent_present.shape == (world.max_agents,), "team_view().agent_present must be one flag an agent.")
    _require(view.task_present.shape == (world.max_tasks,), "team_view().task_present must be one flag a task.")
    _require(jnp.sum(view.agent_present) <= size.agents, "team_view() shows more agents than the team has.")
    _require(
        jnp.all(jnp.isfinite(view.agents)) and jnp.all(jnp.isfinite(view.tasks)),
        "team_view() must be finite, absent rows included.",
    )


def _check_step(world: World, state: State, actions: Actions, key: PRNGKeyArray, step: int) -> None:
    transition = world.step(state, actions, key)
    _require(transition.reward.shape == (), "the reward must be one number for the team.")
    _require(jnp.isfinite(transition.reward), f"the reward is not finite at step {step}.")
    _require(
        transition.terminated.shape == () and transition.terminated.dtype == bool, "terminated must be one boolean."
    )
    same = jax.tree.map(lambda a, b: a.shape == b.shape and a.dtype == b.dtype, state, transition.state)
    _require(all(jax.tree.leaves(same)), "step() must return a state of the same shapes and dtypes.")
    for name, value in transition.measures.items():
        _require(jnp.shape(value) == (), f"the measure {name} must be one number.")
    scoring = world.scoring
    _require(
        scoring.score in ("return", *transition.measures), f"scoring.score is {scoring.score}, which is no measure."
    )
    for name in scoring.measures:
        _require(name in transition.measures, f"scoring.measures names {name}, which step() does not measure.")
    # What absent agents do must not matter.
    present = np.asarray(world.team_view(state).agent_present)
    other = jnp.where(jnp.asarray(present).reshape(-1, *([1] * (jnp.ndim(actions) - 1))), actions, no_actions(world))
    changed = world.step(state, other.astype(actions.dtype), key)
    _require(
        jnp.array_equal(transition.reward, changed.reward), "the reward depends on the actions of absent agents."
    )
    _require(
        all(jax.tree.leaves(jax.tree.map(jnp.array_equal, *_comparable(world, transition.state, changed.state)))),
        "the state depends on the actions of absent agents.",
    )


def _comparable(world: World, first: State, second: State) -> tuple:
    """What can be seen of two states; what no view shows may differ."""
    ranks = jnp.zeros(world.max_agents, jnp.float32)

    def seen(state: State) -> tuple:
        team = world.team_view(state)
        shown = (
            jnp.where(team.agent_present[:, None], team.agents, 0.0),
            jnp.where(team.task_present[:, None], team.tasks, 0.0),
        )
        return shown, world.views(state, ranks).agent_present

    return seen(first), seen(second)


def _check_purity(world: World, size: TeamSize, seed: int) -> None:
    key = jax.random.key(seed)
    first, again = world.reset(key, size), world.reset(key, size)
    _require(
        _equal(first, again), "reset() gives two different states for one key; all randomness must come from the key."
    )
    actions = no_actions(world)
    _require(
        _equal(world.step(first, actions, key), world.step(again, actions, key)),
        "step() gives two different results for the same arguments; a world keeps no state of its own.",
    )
    # Under vmap and jit Python runs once, so anything hidden in Python would show as a difference.
    keys = jax.random.split(key, 3)
    ranks = jnp.linspace(0.1, 0.9, world.max_agents, dtype=jnp.float32)

    def begin_and_step(k: PRNGKeyArray) -> tuple:
        state = world.reset(k, size)
        return state, world.step(state, actions, k), world.views(state, ranks), world.team_view(state)

    together = jax.jit(jax.vmap(begin_and_step))(keys)
    for i, k in enumerate(keys):
        batched = jax.tree.map(lambda x: x[i], together)  # noqa: B023 - used at once
        close = jax.tree.map(lambda a, b: bool(jnp.allclose(a, b, atol=1e-4)), batched, begin_and_step(k))
        for name, part in zip(("reset", "step", "views", "team_view"), close, strict=True):
            _require(all(jax.tree.leaves(part)), f"{name}() gives something else inside jax.vmap than alone.")


def _equal(first: object, second: object) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), first, second)))
