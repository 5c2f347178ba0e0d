"""The files for a package index, and whether they work in empty environments: oldest packages and newest."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build")
pytest.importorskip("twine")
pytest.importorskip("uv")

ROOT = Path(__file__).parents[2]
TRACKED = ("git", "ls-files", "--cached", "--others", "--exclude-standard")


def run(*command: object, **options) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """The source archive, and the wheel that is built from it and from nothing else."""
    source, to = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in run(*TRACKED, cwd=ROOT).splitlines():  # not what else lies about here, such as an old build folder
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", to, source)
    return to


def test_an_index_would_take_them(files):
    archive, wheel = sorted(files.glob("diamond_attention-*"), key=lambda path: path.suffix)
    assert (archive.suffix, wheel.suffix) == (".gz", ".whl")
    run(sys.executable, "-m", "twine", "check", "--strict", archive, wheel)


def test_the_archive_holds_what_the_wheel_and_the_tests_need(files):
    with tarfile.open(next(files.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    held = set(zipfile.ZipFile(next(files.glob("*.whl"))).namelist())
    tracked = set(run(*TRACKED, cwd=ROOT).splitlines())
    assert {name for name in tracked if name.startswith(("diamond_attention/", "tests/", "docs/"))} <= inside
    assert {name for name in tracked if name.startswith("diamond_attention/")} <= held
    assert not [name for name in held if not name.startswith(("diamond_attention/", "diamond_attention-"))]


def python(version: str) -> str:
    """One that runs; of pyenv's versions a shim of that name may be there and do nothing."""
    for found in (shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return str(found)
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "packages"),
    [("3.11", "lowest-direct"), ("3.11", "highest"), ("3.12", "highest"), ("3.13", "highest")],
)
def test_an_empty_environment_trains_plays_and_deploys(version, packages, files, tmp_path):
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--python", python(version), tmp_path / "env")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(files / "programs")}
    env["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    its_python = tmp_path / "env" / "bin" / "python"
    run(*uv, "pip", "install", "--python", its_python, "--resolution", packages, next(files.glob("*.whl")))
    (tmp_path / "empty").mkdir()
    script = Path(__file__).with_name("first_steps.py")
    said = run(its_python, "-P", script, env=env, cwd=tmp_path / "empty")
    assert f"all well with Python {version}" in said
