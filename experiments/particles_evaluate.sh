#!/usr/bin/env bash
# Scores exported groups of seeds: Simple Spread on VMAS (needs the extra [vmas]) and on our own world, Food Collection
# at every size from 2 x 2 to 8 x 8. Usage: experiments/particles_evaluate.sh FOLDER/policies/GROUP...
set -euo pipefail
for group in "$@"; do
  case $(basename "$group") in
    spread*)
      on_vmas=(--agents 2:8 --episodes 64 --greedy --simulator vmas --json)
      diamond evaluate "$group" "${on_vmas[@]}" > /dev/null
      case $(basename "$group") in
        *_dropout*) diamond evaluate "$group" "${on_vmas[@]}" --dropout off > /dev/null ;;
      esac
      diamond evaluate "$group" --agents 16,32 --episodes 32 --greedy --json > /dev/null
      diamond evaluate "$group" --agents 64 --episodes 16 --greedy --json > /dev/null ;;
    food*)
      diamond evaluate "$group" --agents 2:8 --tasks 2:8 --episodes 64 --greedy --json > /dev/null ;;
  esac
  diamond table "$group" --json > "$group.json"
  echo "$group done"
done
