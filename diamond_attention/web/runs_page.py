"""The page for runs: its own files, the live page under `live/`, and answers of `RunsFolder` as JSON."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diamond_attention.plain_file import read_plain_file
from diamond_attention.web.live_page import LIVE, MOST_BYTES, live_answers
from diamond_attention.web.runs_folder import RunsFolder
from diamond_attention.web.server import Answer, Answers, RefusedError, type_of

PAGE = Path(__file__).with_name("training")
FILES = {
    **{file.name: file for file in PAGE.iterdir()},
    **{name: LIVE / name for name in ("style.css", "icon.svg", "features.js")},
}


def runs_answers(folder: Path) -> Answers:
    runs = RunsFolder(folder)
    reading = threading.Lock()  # one reader at a time: warnings are caught, and files kept, for the whole process

    def in_turn(read: Callable[..., Any], *of: str) -> Answer:
        with reading:
            found = read(*of)
        return Answer(json.dumps(found, allow_nan=False).encode(), "application/json")

    def answers(address: str) -> Answer:
        wanted = address or "index.html"
        first, _, rest = wanted.partition("/")
        if wanted in FILES:
            return Answer(read_plain_file(FILES[wanted], MOST_BYTES, follow_links=True), type_of(wanted))
        if first == "live":
            return live_answers(rest)
        if wanted == "overview":
            return in_turn(runs.overview)
        if wanted == "scores":
            return in_turn(runs.scores)
        if first == "curves":
            return in_turn(runs.curves, rest)
        if first == "pictures":
            return Answer(runs.picture(rest), type_of(wanted))
        raise RefusedError

    return answers
