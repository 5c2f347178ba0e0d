#!/usr/bin/env bash
# Trains the policies behind results/particles.csv on a GPU, one group of seeds after the other, and exports each
# group as soon as it is done. Usage: benchmarks/particles_train.sh FOLDER; a group that is already there is left out.
# With PACK set, every exported group is also packed into PACK/GROUP.tar.
set -euo pipefail
folder=${1:?name a folder}
train() { # preset mask seeds [option]
  local group="$1_$2${4:+_${4##*.}}"
  [ -e "$folder/policies/$group" ] && return
  diamond train "$1" --policy.mask "$2" --seeds "$3" ${4:+"$4"} --out "$folder/runs/$group" --overwrite
  diamond export "$folder/runs/$group" --to "$folder/policies/$group"
  if [ -n "${PACK:-}" ]; then tar cf "$PACK/$group.tar" -C "$folder/policies" "$group"; fi
}
# Food Collection was first trained with every collision counted once, and only then with the preset's caution of 5.
groups=${GROUPS_TO_TRAIN:-"spread-gpu:rank:0:5 spread-gpu:none:0:10 spread-gpu:floor:0:10 spread-gpu:signed:0:5
  spread-gpu:split:0:5 spread-gpu:first:0:3 spread-gpu:dropout:0:3 food-gpu:none:0:5 food-gpu:split:0:3
  food-gpu:rank:0:5:--world.caution=1 food-gpu:none:0:5:--world.caution=1 food-gpu:floor:0:5:--world.caution=1"}
for group in $groups; do
  IFS=: read -r preset mask first last option <<< "$group"
  train "$preset" "$mask" "$first:$last" "$option"
done
