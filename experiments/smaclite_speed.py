"""How fast SMAClite's battles run on maps and in batches of your choice: the first table of `diamond bench smaclite`.

python experiments/smaclite_speed.py [--maps 2s3z 3s5z MMM2 27m_vs_30m] [--envs 256] [--out speed.json]
"""

import argparse
import json
from pathlib import Path

from diamond_attention.bench.battles import BATTLES, measure_battles
from diamond_attention.runs.environment import describe_environment

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", nargs="+", default=list(BATTLES["cpu"]))
    parser.add_argument("--envs", type=int, nargs="+", default=[256])
    parser.add_argument("--out", type=Path, help="also write the rows as JSON to this file")
    options = parser.parse_args()
    rows = []
    for name in options.maps:
        for envs in options.envs:
            row = measure_battles(name, envs)
            rows.append(row)
            print(
                f"{name:>12} {envs:>7,} battles {row['steps_per_second']:>12,.0f} env-steps/s "
                f"{row['compile_seconds']:>6.1f} s to compile {row['lines_dropped']:>6,} lines dropped",
                flush=True,
            )
    if options.out is not None:
        options.out.write_text(
            json.dumps({"environment": describe_environment(), "simulation": rows}, indent=2) + "\n"
        )
