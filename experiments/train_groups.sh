#!/usr/bin/env bash
# Trains the groups of seeds behind one file of results, one after the other, and exports each as soon as it is done.
# Usage: experiments/train_groups.sh LIST FOLDER [GROUP...]
#
#   LIST     the groups: experiments/particles.groups for results/particles.csv. A line is a name and what `diamond train` is told.
#   FOLDER   gets runs/GROUP and policies/GROUP. A group whose policies are there is left out.
#   GROUP    which of the list; all of it where none is named.
#
# With PACK set, every exported group is also packed into PACK/GROUP.tar.
set -euo pipefail
list=${1:?name a list of groups}
folder=${2:?name a folder}
shift 2
for wanted in "$@"; do
  grep -q "^$wanted " "$list" || { echo "$list has no group $wanted" >&2; exit 2; }
done
# The list comes in through 3, so that nothing which reads its input eats the rest of it.
while read -r group arguments <&3; do
  case $group in "" | "#"*) continue ;; esac
  case " $* " in "  " | *" $group "*) ;; *) continue ;; esac
  [ -e "$folder/policies/$group" ] && continue
  # Unquoted: the arguments are several words.
  diamond train $arguments --out "$folder/runs/$group" --overwrite
  diamond export "$folder/runs/$group" --to "$folder/policies/$group"
  if [ -n "${PACK:-}" ]; then tar cf "$PACK/$group.tar" -C "$folder/policies" "$group"; fi
done 3< "$list"
