"""The terminal a command runs in: what is said on it, a reader who left, and Ctrl-C."""

import _thread
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diamond_attention.errors import Notice, printable

LONGEST = 300
"""Characters of what a person is told; a long name is cut in its middle."""


def tell(sentence: object) -> None:
    text = "diamond: " + printable(" ".join(str(sentence).split()))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 3 :]}"
    print(text, file=sys.stderr, flush=True)


def show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, Notice):
        tell(message)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


def unheard(error: OSError) -> int:
    """What was printed went nowhere: the reader, such as `head`, had seen enough, or the disk behind it is full."""
    # So that Python does not try once more, and complain, when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    tell(f"what was printed could not be written ({error.strerror}).")
    return 2


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """Ctrl-C ends a command wherever it falls.

    JAX runs Python code of its own while Python collects garbage; a KeyboardInterrupt that is raised there is
    dropped. Python tells `sys.unraisablehook` of it, and it is sent again.
    """
    before = sys.unraisablehook

    def hear(dropped: Any) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            # From another thread, a moment later: here it would be dropped again.
            threading.Timer(0.02, _thread.interrupt_main).start()
        else:
            before(dropped)

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before
