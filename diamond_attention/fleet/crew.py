"""The robots of a fleet: processes of this machine, or, for measurements, all in this one with simulated packets.

Both run the very same messages, tables and decisions (`robot/`); what differs is what carries the packets.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from diamond_attention.deploy import Agent
from diamond_attention.errors import UserError
from diamond_attention.plain_file import read_plain_file
from diamond_attention.robot.body import GoneError, Lines
from diamond_attention.robot.command import KEY
from diamond_attention.robot.faults import Faults
from diamond_attention.robot.message import MOST_AGENTS, Seal
from diamond_attention.robot.process import SENT
from diamond_attention.robot.robot import Robot
from diamond_attention.robot.senses import Senses
from diamond_attention.terminal import tell

SILENT = 60.0
"""Seconds after which a process that does not answer counts as dead."""
FAREWELL = 3.0
"""Seconds that processes have to end once their body is gone."""
Actions = dict[int, Any]


class Orders(NamedTuple):
    """What every robot of the fleet is told."""

    policy: str
    faults: Faults
    patience: int
    seed: int


class Crew(Protocol):
    joined: int
    """How many have joined, the next one's number."""
    late: int
    """Steps of the world that came too late, where it goes by a clock."""

    def join(self, number: int) -> None: ...

    def has_begun(self, number: int) -> bool:
        """Whether it acts at the next step: a process that goes by its own clock must start before."""
        ...

    def kill(self, number: int) -> None: ...

    def actions(self, senses: Mapping[int, Senses]) -> Actions:
        """What everybody does now, None of who has just begun. Who is not in it, though it was asked, is gone."""
        ...

    def counts(self) -> Counter[str]: ...

    def memory(self) -> float | None:
        """MB that the largest robot's process holds now; None where robots have no processes."""
        ...

    def close(self) -> None: ...


# --- In one process -------------------------------------------------------------------------------


class Simulated:
    """Every packet reaches everybody at once; what is lost and late is decided where it is received, as ever."""

    def __init__(self, orders: Orders, robot: Callable[..., Robot] = Robot):
        self._orders, self._make = orders, robot
        self._seal = Seal(bytes(32), "simulated")
        self._robots: dict[int, Robot] = {}
        self._gone: Counter[str] = Counter()
        self.joined = self.late = 0

    def join(self, number: int) -> None:
        self.joined += 1
        agent = Agent.load(self._orders.policy, self._orders.seed * MOST_AGENTS + number)
        patience, faults = self._orders.patience, self._orders.faults
        self._robots[number] = self._make(agent, number, self._seal, epoch=1, patience=patience, faults=faults)

    def has_begun(self, number: int) -> bool:
        return True

    def kill(self, number: int) -> None:
        self._gone += self._robots.pop(number).counts

    def actions(self, senses: Mapping[int, Senses]) -> Actions:
        packets = [(number, self._robots[number].speak(sensed)) for number, sensed in senses.items()]
        for number, robot in self._robots.items():
            robot.counts[SENT] += 1
            for sender, packet in packets:
                if sender != number:
                    robot.hear(packet)
        return {number: robot.decide() for number, robot in self._robots.items()}

    def counts(self) -> Counter[str]:
        return sum((robot.counts for robot in self._robots.values()), self._gone)

    def memory(self) -> None:
        return None

    def close(self) -> None:
        pass


# --- A process for each ---------------------------------------------------------------------------


class _Child:
    def __init__(self, number: int, words: Sequence[str], key: str):
        self.number = number
        environment = {**os.environ, KEY: key, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "diamond_attention", "agent", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0,  # Ctrl-C is heard by the fleet, which ends them
        )
        self._pipes = self.process.stdin, self.process.stdout
        self._lines = Lines(self.process.stdout.fileno(), self.process.stdin.fileno())  # type: ignore[union-attr]
        self.counts: Counter[str] = Counter()
        self.action: Any = None
        """What it last said; at first nothing."""
        self.listens = False
        self._spoke = time.monotonic()

    def wait(self) -> None:
        """Until it hears what others send."""
        if not self.listens:
            self.answer()
            self.listens = True

    def tell(self, values: dict[str, Any]) -> None:
        self._lines.write(values, SILENT)

    def answer(self) -> dict[str, Any]:
        return self._lines.next(SILENT)

    def act(self) -> None:
        self._take(self.answer())

    def tell_if_it_reads(self, values: dict[str, Any]) -> None:
        """What it senses by now, which is worth nothing later: a process that hangs must not stop the world."""
        self._lines.offer(values)

    def act_as_last_said(self) -> None:
        report = self._lines.newest(0.0)
        if report is not None:
            self._take(report)
        elif time.monotonic() - self._spoke > SILENT:
            raise TimeoutError

    def _take(self, report: Mapping[str, Any]) -> None:
        self._spoke = time.monotonic()
        self.action = report["action"]
        self.counts = Counter(report["counts"])

    def end(self) -> None:
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


