#!/bin/bash
# record-replies.sh SUITE [rest]: refreshes tests/slurm_plugin/replies/<Slurm version>/ with what
# that release's command line tools and slurmrestd really say, in a fixed scenario on a cluster of
# its own; with `rest` only what slurmrestd says.
#
# A file's name is the command line: leading dashes dropped, words joined by `_`, `.out`.
# A command that the release refuses leaves `.err` with its exit code in the first line.
# rest_*.http is an answer of slurmrestd: its status, then its body.
set -euo pipefail

export SUITE="${1:?usage: record-replies.sh bookworm|trixie|forky [rest]}"
only="${2:-}"
root="$(cd "$(dirname "$0")/../.." && pwd)"
cluster="$root/slurm_cluster/cluster.sh"
GPUTOPO_PROJECT="$("$cluster" project)-record-$SUITE"
export GPUTOPO_PROJECT VARIANT=stock

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
[ -n "$only" ] || rm -rf "$out"
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

record_commands() {
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
}

# slurmrestd must be neither root nor SlurmUser; the Operator's socket is for that user alone.
start_rest() {
    "$cluster" exec ctl sh -c 'useradd -r -M resty && sacctmgr -iQ add user resty account=research adminlevel=Admin >/dev/null
        install -d -o resty -m 700 /run/resty; cd /tmp
        export SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files
        setsid setpriv --reuid resty --regid resty --clear-groups slurmrestd -a rest_auth/local \
            unix:/run/resty/rest.sock >/dev/null 2>&1 </dev/null &
        until [ -S /run/resty/rest.sock ]; do sleep 0.1; done'
}

ask_rest() { # ask_rest METHOD PATH [BODY]: status and body
    "$cluster" exec ctl python3 -c '
import http.client, socket, sys
method, path, body = sys.argv[1:]
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/resty/rest.sock")
connection.request(method, path, body or None, {"Content-Type": "application/json"})
answer = connection.getresponse()
print(answer.status)
print(answer.read().decode())' "$1" "$2" "${3:-}"
}

record_rest() {
    start_rest
    # The whole description has a megabyte, and only its paths are read.
    ask_rest GET /openapi/v3 | python3 -c '
import json, sys
status, _, body = sys.stdin.read().partition("\n")
print(status, json.dumps({"paths": dict.fromkeys(json.loads(body)["paths"], {})}, indent=1), sep="\n")' >"$out/rest_openapi.http"
    local api jobs
    api="$(grep -o '/slurm/v[0-9.]*/' "$out/rest_openapi.http" | sort -V | tail -1)"
    case "$api" in */v0.0.38/) jobs="${api}jobs/" ;; *) jobs="${api}jobs/?flags=ALL&flags=DETAIL" ;; esac
    ask_rest GET "${api}ping/" >"$out/rest_ping.http"
    ask_rest GET "${api}nodes/" >"$out/rest_nodes.http"
    ask_rest GET "$jobs" >"$out/rest_jobs.http"
    ask_rest POST "${api}job/10" '{"admin_comment": "written"}' >"$out/rest_changed.http"
    ask_rest POST "${api}job/10" '{"tres_per_node": "nosuch:1"}' >"$out/rest_refused.http"
    "$cluster" exec ctl clusterctl slurmctld kill
    ask_rest GET "$jobs" >"$out/rest_down.http"
}

[ -n "$only" ] || record_commands
record_rest
# The recording machine's kernel is nobody's business and would change with every refresh.
sed -i -e 's/OS=Linux .*/OS=Linux 6.12.0 #1 SMP PREEMPT_DYNAMIC /' \
    -e 's/"operating_system": "Linux [^"]*"/"operating_system": "Linux 6.12.0 #1 SMP PREEMPT_DYNAMIC"/' "$out"/*
echo "recorded $(ls "$out" | wc -l) replies of Slurm $version in ${out#"$root"/}"
