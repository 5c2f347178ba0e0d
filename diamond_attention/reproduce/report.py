"""report.html: one page that needs no other file, with every entry made in a folder."""

import base64
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diamond_attention.reproduce.entries import ENTRIES
from diamond_attention.runs.files import read_file, write_file

LARGEST_FILE = 1 << 24
LONG = 40
"""Letters in a cell from which on it is words, such as a command."""
NUMBERS = re.compile(r"[-\d.,\[\] /]+")

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85em; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.25em 0.75em 0.25em 0; border-bottom: 1px solid #8886; vertical-align: top; }
th, .whole { white-space: nowrap; }
td.words { min-width: 16em; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1em 0; }
summary { cursor: pointer; margin: 1em 0; }
img { max-width: 100%; background: white; }
li { overflow-wrap: anywhere; }
code { font-size: 0.9em; }
@media (max-width: 60rem) { th:first-child, td:first-child { position: sticky; left: 0; background: Canvas; } }
"""


def write_report(out: Path) -> Path | None:
    """The page of all that was made in this folder; None where nothing was."""
    sections, links = [], []
    for name in ENTRIES:
        if not (out / f"{name}.json").exists():
            continue
        made = json.loads(read_file(out / f"{name}.json", LARGEST_FILE))
        links.append(f'<li><a href="#{name}">{html.escape(made["title"])}</a></li>')
        sections.append(section(name, made, out))
    if not sections:
        return None
    head = f'<meta charset="utf-8"><title>Diamond Attention, reproduced</title><style>{STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = f"<h1>Diamond Attention, reproduced</h1><ul>{''.join(links)}</ul>{''.join(sections)}"
    page = f'<!doctype html><html lang="en"><head>{head}{view}</head><body>{body}</body></html>\n'
    write_file(out / "report.html", page.encode())
    return out / "report.html"


def section(name: str, made: Mapping[str, Any], out: Path) -> str:
    parts = [f'<h2 id="{name}">{html.escape(made["title"])}</h2>']
    parts.append("<ul>" + "".join(f"<li>{_inline(each)}</li>" for each in made["about"]) + "</ul>")
    for table in made["tables"]:
        first, *more = (_inline(each) for each in table["above"])
        head = "".join(f"<th>{html.escape(each)}</th>" for each in table["headings"])
        rows = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in table["rows"])
        shown = "".join(f"<p>{each}</p>" for each in more)
        shown += f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        folded = table["folded"]
        parts.append(f"<details><summary>{first}</summary>{shown}</details>" if folded else f"<p>{first}</p>{shown}")
    for picture in made["pictures"]:
        data = base64.b64encode(read_file(out / picture, LARGEST_FILE)).decode()
        parts.append(f'<img alt="{html.escape(made["title"])}" src="data:image/png;base64,{data}">')
    return "".join(parts)


def _cell(text: str) -> str:
    """Between two numbers a line may end, and in long words: not within a number and its interval."""
    if len(text) > LONG and "[" not in text:
        return f'<td class="words">{html.escape(text)}</td>'
    if not NUMBERS.fullmatch(text):
        return f"<td>{html.escape(text)}</td>"
    *before, last = text.split(" / ")
    return (
        "<td>"
        + " ".join(f'<span class="whole">{each}</span>' for each in (*(f"{b} /" for b in before), last))
        + "</td>"
    )


def _inline(text: str) -> str:
    """The little Markdown that a preface has."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", bold)
