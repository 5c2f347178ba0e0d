#!/usr/bin/env bash
# Trains and evaluates every line of the XOR table in results/. About half an hour on two cores, a few minutes on
# sixteen. Usage: experiments/xor_table.sh PRESET [FOLDER], PRESET being xor or xor-paper.
set -euo pipefail
preset=${1:?name a preset: xor or xor-paper}
runs=${2:-runs/table/$preset}
for mask in rank none dropout; do
  for size in "2 2" "2 3" "3 3"; do
    read -r players actions <<< "$size"
    out="$runs/n${players}_k${actions}_${mask}"
    [ -e "$out" ] || diamond train "$preset" --players "$players" --actions "$actions" --policy.mask "$mask" \
      --seeds 0:10 --out "$out" --quiet
    # Trained with two players and three actions, played with three of each: the paper's middle column.
    for dropout in $([ "$mask" = dropout ] && echo on off || echo none); do
      diamond evaluate "$out" --players "$actions" --episodes 10000 \
        $([ "$dropout" = none ] || echo --dropout "$dropout") --json > /dev/null
    done
    echo "$out done"
  done
done
diamond table "$runs"/* --json > "$runs/table.json"
diamond table "$runs"/*
