"""How fast a world steps, trains and decides: the half of `diamond bench` for worlds that take many steps.

    simulation   random actions, rewards computed, nothing learned; alone, and with what every agent sees; Simple
                 Spread beside VMAS in the same run, SMAClite on four maps, always with observations
    training     updates of the preset as `diamond train` makes them
    parts        an update's rollout, its minibatch epochs, and the world's steps alone
    decisions    one agent's policy on one view, on one CPU core: what a robot would have to wait for

Whatever is compared takes turns and is given its best turn, so that other work on the machine, which comes and
goes, weighs on all alike.

`python -m diamond_attention.speed` times decisions only: settings as JSON on stdin, measurements on stdout. It is
a process of its own because JAX sizes its thread pool once, and here the pool must be one core.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.actions import Continuous
from diamond_attention.errors import UserError
from diamond_attention.learning.ppo import LearnerState, computing_in
from diamond_attention.learning.rollout import collect
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.assemble import begin_learning, build_learner, build_policy
from diamond_attention.runs.settings import Settings, from_json, padded, to_json
from diamond_attention.runs.train import advance_seeds, stack_seeds
from diamond_attention.worlds import vmas_bridge
from diamond_attention.worlds.contract import Actions, State, TeamSize, World
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.scripted import choose_at_random

AGENTS = 4
ENVS = {"cpu": (64, 1024, 8192), "gpu": (4096, 65_536)}
BATTLES: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": dict.fromkeys(("2s3z", "3s5z", "MMM2", "27m_vs_30m"), (256,)),
    # Fewer battles of 57 units, which make thirty times the pairs that ten do.
    "gpu": {
        "2s3z": (1024, 8192, 65_536),
        "3s5z": (1024, 8192, 65_536),
        "MMM2": (1024, 8192, 32_768),
        "27m_vs_30m": (1024, 8192),
    },
}
"""SMAClite: how many battles at once on each map."""
TEAM_SIZES = (4, 16, 64)
"""At which decisions are timed."""
STEPS_A_CALL = 100
"""Steps in one compiled call: the learner's rollouts are of this order."""
STEPS_A_CALL_OF_BATTLES = 16
"""Fewer, because a step of a large battle takes long on a CPU."""
STEPS_BEFORE_BATTLES_ARE_TIMED = 64
"""Longer than most random battles last, so that early and late situations are mixed as in training."""
TURNS = 3
SECONDS_A_TURN = 0.5
SECONDS_OF_UPDATES = 5.0
DECISIONS = 200

RECORDED = tuple(
    {"world": world, "what": what, "device": device, "system": system, "setting": setting, "steps_per_second": speed}
    for world, what, device, system, setting, speed in (
        ("spread", "simulation", "cpu", "VMAS 1.5.2", "64 envs", 1.8e4),
        ("spread", "simulation", "cpu", "VMAS 1.5.2", "1,024 envs", 2.0e5),
        ("spread", "simulation", "cpu", "VMAS 1.5.2", "8,192 envs", 3.8e5),
        ("spread", "simulation", "cpu", "JaxMARL 0.2.0 MPE", "64 envs", 1.7e5),
        ("spread", "simulation", "cpu", "JaxMARL 0.2.0 MPE", "1,024 envs", 2.1e5),
        ("spread", "simulation", "gpu", "JaxMARL 0.2.0 MPE", "4,096 envs", 7.7e7),
        ("spread", "simulation", "gpu", "JaxMARL 0.2.0 MPE", "65,536 envs", 3.6e8),
        ("spread", "training", "cpu", "BenchMARL 1.5.2 MAPPO", "64 envs, MLP 64×64, 10 epochs", 3.1e3),
        ("spread", "training", "cpu", "Stable-Baselines3 2.9.2 PPO", "64 envs, joint MLP 64×64, 10 epochs", 7.3e3),
        ("spread", "training", "gpu", "JaxMARL 0.2.0 IPPO", "4,096 envs × 32 steps, MLP 64×64, 5 epochs", 8.3e6),
        ("smaclite", "simulation", "cpu", "SMAClite, numpy", "2s3z, one core", 56.0),
        ("smaclite", "simulation", "cpu", "SMAClite, numpy", "3s5z, one core", 42.0),
        ("smaclite", "simulation", "cpu", "SMAClite, numpy", "MMM2, one core", 28.9),
        ("smaclite", "simulation", "cpu", "SMAClite, C++", "2s3z, one core", 89.0),
        ("smaclite", "simulation", "cpu", "SMAClite, C++", "3s5z, one core", 77.0),
        ("smaclite", "simulation", "cpu", "SMAClite, C++", "MMM2, one core", 52.4),
        ("smaclite", "simulation", "cpu", "JaxMARL 0.2.0 SMAX, a simpler game", "2s3z, 64 envs", 3.1e4),
        ("smaclite", "simulation", "gpu", "JaxMARL 0.2.0 SMAX, a simpler game", "2s3z, 4,096 envs", 1.4e7),
        ("smaclite", "simulation", "gpu", "JaxMARL 0.2.0 SMAX, a simpler game", "2s3z, 16,384 envs", 2.2e7),
    )
)
"""Recorded elsewhere: on one AMD EPYC core (±20 %) or one H200, not in this run. Simple Spread has four agents."""


