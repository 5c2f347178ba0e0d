"""The process of one robot, at a fixed rate or in step with a world that waits for it.

At a fixed rate a step is: sense, send, listen for half of it, decide, act, wait for the next. Half, because then any
two robots decide on the same pair of numbers, wherever their steps lie against each other. Let A begin at a, and B at
b, within the same step after a. If b is less than half a step later, A hears it before it decides, and B decides
before A speaks again: both decide on a and b. If it is more, A decides before b, on what B said a step earlier, and
when B decided on that it had just heard a.
"""

import time
from typing import Any

from diamond_attention.errors import UserError, shown
from diamond_attention.robot.body import GoneError, Lines, senses_of
from diamond_attention.robot.robot import Robot
from diamond_attention.robot.senses import SensedWorld
from diamond_attention.robot.transports import Transport

LISTENED = 0.5
"""Share of a step."""
MOST_AT_ONCE = 4096
"""Datagrams that are read in one step: a flood must not keep a robot from deciding."""
LONGEST_WAIT = 5.0
"""Seconds for which a robot in step waits for a datagram that was sent to it."""
MISSED, SENT, UNDELIVERED = "deadlines missed", "packets sent", "undelivered"


def run_at_rate(robot: Robot, world: SensedWorld, transport: Transport, body: Lines, rate: float) -> None:
    """Until the body is gone."""
    period = 1.0 / rate
    try:
        senses = senses_of(body.next(), world)
        due = time.monotonic()
        while True:
            sensed = body.newest(until=due)
            senses = senses if sensed is None else senses_of(sensed, world)
            robot.counts[SENT] += transport.send(robot.speak(senses))
            for _ in range(MOST_AT_ONCE):
                # Also a robot that is late reads what has arrived.
                datagram = transport.receive(max(0.0, due + LISTENED * period - time.monotonic()))
                if datagram is None:
                    break
                robot.hear(datagram)
            action = robot.decide()
            due += period
            late = time.monotonic() - due
            if late > 0:  # the steps that are over are left out, so that it does not hurry after them
                missed = 1 + int(late / period)
                robot.counts[MISSED] += missed
                due += (missed - 1) * period
            body.write(_report(robot, action))
    except GoneError:
        pass


def run_in_step(robot: Robot, world: SensedWorld, transport: Transport, body: Lines) -> None:
    """The body says when. First the robot says that it listens. Then comes a line with senses, answered by the step
    that was sent; then a line {"heard": [[agent, step], …]} with what all others have sent, answered by the action
    once all of it is here.
    """
    try:
        body.write({"listening": robot.number})
        while True:
            robot_senses = senses_of(body.next(), world)
            robot.counts[SENT] += transport.send(robot.speak(robot_senses))
            body.write({"sent": robot.step})
            missing = _messages(body.next().get("heard", []))
            until = time.monotonic() + LONGEST_WAIT
            while missing and time.monotonic() < until:
                datagram = transport.receive(until - time.monotonic())
                said = None if datagram is None else robot.hear(datagram)
                if said is not None:
                    missing.discard((said.agent, said.step))
            robot.counts[UNDELIVERED] += len(missing)
            body.write(_report(robot, robot.decide()))
    except GoneError:
        pass


def _messages(heard: Any) -> set[tuple[int, int]]:
    """Each by its agent and that agent's step."""
    listed = isinstance(heard, list) and all(isinstance(each, list) and len(each) == 2 for each in heard)
    if not listed or not all(type(number) is int for each in heard for number in each):
        raise UserError(f'the body\'s "heard" is {shown(heard)}; it must be pairs of an agent and its step.')
    return {(agent, step) for agent, step in heard}


def _report(robot: Robot, action: object) -> dict[str, object]:
    plain = action.tolist() if hasattr(action, "tolist") else action
    return {"action": plain, "step": robot.step, "rank": robot.rank, "counts": dict(robot.counts)}
