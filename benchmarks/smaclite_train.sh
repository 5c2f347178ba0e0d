#!/usr/bin/env bash
# Trains the policies behind results/smaclite.csv on a GPU, one group of seeds after the other, and exports each group
# as soon as it is done. Usage: benchmarks/smaclite_train.sh FOLDER; a group that is already there is left out.
# With PACK set, every exported group is also packed into PACK/GROUP.tar.
#
# One group is trained on a mixture. Its maps have stalkers and zealots, so every unit type of 3s5z is known, but
# teams of 5 against 5 and 3 against 5 only: that 8 fight 8 on 3s5z is new. 3s5z_vs_3s6z is left out of it because that
# is 3s5z with one more enemy, and who has trained on it has all but trained on 3s5z. The last group starts further
# scattered, and more often; it was played on 2s3z and 3s5z only, from the original starts.
set -euo pipefail
folder=${1:?name a folder}
train() { # preset mask maps seeds [options]
  local group="$1_$2_${3//,/+}${5:+_${5//[^a-z0-9.]/}}"
  [ -e "$folder/policies/$group" ] && return
  # Unquoted: the options are several words, or none.
  diamond train "$1" --policy.mask "$2" --world.map "$3" --seeds "$4" $5 --out "$folder/runs/$group" --overwrite
  diamond export "$folder/runs/$group" --to "$folder/policies/$group"
  if [ -n "${PACK:-}" ]; then tar cf "$PACK/$group.tar" -C "$folder/policies" "$group"; fi
}
groups=${GROUPS_TO_TRAIN:-"smaclite-gpu:rank:2s3z:0:5 smaclite-gpu:none:2s3z:0:5 smaclite-gpu:dropout:2s3z:0:5
  smaclite-gpu:rank:2s3z,3s_vs_5z:0:5 smaclite-gpu:rank:2s3z:0:5:--world.jitter=3,--world.jitter-share=0.75"}
for group in $groups; do
  IFS=: read -r preset mask maps first last options <<< "$group"
  train "$preset" "$mask" "$maps" "$first:$last" "${options//,/ }"
done