def measure_speed(settings: Settings, seed_counts: tuple[int, ...]) -> dict[str, Any]:
    """Everything, as JSON values."""
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    measured: dict[str, Any]
    if settings.world.name == "smaclite":
        battles = [measure_battles(name, envs) for name, counts in BATTLES[device].items() for envs in counts]
        measured = {"simulation": battles}
    else:
        measured = {
            "simulation": [measure_simulation(settings, envs) for envs in ENVS[device]],
            "vmas": vmas_used(settings.world),
        }
    return {
        **measured,
        "training": [measure_training(settings, seeds) for seeds in seed_counts],
        "parts": measure_parts(settings),
        "decisions": measure_decisions(settings),
        "device_memory_peak_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "recorded_elsewhere": recorded_beside(settings.world.name, device),
    }


def recorded_beside(world: str, device: str) -> list[dict[str, Any]]:
    """What was recorded of this world on such a device; the original SMAClite, which has no other, on the CPU."""
    return [
        row
        for row in RECORDED
        if row["world"] == world and (row["device"] == device or str(row["system"]).startswith("SMAClite"))
    ]


# --- Simulation -----------------------------------------------------------------------------------


def measure_simulation(settings: Settings, envs: int) -> dict[str, Any]:
    """Steps of the team a second in `envs` worlds at once, ours and, where it can be, VMAS.

    VMAS computes observations with every step, so it is compared with ours that do.
    """
    world, size = _with_agents(settings, AGENTS)
    players = {
        "alone": _random_player(world, size, envs, with_views=False),
        "with views": _random_player(world, size, envs, with_views=True),
    }
    if vmas_used(world) == "measured":
        players["vmas"] = vmas_bridge.random_player(AGENTS, envs, seed=0)
    steps = {name: _steps_for(play, SECONDS_A_TURN) for name, play in players.items()}
    best = _best_of_turns({name: partial(play, steps[name]) for name, play in players.items()})
    speeds = {name: envs * steps[name] / best[name] for name in players}
    return {
        "envs": envs,
        "agents": int(size.agents),
        "steps_per_second": speeds["alone"],
        "steps_per_second_with_views": speeds["with views"],
        "vmas_steps_per_second": speeds.get("vmas"),
        "times_vmas": speeds["with views"] / speeds["vmas"] if "vmas" in speeds else None,
    }


def vmas_used(world: World) -> str:
    """Whether VMAS is measured beside this world, or why not."""
    if world.name != "spread":
        return f"left out: VMAS has no world {world.name}"
    if jax.default_backend() != "cpu":
        return "left out: measured on the CPU only"
    try:
        vmas_bridge.check_installed()
    except UserError as error:
        return f"left out: {error}"
    return "measured"


