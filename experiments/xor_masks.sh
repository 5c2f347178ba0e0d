#!/usr/bin/env bash
# The masks that blind nobody must still solve the XOR game: n=k=2, 3 and 5, sparse, five seeds each. About eight
# minutes a mask for n=k=5 on two cores. Usage: experiments/xor_masks.sh [FOLDER]
set -euo pipefail
runs=${1:-runs/masks}
for mask in signed floor first split; do
  for players in 2 3 5; do
    out="$runs/n${players}_$mask"
    [ -e "$out" ] || diamond train xor --players "$players" --policy.mask "$mask" --seeds 0:5 --out "$out" --quiet
    diamond evaluate "$out" --episodes 10000 --json > /dev/null
    echo "$out done"
  done
done
diamond table "$runs"/* --json > "$runs/table.json"
diamond table "$runs"/*
