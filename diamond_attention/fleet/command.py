"""`diamond fleet`: a world, a process for each robot, and a network as bad as you like."""

import json
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from diamond_attention.errors import UserError, shown
from diamond_attention.fleet.crew import Crew, Orders, Processes, Simulated, check_policy
from diamond_attention.fleet.field import Field
from diamond_attention.fleet.play import play
from diamond_attention.ranges import Between
from diamond_attention.robot.command import RATES
from diamond_attention.robot.faults import Faults
from diamond_attention.robot.peers import HEARD
from diamond_attention.robot.process import MISSED, SENT, UNDELIVERED
from diamond_attention.robot.robot import LOST, PATIENCE
from diamond_attention.robot.senses import sensed_world
from diamond_attention.runs.folder import find_runs
from diamond_attention.runs.progress import choose_progress
from diamond_attention.runs.seeds import SEED
from diamond_attention.worlds.contract import World

MOST = 256
"""Processes on one machine."""
LOOPBACK, GROUP = "127.0.0.1", "239.192.7.4"


@dataclass(frozen=True)
class FleetOptions:
    """Play a trained policy with one process for each agent, which hear of each other by packets alone.

    diamond fleet spread --agents 8 --loss 0.3 --delay 2 --join 100 --kill 150 --steps 400. Numbers of delay, join and
    kill are steps. Without --rate the world waits for everybody at each step, so that the score is the same on a busy
    machine.
    """

    policy: tyro.conf.Positional[str]
    """A shipped policy by its name, or the folder of a bundle (`diamond export`)."""
    agents: Annotated[int, Between(1, MOST)] = 8
    """At the start."""
    tasks: Annotated[int | None, Between(1, MOST)] = None
    """Landmarks, foods or jobs; by default as many as agents."""
    steps: Annotated[int, Between(1, 10_000_000)] = 400
    """Of the world. An episode that is over, also by its time limit, begins anew."""
    loss: Annotated[float, Between(0, 1)] = 0.0
    """Share of the messages that are lost, for each receiver on its own."""
    delay: Annotated[int, Between(0, 1000)] = 0
    """Steps by which messages are late."""
    join: tuple[int, ...] = ()
    """Steps at which one more agent comes."""
    kill: tuple[int, ...] = ()
    """Steps at which the process of one agent is killed, that with the lowest number."""
    patience: Annotated[int, Between(0, 1_000_000)] = PATIENCE
    """Steps after which a peer that was not heard is absent."""
    rate: Annotated[float | None, RATES] = None
    """Steps a second, by the clock of every process; by default all wait for all."""
    point_to_point: bool = False
    """A packet for each peer instead of one multicast."""
    transport: Path | None = None
    """Or a file of your own with send(datagram) and receive(seconds), such as the one for MQTT in docs/fleet.md."""
    simulated: bool = False
    """No processes and no network: the same robots in this process, their packets handed over."""
    seed: Annotated[int, SEED] = 0
    """Of the start, of the robots' numbers, and of which messages are lost."""
    json: bool = False
    """Print JSON instead of lines."""
    quiet: bool = False
    """Say nothing but what came of it."""


def fleet(options: FleetOptions) -> int:
    field = Field(
        world_of(options.policy),
        options.agents,
        len(options.join),
        options.agents if options.tasks is None else options.tasks,
        options.steps,
        options.seed,
    )
    for name, steps in (("join", options.join), ("kill", options.kill)):
        if any(not 0 <= step < options.steps for step in steps):
            raise UserError(
                f"--{name} is {' '.join(map(str, steps))}; each must be a step from 0 to {options.steps - 1}."
            )
    crew = crew_of(options)
    try:
        found = play(field, crew, options.join, options.kill, choose_progress(options.quiet or options.json))
    finally:
        crew.close()
    print(json.dumps(found, indent=2) if options.json else summary(field.world, options, found))
    return 128 + signal.SIGINT if found["stopped"] else 0


def world_of(policy: str) -> World:
    """That it was trained in, as it is scored. Says what is wrong with a policy before anything is started."""
    sensed_world(check_policy(policy))
    (run,) = find_runs([policy])
    return run.settings.world.as_scored()


def crew_of(options: FleetOptions) -> Crew:
    faults = Faults(options.loss, options.delay, options.seed)
    orders = Orders(options.policy, faults, options.patience, options.seed)
    if not options.simulated:
        return Processes(orders, ways(options), options.rate)
    if options.rate is not None or options.point_to_point or options.transport is not None:
        raise UserError("--simulated has neither --rate nor --point-to-point nor --transport; leave them out.")
    return Simulated(orders)


def ways(options: FleetOptions) -> Callable[[int], list[str]]:
    """How each agent reaches its peers on this machine."""
    agents, point_to_point, file = options.agents + len(options.join), options.point_to_point, options.transport
    if file is not None:
        if point_to_point or not file.is_file():
            wrong = "--point-to-point says another" if point_to_point else "there is no such file"
            raise UserError(f"--transport is {shown(str(file))}, and {wrong}; name one way to reach the peers.")
        return lambda number: ["--transport", str(file)]
    # All are open at once, so that they differ.
    opened = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(agents if point_to_point else 1)]
    for each in opened:
        each.bind((LOOPBACK, 0))
    ports = [each.getsockname()[1] for each in opened]
    for each in opened:
        each.close()

    def one_by_one(number: int) -> list[str]:
        peers = ",".join(f"{LOOPBACK}:{port}" for other, port in enumerate(ports) if other != number)
        return ["--listen", f"{LOOPBACK}:{ports[number]}", "--peers", peers]

    def together(number: int) -> list[str]:
        return ["--multicast", f"{GROUP}:{ports[0]}", "--interface", LOOPBACK]

    return one_by_one if point_to_point else together


def summary(world: World, options: FleetOptions, found: dict[str, Any]) -> str:
    scoring, messages = world.scoring, found["messages"]
    episodes, unfinished = found["episodes"], found["steps of the unfinished episode"]
    of_what = f", of {episodes} episodes" if episodes > 1 else ""
    if episodes and unfinished:
        of_what += f", without {unfinished} steps of one that was not over"
    elif unfinished:
        of_what = f", after {unfinished} of an episode's {world.time_limit} steps"
    stopped = f", stopped after {found['steps']} steps" if found["stopped"] else ""
    lines = [f"{scoring.name}: {found['score']:.{scoring.decimals}f}{of_what}{stopped}"]
    if "success" in found:
        lines.append(
            f"covered: {found['covered']:.3f} of the {world.task}s, over all steps; success: {found['success']:.2f}, "
            "the share of the last quarter's steps with as many covered as there are robots for"
        )
    others = [name for name in scoring.measures if name != "covered" and name != scoring.score]
    lines += [f"{name}: {found[name]:.3f}" for name in others]
    told = (SENT, HEARD, LOST, MISSED, UNDELIVERED)
    refused = {name: number for name, number in messages.items() if number and name not in told}
    lines.append(
        f"packets: {messages.get(SENT, 0):,} sent, {messages.get(HEARD, 0):,} heard, {messages.get(LOST, 0):,} lost "
        f"as asked, {messages.get(UNDELIVERED, 0):,} not delivered"
        + "".join(f", {number:,} {name}" for name, number in refused.items())
    )
    if options.rate is not None:
        lines.append(
            f"deadlines missed: {messages.get(MISSED, 0):,} of the robots', "
            f"{found['deadlines missed by the world']:,} of the world's"
        )
    return "\n".join(lines)
