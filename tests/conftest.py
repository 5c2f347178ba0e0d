"""Tests run on the CPU and share compiled programs, also with the processes they start."""

import os
import signal
import threading
from pathlib import Path

# Whoever starts the tests in the background hands on that Ctrl-C is ignored; some of them send it to their children.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# The tests compile far longer than they compute, so what they want is programs that compile quickly: these two cut
# compiling to a third. With `XLA_FLAGS= make test` programs are compiled as users get them.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def programs_are_let_go():
    """A worker would otherwise keep every program of every file it ran, eight gigabytes at the end."""
    yield
    jax.clear_caches()
