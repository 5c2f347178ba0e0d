"""Runs packed into one small file: what tables and figures are made of, without the weights.

NAME.runs.tar.xz holds GROUP/seed_N/ with settings.json, environment.json, finished.json or failed.json, episodes.csv
and a metrics.csv of few rows. Unpacked they are runs like any others, to look at and not to play.
"""

import csv
import io
import lzma
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from diamond_attention.errors import UserError
from diamond_attention.runs.files import json_bytes, read_file, write_file, write_folder
from diamond_attention.runs.folder import Run, describe_run
from diamond_attention.runs.metrics import COLUMNS
from diamond_attention.runs.rows import read_rows

ENDING = ".runs.tar.xz"
FILES = ("settings.json", "environment.json", "finished.json", "failed.json", "episodes.csv")
MEMBER = re.compile(r"(?P<group>[\w.=+-]+)/seed_\d{1,9}/(" + "|".join(map(re.escape, (*FILES, "metrics.csv"))) + ")")
MOST_BYTES, LARGEST_FILE = 1 << 26, 1 << 30
MOST_POINTS = 40
"""Of a learning curve."""


def pack(groups: Mapping[str, Sequence[Run]], to: Path) -> None:
    """The same runs make the same bytes: nothing of the day, the machine or the user is in the archive itself."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(_files(groups)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    write_file(to, lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _files(groups: Mapping[str, Sequence[Run]]) -> Iterable[tuple[str, bytes]]:
    for group, runs in groups.items():
        for run in runs:
            if run.policy_alone:
                described = {"settings.json": describe_run(run), "environment.json": run.environment}
                yield from ((f"{group}/seed_{run.seed}/{name}", json_bytes(each)) for name, each in described.items())
            for name in FILES:
                if (run.path / name).exists():
                    yield f"{group}/seed_{run.seed}/{name}", read_file(run.path / name, LARGEST_FILE)
            if run.metrics.exists():
                yield f"{group}/seed_{run.seed}/metrics.csv", few_metrics(run)


def few_metrics(run: Run) -> bytes:
    """The score and the time of a training in few rows, each of several: their mean score, their seconds."""
    rows = read_rows(run.metrics, COLUMNS)
    scores = dict.fromkeys(("return", run.settings.world.scoring.score))
    width = -(-len(rows) // MOST_POINTS) if rows else 1
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["update", "step", *scores, "seconds"])
    for first in range(0, len(rows), width):
        part = rows[first : first + width]
        cells = [part[-1]["update"], part[-1]["step"]]
        for name in scores:
            known = [float(row[name]) for row in part if row.get(name)]
            cells.append(f"{sum(known) / len(known):.4g}" if known else "")
        writer.writerow([*cells, f"{sum(float(row['seconds'] or 0) for row in part):.6f}"])
    return text.getvalue().encode()


def unpack(file: Path, into: Path) -> None:
    """Whatever the archive holds that is not a file of a run is refused; nothing is written but below `into`."""
    try:
        data = lzma.decompress(read_file(file, MOST_BYTES))
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            groups: dict[str, dict[str, bytes]] = {}
            for member in archive:
                known = MEMBER.fullmatch(member.name)
                opened = archive.extractfile(member) if member.isreg() and known else None
                if known is None or opened is None:
                    raise UserError(f"{file} holds {member.name!r}, which is no file of a run; it was not unpacked.")
                inside = member.name.split("/", 1)[1]
                groups.setdefault(known["group"], {})[inside] = opened.read()
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise UserError(f"{file} is not a file of packed runs, or it is broken ({error}); get it anew.") from None
    for group, files in groups.items():
        write_folder(into / group, files)
