"""How datagrams get from robot to robot. A transport is two functions, `send` and `receive`:

    send(datagram)       to all peers; how many packets it put on the network
    receive(seconds)     a datagram of somebody, or None if none came in that time

Datagrams may be lost, repeated and reordered, and come from anybody. `multicast` and `addresses` are UDP; a file of
your own with two such functions is a third (docs/fleet.md has one for MQTT).
"""

import importlib.util
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from diamond_attention.errors import UserError, shown
from diamond_attention.robot.message import LARGEST_MESSAGE

Address = tuple[str, int]
RECEIVE_BUFFER = 1 << 20
"""Bytes that wait in the kernel while a robot decides; whatever is more is lost."""


class Transport(NamedTuple):
    send: Callable[[bytes], int]
    receive: Callable[[float], bytes | None]


def address(text: str, setting: str) -> Address:
    """HOST:PORT; names are looked up once, here."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        raise UserError(f"{setting} is {shown(text)}; it must be HOST:PORT, such as 10.0.0.7:7400.")
    try:
        found = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        raise UserError(f"{setting} is {shown(text)}, and nobody here knows the host {shown(host)}.") from None
    return found[0][4][0], found[0][4][1]  # type: ignore[return-value]


def multicast(group: Address, interface: str) -> Transport:
    """One packet for everybody on one network. `interface` is this robot's own address there."""
    opened = _socket()
    try:
        if not 224 <= int(group[0].partition(".")[0]) <= 239:
            raise UserError(f"--multicast is {group[0]}:{group[1]}; multicast addresses begin with 224 to 239.")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several robots on one machine
        opened.bind(group)
        own = socket.inet_aton(interface)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + own)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack("b", 1))
    except OSError as error:
        opened.close()
        raise UserError(
            f"--multicast {group[0]}:{group[1]} cannot be used on --interface {interface} "
            f"({error.strerror or error})."
        ) from None
    return _over(opened, [group])


def addresses(listen: Address, peers: Sequence[Address]) -> Transport:
    """A packet for each peer. A peer that is not there costs a packet and nothing else."""
    opened = _socket()
    try:
        opened.bind(listen)
    except OSError as error:
        opened.close()
        raise UserError(f"--listen {listen[0]}:{listen[1]} cannot be used ({error.strerror}).") from None
    return _over(opened, peers)


def from_file(file: Path) -> Transport:
    """A Python file of your own that defines both functions."""
    if not file.is_file():
        raise UserError(f"--transport is {shown(str(file))}, and there is no such file.")
    specification = importlib.util.spec_from_file_location(file.stem, file)
    if specification is None or specification.loader is None:
        raise UserError(f"--transport is {shown(str(file))}; it must be a Python file.")
    module = importlib.util.module_from_spec(specification)
    with _said_in_one_sentence(file, "it cannot be loaded"):
        specification.loader.exec_module(module)
    found = [getattr(module, name, None) for name in Transport._fields]
    if not all(map(callable, found)):
        raise UserError(f"{file} must define send(datagram) and receive(seconds).")
    its_send, its_receive = found

    def send(datagram: bytes) -> int:
        with _said_in_one_sentence(file, "its send failed"):
            packets = its_send(datagram)  # type: ignore[misc]
        if type(packets) is not int:
            raise UserError(f"--transport is {shown(str(file))}; its send must return how many packets it sent.")
        return packets

    def receive(seconds: float) -> bytes | None:
        with _said_in_one_sentence(file, "its receive failed"):
            datagram = its_receive(seconds)  # type: ignore[misc]
        if datagram is not None and not isinstance(datagram, bytes):
            raise UserError(f"--transport is {shown(str(file))}; its receive must return bytes or None.")
        return datagram

    return Transport(send, receive)


@contextmanager
def _said_in_one_sentence(file: Path, what: str) -> Iterator[None]:
    """Whatever is wrong with somebody's own file, such as a broker that is not there."""
    try:
        yield
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"--transport is {shown(str(file))}, and {what} ({told}).") from None


def _socket() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return opened


def _over(opened: socket.socket, receivers: Sequence[Address]) -> Transport:
    def send(datagram: bytes) -> int:
        for receiver in receivers:
            # A network that is down, or a buffer that is full: lost, as it may be anywhere on the way.
            with suppress(OSError):
                opened.sendto(datagram, receiver)
        return len(receivers)

    def receive(seconds: float) -> bytes | None:
        ready, _, _ = select.select([opened], [], [], max(0.0, seconds))
        if not ready:
            return None
        try:
            return opened.recv(LARGEST_MESSAGE + 1)  # of a longer one enough to see that it is
        except OSError:  # that a peer's port is closed is told here
            return None

    return Transport(send, receive)