def _with_agents(settings: Settings, agents: int) -> tuple[World, TeamSize]:
    """The preset's world for so many agents and tasks, or as the preset has it where that cannot be played."""
    size = TeamSize(agents, agents)
    try:
        settings.world.check_size(size)
    except UserError:
        size = settings.sizes[0]
    return padded(settings.world, [size]), size


def _random_step(world: World, state: State, key: PRNGKeyArray) -> tuple[State, Array]:
    action_key, step_key = jax.random.split(key)
    transition = world.step(state, random_actions(world, state, action_key), step_key)
    return transition.state, transition.reward


def _random_player(world: World, size: TeamSize, envs: int, with_views: bool) -> Callable[[int], None]:
    def one_team(state: State, key: PRNGKeyArray) -> tuple[State, tuple[Array, Array]]:
        state, reward = _random_step(world, state, key)
        if not with_views:
            return state, (reward, jnp.zeros(()))
        views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
        # Summed, or the compiler would leave out what nobody reads.
        return state, (reward, jnp.sum(views.agents) + jnp.sum(views.tasks))

    @jax.jit
    def many_steps(state: State, key: PRNGKeyArray) -> tuple[State, tuple[Array, Array]]:
        return jax.lax.scan(
            lambda state, key: jax.vmap(one_team)(state, jax.random.split(key, envs)),
            state,
            jax.random.split(key, STEPS_A_CALL),
        )

    @jax.jit
    def start(key: PRNGKeyArray) -> State:
        return jax.vmap(lambda key: world.reset(key, size))(jax.random.split(key, envs))

    first = start(jax.random.key(0))

    def play(steps: int) -> None:
        state, seen = first, None
        for call in range(steps // STEPS_A_CALL):
            state, seen = many_steps(state, jax.random.key(call))
        jax.block_until_ready((state, seen))

    return play


def random_actions(world: World, state: State, key: PRNGKeyArray) -> Actions:
    """Uniform over what every agent may do."""
    if isinstance(world.action_kind, Continuous):
        return jax.random.uniform(key, (world.max_agents, world.action_kind.size), minval=-1.0, maxval=1.0)
    views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
    allowed = views.task_present if views.legal_actions is None else views.legal_actions
    return jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf))


def random_battles(map_name: str, envs: int) -> tuple[Any, Any]:
    """A function (battles, key) -> (battles, what was seen) of some steps, to be compiled, and `envs` battles.

    Random legal actions, the original's observations. Battles begin anew as they end or reach the map's time limit.
    """
    scenario = scenario_of(map_name)
    first = battle.start(scenario)

    def one_step(carry: tuple[battle.BattleState, Array], key: PRNGKeyArray) -> tuple[Any, tuple[Array, Array]]:
        state, step_of_battle = carry
        action_key, order_key = jax.random.split(key)
        actions = choose_at_random(action_key, battle.legal_actions(scenario, state))
        outcome = battle.step(scenario, state, actions, battle.draw_turn_orders(scenario, order_key))
        legal = battle.legal_actions(scenario, outcome.state)
        # Summed, or the compiler would leave out what nobody reads.
        seen = jnp.sum(battle.observations(scenario, outcome.state, legal))
        over = outcome.done | (step_of_battle + 1 >= scenario.map.time_limit)
        fresh = first._replace(lines_dropped=outcome.state.lines_dropped)
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, outcome.state)
        return (state, jnp.where(over, 0, step_of_battle + 1)), (outcome.reward, seen)

    @jax.jit
    def many_steps(carry: Any, key: PRNGKeyArray) -> Any:
        keys = jax.random.split(key, (envs, STEPS_A_CALL_OF_BATTLES))
        return jax.vmap(lambda one, keys: jax.lax.scan(one_step, one, keys))(carry, keys)

    return many_steps, jax.vmap(lambda _: (first, jnp.zeros((), jnp.int32)))(jnp.arange(envs))


