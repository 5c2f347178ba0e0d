"""Several processes, one run: how one joins the others, and who says how it ended.

When another process of the group dies, or does not come, JAX ends this one on the spot, with pages of text. So the
work is done in a process of its own, and the one that was started watches it: it passes on Ctrl-C and SIGTERM, keeps
back what JAX's libraries write, and says in one sentence what happened.
"""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NamedTuple

import jax

from diamond_attention.command_options import DeviceOptions
from diamond_attention.errors import UserError, shown
from diamond_attention.runs.processes import LostError
from diamond_attention.runs.signals import relay, signals_noted
from diamond_attention.terminal import tell

WATCHED = "DIAMOND_WATCHED"
"""Set for a process that is watched: the descriptor through which its watcher hears of it."""
JOINED, STATUS = b"diamond: joined\n", b"diamond: status "
HEARTBEAT = 30
"""Seconds without a sign of life after which a process counts as dead. On CPUs, where a broken connection is noticed
at once, it is only for machines that vanish."""
FAREWELL = 10
"""Seconds that processes which end wait for each other."""
KEPT = 1 << 16
"""Bytes of what the libraries last wrote."""


class ProcessGroup(NamedTuple):
    """The processes of a run, as it was typed; without an address, JAX asks whoever started them."""

    address: str | None
    processes: int | None
    process: int | None
    wait: int


# --- What was typed -------------------------------------------------------------------------------


def devices_asked(text: str | None) -> int | str | None:
    """A number, "all" or None; whether there are so many is seen when JAX has looked."""
    if text is None or text == "all":
        return text
    if not text.isdecimal() or not 1 <= len(text) <= 6 or int(text) < 1:
        raise UserError(f"--devices is {shown(text)}; it must be a whole number from 1, or all.")
    return int(text)


def group_asked(options: DeviceOptions) -> ProcessGroup | None:
    """None where this process is the only one."""
    address, processes, process = options.coordinator, options.processes, options.process
    if address is None or address == "auto":
        for name, value in (("--processes", processes), ("--process", process)):
            if value is not None:
                raise UserError(f"{name} is {value}, which goes with --coordinator HOST:PORT; name that too.")
        return None if address is None else ProcessGroup(None, None, None, options.wait)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        raise UserError(f"--coordinator is {shown(address)}; it must be HOST:PORT of the first process, or auto.")
    if processes is None or process is None:
        missing = "--processes" if processes is None else "--process"
        raise UserError(f"--coordinator is {shown(address)}, and {missing} is missing; name it.")
    if process >= processes:
        raise UserError(f"--process is {process} and --processes is {processes}; they count from 0.")
    return ProcessGroup(address, processes, process, options.wait)


# --- The one that works ---------------------------------------------------------------------------


def join(group: ProcessGroup) -> None:
    """Meets the other processes; before anything is computed."""
    if group.address is not None and group.process == 0:
        _check_port(group.address)
    # JAX would take SIGTERM for itself; our loop agrees on when to stop.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            group.address,
            group.processes,
            group.process,
            initialization_timeout=group.wait,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=FAREWELL,
        )
        jax.devices()  # the processes tell each other what they have
    except ValueError:  # of an address and a number that JAX was to find out
        raise UserError(
            "--coordinator is auto, and JAX finds no SLURM, Open MPI or Kubernetes that started this process; name "
            "HOST:PORT, --processes and --process."
        ) from None
    except RuntimeError as error:  # JaxRuntimeError is one
        raise UserError(f"{_cannot_meet(group)} ({' '.join(str(error).split())[:80]}).") from None
    if is_watched():
        os.write(1, JOINED)