class Processes:
    """With a rate all go by their own clocks; without one, everybody waits for everybody at every step."""

    def __init__(self, orders: Orders, way: Callable[[int], list[str]], rate: float | None):
        self._orders, self._way, self._rate = orders, way, rate
        self._key = os.urandom(32).hex()
        self._children: dict[int, _Child] = {}
        self._gone: Counter[str] = Counter()
        self._due: float | None = None
        self.joined = self.late = 0

    def join(self, number: int) -> None:
        self.joined += 1
        orders = self._orders
        words = [orders.policy, "--number", number, *self._way(number), "--epoch", 1, "--seed", orders.seed]
        words += ["--patience", orders.patience, "--loss", orders.faults.loss, "--delay", orders.faults.delay]
        words += ["--in-step"] if self._rate is None else ["--rate", self._rate]
        self._children[number] = _Child(number, list(map(str, words)), self._key)

    def has_begun(self, number: int) -> bool:
        """In step it is waited for, as all are before the first step."""
        return self._rate is None or self._due is None or self._children[number].action is not None

    def kill(self, number: int) -> None:
        child = self._children.pop(number)
        child.process.kill()
        child.process.wait()
        child.end()
        self._gone += child.counts

    def actions(self, senses: Mapping[int, Senses]) -> Actions:
        if self._rate is None:
            for number in senses:
                self._ask(number, _Child.wait)
        for number, sensed in senses.items():
            told = _Child.tell if self._rate is None else _Child.tell_if_it_reads
            self._ask(number, told, sensed._asdict())
        if self._rate is None:
            self._one_step()
        else:
            self._until_due(1.0 / self._rate)
        return {number: child.action for number, child in self._children.items()}

    def _one_step(self) -> None:
        sent = []
        for number in list(self._children):
            said = self._ask(number, _Child.answer)
            if said is not None:
                sent.append((number, said["sent"]))
        for number in list(self._children):
            heard = [each for each in sent if each[0] != number]
            self._ask(number, _Child.tell, {"heard": heard})
        for number in list(self._children):
            self._ask(number, _Child.act)

    def _until_due(self, period: float) -> None:
        if self._due is None:  # everybody is waited for once, so that starting is not counted as being late
            for number in list(self._children):
                self._ask(number, _Child.act)
            self._due = time.monotonic()
        self._due += period
        wait = self._due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        else:
            missed = 1 + int(-wait / period)
            self.late += missed
            self._due += (missed - 1) * period
        for number in list(self._children):
            self._ask(number, _Child.act_as_last_said)

    def _ask(self, number: int, what: Callable[..., Any], *told: Any) -> Any:
        """None, and the child is gone, if it has ended or does not answer."""
        child = self._children.get(number)
        if child is None:
            return None
        try:
            return what(child, *told)
        except GoneError:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(FAREWELL)
            status = child.process.poll()
            how = "closed its pipe" if status is None else _ended(status)
        except TimeoutError:
            how = f"did not answer for {SILENT:g} s and was ended"
        self.kill(number)
        tell(f"agent {number} {how}; the others go on without it.")
        return None

    def counts(self) -> Counter[str]:
        return sum((child.counts for child in self._children.values()), self._gone)

    def memory(self) -> float:
        return max((resident_mb(child.process.pid) for child in self._children.values()), default=0.0)

    def processes(self) -> dict[int, int]:
        """The process of each agent."""
        return {number: child.process.pid for number, child in self._children.items()}

    def close(self) -> None:
        for child in self._children.values():
            child.end()
        until = time.monotonic() + FAREWELL
        for child in self._children.values():
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._gone += sum((child.counts for child in self._children.values()), Counter())
        self._children.clear()


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def resident_mb(process: int) -> float:
    try:
        status = read_plain_file(f"/proc/{process}/status", 1 << 16, follow_links=True).splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith(b"VmRSS")) / 1024
    except (OSError, StopIteration):
        return 0.0


def check_policy(policy: str) -> Agent:
    """Raises UserError unless each robot of a fleet can decide with it alone."""
    agent = Agent.load(policy)
    if agent.together or agent.asks_number:
        raise UserError(
            f"{agent.name} is a policy of the kind {agent.kind}, which does not decide on one robot's view alone; a "
            "fleet needs one that does, such as spread-floor."
        )
    return agent
