"""The live page's modules, asked under node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from diamond_attention.web.live_page import LIVE

ANSWERS = Path(__file__).with_name("answers.mjs")

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="the page's modules are asked under node")


def ask(folder: Path, *questions: dict[str, Any]) -> list[Any]:
    """One answer for each question."""
    file = folder / "questions.json"
    file.write_text(json.dumps(questions))
    done = subprocess.run(["node", ANSWERS, LIVE, file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
