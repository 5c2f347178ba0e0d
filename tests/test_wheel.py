"""What is installed is all there: the wheel holds every file the package reads at run time."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_policies_the_anchors_and_every_module(tmp_path):
    pytest.importorskip("setuptools", minversion="77", reason="the package is built with it")
    # From a copy: setuptools leaves a build folder behind, and takes from an old one what is no longer there.
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "diamond_attention", source / "diamond_attention", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    package = {path.relative_to(source).as_posix() for path in source.glob("*/**/*") if path.is_file()}
    build = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run(
        [*build, "--wheel-dir", str(tmp_path)], cwd=source, capture_output=True, text=True, timeout=200
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert "diamond_attention/reports/anchors.csv" in held
    assert "diamond_attention/shipped/spread/policy.safetensors" in held
    assert "diamond_attention/web/live/index.html" in held
    assert package <= held
    # A package index has none of the repository's files: the page must do without pictures and links into it.
    (metadata,) = (name for name in held if name.endswith("/METADATA"))
    page = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "# Diamond Attention" in page
    assert "make demo" in page
    assert not re.search(r"\]\((?!https?:)", page)


def test_the_source_archive_holds_docs_and_tests():
    listed = (ROOT / "MANIFEST.in").read_text().split()
    for folder in ("docs", "tests", "experiments", "results"):
        assert folder in listed
        assert (ROOT / folder).is_dir()
