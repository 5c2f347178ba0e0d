"""Several processes, one run: the first leads and writes, the others compute what it asks for.

They meet in JAX's own collectives (gloo on CPUs, NCCL on GPUs). In a run of one process every function here does
nothing.
"""

import enum
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather

from diamond_attention.errors import UserError, shown
from diamond_attention.runs.environment import installed_version, source_commit
from diamond_attention.runs.signals import Interrupted

FAILED = -1
SIGNS_OF_LOSS = ("gloo", "nccl", "unavailable", "connection", "heartbeat", "deadline_exceeded")
"""What is in the text of a collective's error when another process is gone, in small letters."""
SIGNS_OF_A_FULL_DEVICE = ("resource_exhausted", "out of memory")
LONGEST_REASON = 200


class LostError(Exception):
    """Another process of the run ended, or cannot be reached."""

    def __init__(self, reason: str = "") -> None:
        """`reason`: what the library said, which may know better."""
        super().__init__(
            "another process of this run ended or cannot be reached; what was saved is whole, and `diamond resume` "
            f"goes on with any number of processes{in_brackets(reason)}."
        )


class OutOfStepError(Exception):
    """This process failed where others wait for it. They cannot be told, but see that it ends."""

    def __init__(self, reason: str) -> None:
        full = is_full(reason)
        why = "the device ran out of memory" if full else "the device could not go on"
        what = "train fewer seeds or teams at once, or on more devices" if full else "what was saved is whole"
        super().__init__(f"{why} in the midst of what several processes compute; {what}{in_brackets(reason)}.")


def in_brackets(reason: str) -> str:
    short = " ".join(reason.split())[:LONGEST_REASON]
    return f" ({short})" if short else ""


def is_full(reason: str) -> bool:
    return any(sign in reason.lower() for sign in SIGNS_OF_A_FULL_DEVICE)


class Order(enum.IntEnum):
    BEGIN = 0
    ADVANCE = 1
    FETCH = 2
    END = 3


def leads() -> bool:
    return jax.process_index() == 0


# --- Meeting --------------------------------------------------------------------------------------


@contextmanager
def among_others() -> Iterator[None]:
    """Around whatever waits for other processes."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        text = str(error)
        if jax.process_count() > 1 and not is_full(text) and any(sign in text.lower() for sign in SIGNS_OF_LOSS):
            raise LostError(text) from error
        raise


def gathered(own: np.ndarray) -> np.ndarray:
    """What every process brings, in their order; all bring the same shape."""
    with among_others():
        return process_allgather(own)


def sent(tree: Any, source: int) -> Any:
    """The arrays of the process `source`, in all of them, to the bit; the others' only give the shapes."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    as_bytes = np.concatenate([leaf.reshape(-1).view(np.uint8) for leaf in leaves])
    with among_others():
        received = np.asarray(broadcast_one_to_all(as_bytes, is_source=jax.process_index() == source))
    ends = np.cumsum([leaf.nbytes for leaf in leaves])
    arrays = [
        received[end - leaf.nbytes : end].view(leaf.dtype).reshape(leaf.shape)
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(tree), arrays)


def gathered_texts(text: str) -> list[str]:
    own = np.frombuffer(text.encode(), np.uint8)
    lengths = gathered(np.asarray(len(own)))
    everyone = gathered(np.pad(own, (0, int(max(lengths)) - len(own))))
    return [bytes(each[:length]).decode() for each, length in zip(everyone, lengths, strict=True)]


def sent_text(text: str) -> str:
    """That of the first process."""
    return gathered_texts(text)[0]


def tell(order: Order, number: int = 0, noted: int = 0) -> int:
    """The first process says what comes next. Returns a signal that any of them noted, or 0."""
    return 0 if jax.process_count() == 1 else int(max(gathered(np.array([order, number, noted]))[:, 2]))


def hear(noted: int) -> tuple[Order, int]:
    """What the first process says; `noted` is a signal for all, or 0."""
    order, number, _ = gathered(np.array([0, 0, noted]))[0]
    return Order(int(order)), int(number)


@contextmanager
def leading() -> Iterator[None]:
    """However the first process ends, short of being killed, the others end with it."""
    try:
        yield
    except (LostError, OutOfStepError):
        raise  # they do not listen
    except BaseException as error:
        with suppress(LostError):  # which says less than what happened here
            tell(Order.END, error.signal_number if isinstance(error, Interrupted) else FAILED)
        raise
    tell(Order.END)


# --- Agreeing -------------------------------------------------------------------------------------


def check_agreement(asked: Mapping[str, Any]) -> None:
    """Raises UserError, in every process, unless all run the same versions and were asked for the same."""
    if jax.process_count() == 1:
        return
    _check_equal_devices()
    versions = {name: installed_version(name) for name in ("diamond-attention", "jax", "jaxlib")}
    own = {"versions": {**versions, "the source's commit": source_commit()}, "asked": dict(asked)}
    first, *others = map(json.loads, gathered_texts(json.dumps(own)))
    for index, other in enumerate(others, 1):
        for kind, remedy in (("versions", "install the same"), ("asked", "type the same command for all")):
            for name in {**first[kind], **other[kind]}:
                ours, theirs = first[kind].get(name), other[kind].get(name)
                if ours != theirs:
                    raise UserError(
                        f"{name} is {shown(theirs)} in process {index} and {shown(ours)} in process 0; {remedy}."
                    )


def choose_devices(asked: int | str | None) -> tuple[jax.Device, ...]:
    """The devices to train on: so many of each process, or all; none where it is the one that JAX computes on."""
    _check_devices(asked)
    if asked is None and jax.process_count() == 1:
        return ()
    of_process: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        of_process.setdefault(device.process_index, []).append(device)
    each = len(of_process[0])
    wanted = asked if isinstance(asked, int) else each
    if wanted > each:
        kind = jax.devices()[0].platform
        raise UserError(
            f"--devices is {shown(asked)}, and JAX finds {each} here ({kind}); name at most as many, or all."
        )
    if wanted == 1 and jax.process_count() == 1:
        return ()
    return tuple(device for index in sorted(of_process) for device in of_process[index][:wanted])


def _check_equal_devices() -> None:
    """What processes gather from each other goes over all their devices, and needs as many of each."""
    numbers = Counter(device.process_index for device in jax.devices())
    for index, number in sorted(numbers.items()):
        if number != numbers[0]:
            raise UserError(
                f"process {index} has {number} device(s) and process 0 has {numbers[0]}; let all see as many, "
                "for example with CUDA_VISIBLE_DEVICES."
            )


def _check_devices(asked: int | str | None) -> None:
    """Raises UserError where that is no number of devices; whether there are so many is another question."""
    number = isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1
    if not (number or asked is None or asked == "all"):
        raise UserError(f"--devices is {shown(asked)}; it must be a whole number from 1, or all.")
