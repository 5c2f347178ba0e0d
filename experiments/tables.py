"""Puts results into results/ and makes every table in README.md and docs/ anew from what is there.

    python experiments/tables.py [TABLE.json…] [--commit C]

TABLE.json is what `diamond table RUNS --json` printed; its rows replace those of the same seeds and conditions.
Without one, only the tables are made. Speeds are those `diamond bench --to results/bench_WORLD_DEVICE.json` wrote.
"""

import argparse
import json
from pathlib import Path

import baseline_results
import commitment_results
import fleet_results
import jaxmarl_results
import particle_results
import result_rows
import smaclite_results
import smaclite_statistics
import speed_results
import xor_results

from diamond_attention.errors import UserError

KEEPERS = {"xor": xor_results, "spread": particle_results, "food": particle_results, "smaclite": smaclite_results}
"""By world: who knows its rows."""

TABLES: dict[str, result_rows.Table] = {
    **baseline_results.TABLES,
    **commitment_results.TABLES,
    **fleet_results.TABLES,
    **jaxmarl_results.TABLES,
    **xor_results.TABLES,
    **particle_results.TABLES,
    **smaclite_results.TABLES,
    **smaclite_statistics.TABLES,
    **speed_results.TABLES,
}


def add(table: Path, commit: str | None) -> None:
    """Rows of one table of `diamond table --json`, each to the file of its world."""
    lines = json.loads(table.read_text())
    for world in sorted({line["world"] for line in lines}):
        if world not in KEEPERS:
            raise UserError(f"{table} has lines of the world {world!r}; results/ has {', '.join(KEEPERS)}.")
        keeper = KEEPERS[world]
        rows = keeper.rows_of([line for line in lines if line["world"] == world], commit)
        result_rows.add(keeper.RESULTS, keeper.COLUMNS, keeper.WHAT, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--commit", help="where the tables name another than the code that made them")
    arguments = parser.parse_args()
    try:
        for table in arguments.tables:
            add(table, arguments.commit)
        for page in result_rows.PAGES:
            page.write_text(result_rows.with_tables(page.read_text(), TABLES))
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
