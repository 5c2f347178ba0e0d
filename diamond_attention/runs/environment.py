"""What a run ran on: versions, commit, device and command, for whoever wants to run it again."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax


def describe_environment() -> dict[str, Any]:
    """Versions, commit and device: what a reader needs to run it again."""
    device = jax.devices()[0]
    names = ("diamond-attention", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_cores": len(os.sched_getaffinity(0)),
        "versions": {name: installed_version(name) for name in names},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "commit": source_commit(),
        "command": ["diamond", *sys.argv[1:]],
    }


def installed_version(name: str) -> str:
    """Of a package; a checkout runs without being installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def source_commit() -> str:
    """The commit of the package's own checkout, with + if it was changed since; "unknown" if installed."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
        return answer.stdout.strip()

    try:
        package = str(Path(__file__).parents[1])
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", package) else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
