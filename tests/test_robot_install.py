"""The install for robots, in an empty environment that has numpy and nothing else."""

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from diamond_attention.deploy import Agent, spread_view

ROOT = Path(__file__).parents[1]
SCRIPT = """
import json, sys
from diamond_attention.deploy import Agent, spread_view

view = spread_view([0.1, 0.2], [0, 0], [[0.5, 0.5], [-0.5, 0.1]], 0.5, [[0.3, 0.3]], [[0.1, 0]], [0.7])
try:
    from diamond_attention import Spread
except ImportError as error:
    refused = str(error)
print(json.dumps([Agent.load("spread-floor").decide(view).tolist(), refused, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("setuptools", minversion="77", reason="the package is built with it")
    # From a copy: setuptools leaves a build folder behind.
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for folder in ("diamond_attention", "robot"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for file in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [sys.executable, "-m", "pip", "wheel", "./robot", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, "-w", str(built)], cwd=source, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return next(built.glob("diamond_attention_robot-*.whl"))


def test_the_wheel_holds_what_decides_and_nothing_that_trains(wheel):
    held = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in held if name.endswith(".py")}
    whole = [ROOT / "diamond_attention" / room for room in ("deploy", "robot")]
    ours = {path.relative_to(ROOT).as_posix() for room in whole for path in room.glob("*.py")}
    alone = {
        "__init__",
        "__main__",
        "errors",
        "plain_file",
        "ranges",
        "terminal",
        "runs/__init__",
        "runs/array_file",
        "runs/bundle_format",
        "runs/files",
    }
    assert modules == ours | {f"diamond_attention/{name}.py" for name in alone}
    assert "diamond_attention/shipped/spread/policy.safetensors" in held
    assert "diamond_attention/LICENSE" in held
    assert wheel.stat().st_size < 3_000_000
    (metadata,) = (name for name in held if name.endswith("/METADATA"))
    needs = [line for line in zipfile.ZipFile(wheel).read(metadata).decode().splitlines() if "Requires-Dist" in line]
    assert needs == ["Requires-Dist: numpy>=2.0"]
    (scripts,) = (name for name in held if name.endswith("/entry_points.txt"))
    assert "diamond = diamond_attention.__main__:main" in zipfile.ZipFile(wheel).read(scripts).decode()


def test_an_environment_without_jax_decides_as_this_one(wheel, tmp_path):
    venv.create(tmp_path / "robot", with_pip=False)
    (packages,) = (tmp_path / "robot").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    for part in (Path(np.__file__).parent, Path(np.__file__).parents[1] / "numpy.libs"):
        if part.exists():
            (packages / part.name).symlink_to(part)
    python = [tmp_path / "robot" / "bin" / "python", "-I"]
    assert subprocess.run([*python, "-c", "import jax"], capture_output=True, timeout=60).returncode != 0
    done = subprocess.run([*python, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    action, refused, modules = json.loads(done.stdout)
    view = spread_view([0.1, 0.2], [0, 0], [[0.5, 0.5], [-0.5, 0.1]], 0.5, [[0.3, 0.3]], [[0.1, 0]], [0.7])
    np.testing.assert_allclose(action, Agent.load("spread-floor").decide(view), atol=1e-6)
    assert "is not part of the install for robots" in refused
    assert "jax" not in modules
    help_ = subprocess.run([*python, "-m", "diamond_attention", "agent", "--help"], capture_output=True, timeout=60)
    assert help_.returncode == 0, help_.stderr
    other = subprocess.run([*python, "-m", "diamond_attention", "list"], capture_output=True, text=True, timeout=60)
    assert (other.returncode, other.stderr) == (
        1,
        "diamond: this is the install for robots, which has `diamond agent` alone.\n",
    )