def measure_battles(map_name: str, envs: int) -> dict[str, Any]:
    """Steps a second of `envs` battles of SMAClite at once.

    Constraints of collision avoidance that found no room in the map's budget are counted beside it.
    """
    scenario = scenario_of(map_name)
    many_steps, carry = random_battles(map_name, envs)
    with without_compilation_cache():
        started = time.perf_counter()
        program = many_steps.lower(carry, jax.random.key(0)).compile()
        compile_seconds = time.perf_counter() - started
    calls = 0

    def play(steps: int) -> None:
        nonlocal carry, calls
        for _ in range(steps // STEPS_A_CALL_OF_BATTLES):
            carry, _ = program(carry, jax.random.key(calls))
            calls += 1
        jax.block_until_ready(carry)

    play(STEPS_BEFORE_BATTLES_ARE_TIMED)
    steps = _steps_for(play, SECONDS_A_TURN, STEPS_A_CALL_OF_BATTLES)
    best = _best_of_turns({"ours": partial(play, steps)})
    return {
        "map": map_name,
        "envs": envs,
        "agents": scenario.number_of_agents,
        "enemies": scenario.number_of_enemies,
        "steps_per_second": envs * steps / best["ours"],
        "compile_seconds": compile_seconds,
        "steps_played": envs * STEPS_A_CALL_OF_BATTLES * calls,
        "lines_dropped": int(carry[0].lines_dropped.sum()),
        "program_bytes": program_bytes(program),
    }


def program_bytes(program: Any) -> int | None:
    """Memory a compiled program needs at once: what it is given, returns and works with. None where nobody tells."""
    told = program.memory_analysis()
    if told is None:
        return None
    shared = told.alias_size_in_bytes  # given and returned in the same place
    return told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - shared


def _steps_for(play: Callable[[int], None], seconds: float, steps_a_call: int = STEPS_A_CALL) -> int:
    """How many steps fill a turn, in whole calls."""
    play(steps_a_call)  # compiles
    started = time.perf_counter()
    play(steps_a_call)
    return steps_a_call * max(1, round(seconds / (time.perf_counter() - started)))


def _best_of_turns(players: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of each one's best turn."""
    best = dict.fromkeys(players, float("inf"))
    for _ in range(TURNS):
        for name, play in players.items():
            started = time.perf_counter()
            play()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


# --- Training -------------------------------------------------------------------------------------


def compiled_training(settings: Settings, seeds: int) -> tuple[Any, LearnerState, float]:
    """The program that advances that many seeds, their state after one update, and the seconds it took to compile."""
    with without_compilation_cache():
        started = time.perf_counter()
        stacked = stack_seeds([begin_learning(settings, seed) for seed in range(seeds)])
        advance = advance_seeds(build_learner(settings)).lower(stacked, jnp.asarray(1)).compile()  # type: ignore[attr-defined]
        compile_seconds = time.perf_counter() - started
    stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))  # the first call also allocates
    return advance, stacked, compile_seconds


def measure_training(settings: Settings, seeds: int) -> dict[str, Any]:
    """Seconds to compile, and updates a second over a handful of them."""
    advance, stacked, compile_seconds = compiled_training(settings, seeds)
    updates, started = 0, time.perf_counter()
    while updates < 3 or time.perf_counter() - started < SECONDS_OF_UPDATES:
        stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))
        updates += 1
    per_update = (time.perf_counter() - started) / updates
    return {
        "seeds": seeds,
        "compile_seconds": compile_seconds,
        "updates_timed": updates,
        "updates_per_second": 1.0 / per_update,
        "steps_per_second": seeds * settings.ppo.steps_per_update / per_update,
        "program_bytes": program_bytes(advance),
    }


