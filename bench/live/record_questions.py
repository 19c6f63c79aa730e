"""Refreshes assets/place_questions.txt: `python -m bench.live.record_questions`.

Runs a seeded job mix on the live cluster with a recorder between slurmctld and the engine
and keeps the `place` questions slurmctld asked.
"""

from __future__ import annotations

import sys
from random import Random

from bench.live.cluster import ASSETS, BENCH_DIR, BenchCluster, clean
from bench.live.job_mix import mix, script
from bench.questions import RECORDED

SEED = 7
JOBS = 150
LONGEST_S = 3.0
SOCKET, BEHIND = "/run/gputopo/engine.sock", "/run/gputopo/behind.sock"
OUT = "/var/log/gputopo/place_questions.txt"
HEADER = """\
# `place` questions (docs/protocol.md) as slurmctld {version} sent them: {jobs} submits of a
# seeded mix (bench/job_mix.py, seed {seed}) on controller + 5 nodes, nodes filling and
# draining. Made by bench/record_questions.py.
"""


def start_recorder(cluster: BenchCluster) -> None:
    """Move the engine behind the recorder."""
    cluster.put_folder("ctl", BENCH_DIR, ASSETS)
    cluster.engine("stop")
    cluster.sh(f"sed -i 's|^socket:.*|socket: {BEHIND}|' /etc/slurm/gputopo.yaml; rm -f {OUT}")
    cluster.sh(
        "setpriv --reuid slurm --regid slurm --clear-groups /opt/gputopo/bin/gputopo serve"
        " --config /etc/slurm/gputopo.yaml >/var/log/gputopo/recorded.log 2>&1 </dev/null &"
        f" until [ -S {BEHIND} ]; do sleep 0.1; done;"
        f" setpriv --reuid slurm --regid slurm --clear-groups python3 {BENCH_DIR}/recorder.py"
        f" {SOCKET} {BEHIND} {OUT} >>/var/log/gputopo/recorded.log 2>&1 </dev/null &"
        f" until [ -S {SOCKET} ]; do sleep 0.1; done"
    )


def main() -> int:
    """Record, and write the asset."""
    rng = Random(SEED)
    with clean() as cluster:
        start_recorder(cluster)
        # The bridge and the plugin had the old socket open; a fresh slurmctld has neither.
        cluster.restart_slurmctld()
        jobs = mix(JOBS, rng, ("gpu", "gpu", "dgx"))
        cluster.sh(script(jobs, rng, LONGEST_S), user="alice")
        cluster.wait_queue_empty()
        lines = cluster.run("ctl", ["cat", OUT]).out
        version = cluster.run("ctl", ["sinfo", "-V"]).out.split()[1]
        cluster.sh(f"fuser -k -TERM {SOCKET} {BEHIND} || true; rm -f {SOCKET} {BEHIND}")
    RECORDED.write_text(HEADER.format(version=version, jobs=JOBS, seed=SEED) + lines)
    print(f"{RECORDED}: {len(lines.splitlines())} questions", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
