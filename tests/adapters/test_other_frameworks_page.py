"""docs/other_frameworks.md, executed: each example as a program of its own."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "other_frameworks.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run_and_print(number, tmp_path):
    if "jaxmarl" in EXAMPLES[number] and importlib.util.find_spec("jaxmarl") is None:
        pytest.skip("JaxMARL is not installed; make test-extras runs this")
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]], cwd=tmp_path, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_extras_that_the_page_installs_are_there():
    extras = re.findall(r"diamond-attention\[(\w+)\]", PAGE)
    assert extras
    for extra in extras:
        assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
