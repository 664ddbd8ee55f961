#!/bin/bash
# Counts to COUNT_TO in plain bash. Its state is one file in the folder state/, which the platform copies
# as a checkpoint every 30 minutes, on notice and after the end, and puts back before the next start:
#   submit --checkpoint state --tariff spot --gres=gpu:rtx4090:1 count.sh
#SBATCH --job-name=count
#SBATCH --time=01:00:00
#SBATCH --requeue

set -euo pipefail
mkdir -p state
count=$(cat state/count 2>/dev/null || echo 0)
echo "counting from $count"

save() {
    # Beside, then renamed: whoever copies state/ never sees half a number.
    echo "$count" > state/.count.new
    mv state/.count.new state/count
}

leave() {
    save
    echo "notice: saved $count, leaving for the queue"
    exit 99
}
trap leave USR1

while (( count < ${COUNT_TO:-600} )); do
    # A trap waits for the command in the foreground, but not for "wait".
    sleep "${COUNT_PAUSE:-1}" &
    wait $! || true
    count=$((count + 1))
    (( count % 10 )) || save
done
save
echo "counted to $count"
