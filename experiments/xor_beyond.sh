#!/usr/bin/env bash
# Sizes the paper could not learn: sparse n=k=5, shaped n=k=8 and n=k=12. Minutes on a GPU, hours on two cores.
set -euo pipefail
runs=${1:-runs/beyond}
diamond train xor --players 5 --seeds 0:10 --out "$runs/n5"
diamond train xor --players 8 --world.shaped --total-steps 409600 --seeds 0:5 --out "$runs/n8"
diamond train xor --players 12 --world.shaped --total-steps 1024000 --seeds 0:5 --out "$runs/n12"
for run in n5 n8 n12; do diamond evaluate "$runs/$run" --episodes 10000 --json > /dev/null; done
diamond table "$runs"/n* --json > "$runs/table.json"
diamond table "$runs"/n*