class without_compilation_cache:  # noqa: N801 - reads as a phrase where it is used
    """A program found in the on-disk cache would be timed as compiled in no time."""

    def __enter__(self) -> None:
        self.before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", None)

    def __exit__(self, *_: object) -> None:
        jax.config.update("jax_compilation_cache_dir", self.before)


def measure_parts(settings: Settings) -> dict[str, float]:
    """Seconds of one update of one seed, of its rollout, and of the same number of the world's steps alone.

    The rollout and the world's steps are programs of their own; the epochs are what an update takes beyond its
    rollout, advantages included.
    """
    learner, ppo, world = build_learner(settings), settings.ppo, settings.world
    state = begin_learning(settings, 0)
    stacked = stack_seeds([state])
    advance = advance_seeds(learner)
    sizes = jnp.asarray(learner.sizes)

    @jax.jit
    def rollout(state: LearnerState, key: PRNGKeyArray) -> Any:
        policy, critic = computing_in(ppo.precision, state.weights.policy), state.weights.critic
        return jax.vmap(
            lambda team, key: collect(world, sizes, policy, critic, team, key, ppo.steps, learner.hold, ppo.cut_after)
        )(state.teams, jax.random.split(key, ppo.envs))

    @jax.jit
    def simulation(teams: Any, key: PRNGKeyArray) -> Any:
        keys = jax.random.split(key, (ppo.envs, ppo.steps))
        return jax.vmap(lambda team, keys: jax.lax.scan(partial(_random_step, world), team.world, keys))(teams, keys)

    def one_update() -> None:
        nonlocal stacked
        stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))

    timed: dict[str, Callable[[], Any]] = {
        "update": one_update,
        "rollout": lambda: jax.block_until_ready(rollout(state, jax.random.key(0))),
        "simulation": lambda: jax.block_until_ready(simulation(state.teams, jax.random.key(0))),
    }
    for run in timed.values():
        run()  # compiles
    best = _best_of_turns(timed)
    return {
        "update_seconds": best["update"],
        "rollout_seconds": best["rollout"],
        "epochs_seconds": max(0.0, best["update"] - best["rollout"]),
        "simulation_seconds": best["simulation"],
    }


# --- Decisions ------------------------------------------------------------------------------------


def measure_decisions(settings: Settings) -> list[dict[str, Any]]:
    """`decisions_on_this_core` in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", "diamond_attention.speed"],
        input=json.dumps(to_json(settings)),
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(f"timing decisions failed:\n{answer.stderr}")
    return json.loads(answer.stdout.splitlines()[-1])


def decisions_on_this_core(settings: Settings) -> list[dict[str, Any]]:
    """Milliseconds from one agent's view to its greedy action, for teams of several sizes."""
    results = []
    for agents in TEAM_SIZES:
        world, size = _with_agents(settings, agents)
        policy = jax.jit(lambda key, world=world: build_policy(world, settings.policy, key))(jax.random.key(0))
        state = world.reset(jax.random.key(1), size)
        views = world.views(state, draw_ranks(jax.random.key(2), world.max_agents))
        view = jax.tree.map(lambda x: x[0], views)
        decide = jax.jit(lambda policy, view: policy(view)[0].mode())
        jax.block_until_ready(decide(policy, view))
        times = []
        for _ in range(DECISIONS):
            started = time.perf_counter()
            jax.block_until_ready(decide(policy, view))
            times.append(1e3 * (time.perf_counter() - started))
        times.sort()
        results.append(
            {
                "agents": int(size.agents),
                "tasks": int(size.tasks),
                "median_milliseconds": times[len(times) // 2],
                "percentile_95_milliseconds": times[int(0.95 * len(times))],
            }
        )
        if (size.agents, size.tasks) != (agents, agents):
            break  # this world has only its own sizes
    return results


def versions_of_vmas() -> dict[str, str]:
    found = {}
    for name in ("vmas", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(decisions_on_this_core(from_json(json.load(sys.stdin)))))
