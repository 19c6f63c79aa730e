#!/bin/bash
# record-replies.sh SUITE: refreshes tests/slurm_plugin/replies/<Slurm version>/ with what that
# release's command line tools really print, in a fixed scenario on a cluster of its own.
#
# A file's name is the command line: leading dashes dropped, words joined by `_`, `.out`.
# A command that the release refuses leaves `.err` with its exit code in the first line.
set -euo pipefail

export SUITE="${1:?usage: record-replies.sh bookworm|trixie|forky}"
export GPUTOPO_PROJECT="record-$SUITE" VARIANT=stock
root="$(cd "$(dirname "$0")/.." && pwd)"
cluster="$root/docker/cluster.sh"

commands=(
    "scontrol --version"
    "sinfo --version"
    "scontrol show config"
    "scontrol show nodes"
    "scontrol show nodes --json"
    "scontrol -d show nodes"
    "scontrol show jobs"
    "scontrol show jobs --json"
    "scontrol -d show jobs"
    "scontrol -d show jobs --json"
    "scontrol show partitions"
    "scontrol show partitions --json"
    "scontrol --oneliner show partitions"
    "sinfo --json"
    "sinfo -h -N -O NodeHost,GresUsed:200"
    "squeue --json"
    "squeue -h -o %A|%T|%r|%N|%b"
)

trap '"$cluster" down' EXIT
"$cluster" up
version="$("$cluster" exec ctl sinfo --version | cut -d' ' -f2)"
out="$root/tests/slurm_plugin/replies/$version"
rm -rf "$out"
mkdir -p "$out"

as() { "$cluster" exec ctl runuser -u "$1" -- sh -c "cd; $2"; }
submit() { as "$1" "sbatch --parsable -o /dev/null $2 --wrap 'sleep 600'"; }
wait_for() { # wait_for STATE COUNT
    local end=$((SECONDS + 60))
    until [ "$("$cluster" exec ctl squeue -h -r -t "$1" -o %A | wc -l)" = "$2" ]; do
        [ "$SECONDS" -lt "$end" ] || { echo "not $2 jobs $1:" >&2; "$cluster" exec ctl squeue -r >&2; exit 1; }
        sleep 0.5
    done
}

# One finished, five running (one of them on two nodes, one array task, one with all GPUs),
# pending for each common reason, a comment and a node that is drained.
as alice "sbatch --parsable -W -o /dev/null -J done -w minsky1 --gres=gpu:1 --wrap true" >/dev/null
submit alice "-J pair -w dgx1 --gres=gpu:2 --comment='gpu-topo: pattern=ring'" >/dev/null
submit alice "-J two-nodes -p dgx -N2 --gpus-per-node=3" >/dev/null
submit bob "-J array --array=0-3%1 -w minsky1 --gres=gpu:1" >/dev/null
submit bob "-J whole -w bridged1 --gpus=8 -n 2" >/dev/null
submit alice "-J no-gpu -w dgx2 -n 2" >/dev/null
wait_for RUNNING 5
submit bob "-J too-large-now -w dgx1 --gres=gpu:8" >/dev/null
submit alice "-J held --hold --gpus-per-task=2 -n 2" >/dev/null
submit alice "-J later --begin=now+1hour --gres=gpu:v100:4" >/dev/null
"$cluster" exec ctl scontrol update nodename=amd1 state=drain reason="being repaired"
wait_for PENDING 6
sleep 2

for line in "${commands[@]}"; do
    read -ra words <<<"$line"
    name="$out/$(sed 's/ -*/_/g; s/[^A-Za-z0-9:.,_-]//g' <<<"$line")"
    if "$cluster" exec ctl "${words[@]}" >"$name.out" 2>"$name.err" </dev/null; then
        rm "$name.err"
    else
        code=$?
        { echo "exit $code"; cat "$name.out" "$name.err"; } >"$name.new"
        mv "$name.new" "$name.err"
        rm "$name.out"
    fi
done
# The recording machine's kernel is nobody's business and would change with every refresh.
sed -i -e 's/OS=Linux .*/OS=Linux 6.12.0 #1 SMP PREEMPT_DYNAMIC /' \
    -e 's/"operating_system": "Linux [^"]*"/"operating_system": "Linux 6.12.0 #1 SMP PREEMPT_DYNAMIC"/' "$out"/*
echo "recorded $(ls "$out" | wc -l) replies of Slurm $version in ${out#"$root"/}"