def _check_port(address: str) -> None:
    """Raises UserError if somebody else has it: JAX would crash, or two groups would meet in one place."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what has ended is not in the way
        try:
            attempt.bind(("", int(address.rpartition(":")[2])))
        except OSError as error:
            why = (error.strerror or "it is not free").lower()
            raise UserError(
                f"--coordinator is {address}, and the first process cannot have that port here ({why}); name another "
                "port, the same for all."
            ) from None


def _cannot_meet(group: ProcessGroup) -> str:
    return (
        f"--coordinator is {group.address or 'auto'}, and the {group.processes or 'other'} processes did not meet "
        f"there within --wait {group.wait} s; start all of them, and see that the address can be reached"
    )


def is_watched() -> bool:
    return WATCHED in os.environ


@contextmanager
def watched() -> Iterator[Callable[[int], None]]:
    """Around all that a command does. In a process that is watched, what is said by Python goes where it always goes,
    and what is written by the libraries below it to the watcher. Yields how to report the exit status.
    """
    if not is_watched():
        yield lambda status: None
        return
    watcher = int(os.environ[WATCHED])
    # SLURM and others signal every process there is; what counts is what reached the watcher.
    signals_noted.only_relayed = True
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_listen, daemon=True).start()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        apart = os.dup(stream.fileno())
        os.dup2(watcher, stream.fileno())
        again = os.fdopen(apart, "w", buffering=1, errors="backslashreplace")
        setattr(sys, "stdout" if stream is sys.stdout else "stderr", again)
    status = 1

    def report(of_the_command: int) -> None:
        nonlocal status
        status = of_the_command

    try:
        yield report
    finally:
        os.write(watcher, STATUS + str(status).encode() + b"\n")


def _listen() -> None:
    """Signals come as bytes from the watcher; when it is gone, so is the one that it watched."""
    while heard := os.read(0, 1):
        relay(heard[0])
    os._exit(1)


# --- The one that watches -------------------------------------------------------------------------


def watch(group: ProcessGroup) -> int:
    """Runs this command again in a process of its own; returns its exit status, having said what it could not."""
    reading, writing = os.pipe()
    command = [sys.executable, *sys.orig_argv[1:]]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    working = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        pass_fds=[writing],
        env={**os.environ, WATCHED: str(writing)},
        process_group=0,  # Ctrl-C on a terminal reaches the watcher alone
    )
    os.close(writing)

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(working.stdin.fileno(), bytes([number]))  # type: ignore[union-attr]

    for number in before:
        signal.signal(number, pass_on)
    try:
        said = _said_by(working, reading)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
    return _status_of(working.returncode, said, group)


def _said_by(working: subprocess.Popen, reading: int) -> bytes:
    """What the libraries wrote, and our own marks, until the process has ended."""
    said, marks, until = b"", b"", float("inf")
    while True:
        ready, _, _ = select.select([reading], [], [], 1.0)
        data = os.read(reading, KEPT) if ready else b""
        if ready and not data:
            break
        said = (said + data)[-KEPT:]
        marks += JOINED if JOINED in said and JOINED not in marks else b""
        if STATUS in said:
            until = min(until, time.monotonic() + 2 * FAREWELL)
        if time.monotonic() > until:  # it has said its status, and waits for somebody who does not come
            working.kill()
            break
    working.wait()
    return marks + said


def _status_of(returncode: int, said: bytes, group: ProcessGroup) -> int:
    if reported := re.findall(re.escape(STATUS) + rb"(\d+)\n", said):
        return int(reported[-1])  # it has said what there is to say; how JAX then took its leave does not matter
    if returncode >= 0:
        return returncode
    ended_by = signal.Signals(-returncode)
    if ended_by != signal.SIGABRT or b"JAX distributed service" not in said:
        tell(f"the training process was ended by {ended_by.name}; what was saved is whole.")
        if ended_by in (signal.SIGABRT, signal.SIGSEGV):
            sys.stderr.write(said.decode(errors="backslashreplace"))
        return 128 + ended_by
    if JOINED not in said:
        tell(f"{_cannot_meet(group)}.")
        return 2
    silent = re.search(rb"[Tt]ask (\d+) heartbeat timeout", said)
    which = f"process {int(silent[1])} gave no sign of life: " if silent else ""
    tell(f"{which}{LostError()}")
    return 1
