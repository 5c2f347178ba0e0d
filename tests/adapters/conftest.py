"""A world of somebody's own: the one that docs/your_own_world.md writes."""

import re
import sys
import types
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your_own_world.md"


@pytest.fixture(scope="session")
def beacons():
    """The class, from a module of its own, since dataclasses look theirs up."""
    module = types.ModuleType("beacons_of_the_page")
    sys.modules[module.__name__] = module
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text().split("## Make it known")[0], re.DOTALL)
    exec(compile("\n".join(blocks), str(PAGE), "exec"), module.__dict__)
    yield module.Beacons
    del sys.modules[module.__name__]
