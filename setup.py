"""Everything is in pyproject.toml but the front page of a package index, which has none of the repository's files."""

import re
from pathlib import Path

from setuptools import setup

page = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
page = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+(\*[^*]*\*\n+)?", "", page, flags=re.MULTILINE)  # with its caption
page = re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", page)  # the words of a link stay
setup(long_description=page, long_description_content_type="text/markdown")
