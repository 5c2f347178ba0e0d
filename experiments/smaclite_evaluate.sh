#!/usr/bin/env bash
# Plays exported groups of seeds on the maps of results/smaclite.csv, greedy and sampled, with and without jitter.
# Usage: experiments/smaclite_evaluate.sh FOLDER/policies/GROUP...
#
# Jitter 0.5: neighbours start at least 1.05 apart along one axis, so a unit moved by up to 0.5 each way never changes
# places with another. It is the largest round number for which every start is still the map's own formation. Units
# that overlap then (they stand 0.05 apart without it) are pushed apart by the game's own collision avoidance.
set -euo pipefail
maps=${MAPS:-2s3z,3s5z,3s5z_vs_3s6z,3s_vs_5z}
episodes=${EPISODES:-128}
for group in "$@"; do
  case $(basename "$group") in
    *_dropout*) ways=("--dropout on" "--dropout off") ;;
    *) ways=("") ;;
  esac
  for way in "${ways[@]}"; do
    for jitter in 0 0.5; do
      # Unquoted: an empty way is no argument, another is two.
      diamond evaluate "$group" --map "$maps" --jitter "$jitter" --episodes "$episodes" $way --json > /dev/null
    done
  done
  diamond table "$group" --json > "$group.json"
  echo "$group done"
done
