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


PYTHONS = os.environ.get("DIAMOND_PYTHONS", "3.11 3.12 3.13").split()
EXTRAS = "[adapters,smaclite,film,onnx]"
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


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("packages", ["lowest-direct", "highest"])
@pytest.mark.parametrize("version", PYTHONS)
def test_an_empty_environment_trains_plays_and_deploys(version, packages, files, tmp_path):
    """The package alone, then with its small extras. Lowest are the packages that have a wheel for this Python."""
    uv, env = (sys.executable, "-m", "uv"), tmp_path / "env"
    install = (*uv, "pip", "install", "--python", env / "bin" / "python", "--only-binary", ":all:")
    wheel = next(files.glob("*.whl"))
    run(*uv, "venv", "--python", python(version), env)
    run(*install, "--resolution", packages, wheel)
    said = carried_out("first_steps.py", env, files / "programs", tmp_path / "alone")
    assert f"all well with Python {version}" in said
    run(*install, "--resolution", packages, f"{wheel}{EXTRAS}")
    said = carried_out("first_steps_with_extras.py", env, files / "programs", tmp_path / "extras")
    assert "all well with the extras" in said


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
