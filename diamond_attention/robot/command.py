"""`diamond agent`: one robot's process. Its options are read without tyro, which a robot does not have."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from diamond_attention.deploy import Agent
from diamond_attention.errors import UserError, shown
from diamond_attention.plain_file import NotPlainError, TooLargeError, read_plain_file
from diamond_attention.ranges import Between, check_number
from diamond_attention.robot.body import Lines
from diamond_attention.robot.faults import Faults
from diamond_attention.robot.message import MOST_AGENTS, Seal
from diamond_attention.robot.process import run_at_rate, run_in_step
from diamond_attention.robot.robot import PATIENCE, Robot
from diamond_attention.robot.senses import sensed_world
from diamond_attention.robot.transports import Transport, address, addresses, from_file, multicast
from diamond_attention.runs.files import write_file

KEY = "DIAMOND_FLEET_KEY"
"""Of the environment: the fleet's key in hexadecimal digits, where no file holds it."""
RATES = Between(0.01, 1000)
RANGES: dict[str, tuple[Between, type, tuple[Any, ...]]] = {
    "number": (Between(0, MOST_AGENTS - 1), int, ()),
    "rate": (RATES, float, ()),
    "patience": (Between(0, 1_000_000), int, ()),
    "unit": (Between(1e-6, 1_000_000), float, ()),
    "epoch": (Between(0, 2**64 - 1), int, (None,)),
    "seed": (Between(0, 2**32 - 1), int, (None,)),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"`diamond agent`: {message}; see `diamond agent --help`.")


def parse_agent(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="diamond agent",
        allow_abbrev=False,
        description="One robot's process: hears its peers, decides at a fixed rate, tells its body what to do. The "
        "body is at the other end of standard input and output (docs/fleet.md).",
    )
    add = parser.add_argument
    add("policy", help="a shipped policy by its name, or the folder of a bundle")
    add("--number", type=int, required=True, help="this robot's own, different from all others of the fleet")
    add("--fleet", default="fleet", help="name of the fleet; others are not listened to")
    add("--key-file", type=Path, help=f"file with the fleet's secret; else {KEY}, in hexadecimal digits")
    add("--multicast", metavar="GROUP:PORT", help="reach all peers on one network, such as 239.192.7.4:7400")
    add("--interface", default="0.0.0.0", help="for --multicast, this robot's own address on that network")
    add("--listen", metavar="HOST:PORT", help="where messages come in, with --peers")
    add("--peers", metavar="HOST:PORT,…", help="reach peers one by one")
    add("--transport", type=Path, metavar="FILE.py", help="or a file of yours with send(datagram), receive(seconds)")
    add("--rate", type=float, default=10.0, help="decisions a second (10); what the policy was trained for")
    add("--in-step", action="store_true", help="no rate: wait for the body at every step, for simulations")
    add("--patience", type=int, default=PATIENCE, help=f"steps after which an unheard peer is absent ({PATIENCE})")
    add("--unit", type=float, default=1.0, help="length of one unit of the policy's world in the body's unit (1)")
    add(
        "--starts",
        type=Path,
        metavar="FILE",
        help="counts this robot's starts; else its clock must not go back",
    )
    add("--epoch", type=int, help="or the number of this start; higher than the last one")
    add("--seed", type=int, help="of its random numbers, for simulations; by default nobody knows them")
    add("--loss", type=float, default=0.0, help="for trying: share of the messages that are lost")
    add("--delay", type=int, default=0, help="for trying: steps by which messages are late")
    options = parser.parse_args(words)
    for name, (between, kind, besides) in RANGES.items():
        check_number(f"--{name}", getattr(options, name), between, kind, besides)
    return options


def agent_command(words: Sequence[str]) -> int:
    options = parse_agent(words)
    faults = Faults(options.loss, options.delay, options.seed or 0)
    seal = Seal(_secret(options.key_file), options.fleet)
    # Different for each robot, and the same in every run.
    seed = None if options.seed is None else options.seed * MOST_AGENTS + options.number
    agent = Agent.load(options.policy, seed)
    world = sensed_world(agent)
    transport = _transport(options)
    if sys.stdin.isatty():
        raise UserError(
            "`diamond agent` reads what its body senses from standard input, which is a terminal; start it from the "
            "program that drives the robot (docs/fleet.md)."
        )
    robot = Robot(
        agent,
        options.number,
        seal,
        epoch=_epoch(options),
        patience=options.patience,
        unit=options.unit,
        faults=faults,
    )
    body = Lines(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        if options.in_step:
            run_in_step(robot, world, transport, body)
        else:
            run_at_rate(robot, world, transport, body, options.rate)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _transport(options: argparse.Namespace) -> Transport:
    named = [name for name in ("multicast", "listen", "transport") if getattr(options, name) is not None]
    if len(named) != 1 or (options.listen is None) != (options.peers is None):
        raise UserError("name one way to reach the peers: --multicast, or --listen with --peers, or --transport.")
    if options.multicast is not None:
        return multicast(address(options.multicast, "--multicast"), options.interface)
    if options.listen is not None:
        peers = [address(each, "--peers") for each in options.peers.split(",") if each]
        return addresses(address(options.listen, "--listen"), peers)
    return from_file(options.transport)


def _secret(file: Path | None) -> bytes:
    if file is not None:
        return _read(file, "--key-file").strip()
    try:
        return bytes.fromhex(os.environ[KEY])
    except KeyError:
        raise UserError(f"the fleet's key is missing; name it with --key-file, or set {KEY}.") from None
    except ValueError:
        raise UserError(f"{KEY} does not hold hexadecimal digits.") from None


def _epoch(options: argparse.Namespace) -> int:
    if options.epoch is not None:
        return options.epoch
    if options.starts is None:
        return time.time_ns()
    text = _read(options.starts, "--starts").strip() if options.starts.exists() else b"0"
    if not text.isdigit() or int(text[:20]) >= 2**64 - 1:
        raise UserError(f"--starts is {shown(str(options.starts))}, and does not hold a number; remove or repair it.")
    epoch = int(text) + 1
    write_file(options.starts, b"%d\n" % epoch)  # before the first message, so that no number is used twice
    return epoch


def _read(file: Path, setting: str) -> bytes:
    try:
        return read_plain_file(file, 1 << 12, follow_links=True)
    except (OSError, NotPlainError, TooLargeError):
        raise UserError(f"{setting} is {shown(str(file))}, which is no small file that can be read.") from None
