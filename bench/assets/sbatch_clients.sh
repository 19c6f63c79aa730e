#!/bin/bash
# sbatch_clients.sh CLIENTS SECONDS TRES_PER_NODE COMMENT PARTITION [unlike]
# CLIENTS loops of sbatch submit held jobs for SECONDS, every second one with COMMENT.
# unlike: no two of them ask for the same (each has a time limit of its own).
# Prints one line: submitted=N failed=N seconds=S
set -eu
clients="$1" seconds="$2" tres="$3" comment="$4" partition="$5" kind="${6:-}"
args=(-H -Q -o /dev/null -D /tmp -p "$partition" "--gres=${tres#gres/}" --wrap true)
counts="$(mktemp -d)"
trap 'rm -rf "$counts"' EXIT

loop() { # loop NUMBER
    local submitted=0 failed=0 minutes=1 hint=()
    while [ "${EPOCHREALTIME/./}" -lt "$end" ]; do
        hint=()
        [ $((submitted % 2)) = 0 ] || hint=("--comment=$comment")
        [ "$kind" != unlike ] || minutes=$((1 + submitted * clients + $1))
        if sbatch -t "$minutes" "${hint[@]}" "${args[@]}" >/dev/null 2>"$counts/error"; then submitted=$((submitted + 1))
        else failed=$((failed + 1)); fi
    done
    echo "$submitted $failed" >"$counts/$1"
}

start="${EPOCHREALTIME/./}"
end=$((start + seconds * 1000000))
for number in $(seq "$clients"); do loop "$number" & done
wait
took=$((${EPOCHREALTIME/./} - start))
awk -v us="$took" '{ s += $1; f += $2 } END { printf "submitted=%d failed=%d seconds=%.3f\n", s, f, us / 1e6 }' "$counts"/[0-9]*
