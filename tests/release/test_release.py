"""The files for a package index, and whether they work in empty environments: oldest packages and newest."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
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


PYTHONS = os.environ.get("DIAMOND_PYTHONS", "3.11 3.12 3.13").split()
EXTRAS = ("adapters", "smaclite", "film", "onnx")
SCRIPTS = Path(__file__).parent


def python(version: str) -> str:
    """One that runs; of pyenv's versions a shim of that name may be there and do nothing."""
    for found in (shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return str(found)
    pytest.fail(
        f"no Python {version} on this machine; install it, or name those to try: make test-release PYTHONS=3.11"
    )


def test_a_python_that_is_not_there_fails_the_stage():
    with pytest.raises(pytest.fail.Exception, match=r"no Python 2\.99 on this machine"):
        python("2.99")


def carried_out(script: str, env: Path, programs: Path, empty: Path) -> str:
    """What a script says that knows nothing of this checkout."""
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    settings |= {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(programs)}
    settings["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    empty.mkdir()
    return run(env / "bin" / "python", SCRIPTS / script, env=settings, cwd=empty)


def allowed(uv: Sequence[str], resolution: str, python: Path) -> str:
    """Versions that pyproject.toml allows, the lowest or the highest, of those with a wheel for this Python.

    Asked for a wheel, uv would take the lowest of the wheel and the highest of all that it needs.
    """
    chosen = (*uv, "pip", "compile", "--quiet", "--resolution", resolution, "--only-binary", ":all:")
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    return run(*chosen, "--python", python, *extras, ROOT / "pyproject.toml")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("version", PYTHONS)
def test_an_empty_environment_trains_plays_and_deploys(version, resolution, files, tmp_path):
    """The package alone, then with its small extras."""
    uv, env, versions = (sys.executable, "-m", "uv"), tmp_path / "env", tmp_path / "versions.txt"
    run(*uv, "venv", "--python", python(version), env)
    its_python = env / "bin" / "python"
    versions.write_text(allowed(uv, resolution, its_python))
    install = (*uv, "pip", "install", "--python", its_python, "--only-binary", ":all:", "--constraint", versions)
    wheel = next(files.glob("*.whl"))
    run(*install, wheel)
    said = carried_out("first_steps.py", env, files / "programs", tmp_path / "alone")
    assert f"all well with Python {version}" in said
    if resolution == "lowest-direct":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert f"jax {lowest(project['dependencies'], 'jax')}" in said
    run(*install, f"{wheel}[{','.join(EXTRAS)}]")
    said = carried_out("first_steps_with_extras.py", env, files / "programs", tmp_path / "extras")
    assert "all well with the extras" in said


def lowest(requirements: Sequence[str], package: str) -> str:
    """`0.8` of `jax>=0.8`."""
    (bound,) = (words.removeprefix(f"{package}>=") for words in requirements if words.startswith(f"{package}>="))
    return bound


@pytest.mark.timeout(1200)
def test_pip_makes_of_the_archive_what_the_wheel_holds(files, tmp_path):
    """As `pip install diamond_attention-*.tar.gz` does where an index has no wheel."""
    env = tmp_path / "env"
    run(python(PYTHONS[0]), "-m", "venv", env)
    pip = (env / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    run(*pip, next(files.glob("*.tar.gz")))
    site = env / "lib" / f"python{PYTHONS[0]}" / "site-packages"
    held = set(zipfile.ZipFile(next(files.glob("*.whl"))).namelist())
    held = {name for name in held if name.startswith("diamond_attention/")}
    assert held
    for name in held:
        assert (site / name).is_file(), name
    assert "all well with Python" in carried_out("first_steps.py", env, files / "programs", tmp_path / "alone")
