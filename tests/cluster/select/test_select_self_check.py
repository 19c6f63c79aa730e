"""A select plugin built from other records than slurmctld's: it refuses, and everybody can see so.

It is compiled from Slurm's source with a job's record changed, as releases change it, or with the
version of another micro release, as it is left behind by an upgrade of Slurm.
"""

import re
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from select_harness import all_running, stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

PLUGIN = "/usr/local/lib/select_cons_tres.so"
#: Where the releases declare a job's record, and what they call of a select plugin.
HEADERS = (
    "src/common/job_record.h src/slurmctld/slurmctld.h src/interfaces/select.h src/common/select.h"
)
DETAILS = r"^\t\(struct job_details\|job_details_t\) \*details;"
# Copies the source, changes a header there by the script in $1, and prints the plugin as base64.
BUILD = f"""
set -e
cp -r $SLURM_SRC /tmp/slurm && cp -r slurm_plugin/select /tmp/select && cd /tmp/slurm
for header in {HEADERS}; do [ ! -e $header ] || sed -i "$1" $header; done
make -C /tmp/select -j2 SLURM_SRC=/tmp/slurm OUT=/tmp/out select_cons_tres.so >&2
base64 /tmp/select/select_cons_tres.so
"""
CHANGES = [
    (
        "a field more before the details",
        rf"s/{DETAILS}/\tuint64_t one_more;\n&/",
        r"a job record of \d+ bytes instead of \d+",
    ),
    (
        # The flags of a job are no address: reading details there would be slurmctld's end.
        "details and flags in each other's place",
        rf"s/{DETAILS}/\tuint64_t flags_in_its_place;/;s/^\tuint64_t bit_flags;/"
        r"\tDETAILS_T *details;\n#define bit_flags flags_in_its_place/",
        "a job record without details",
    ),
]


def build(cluster: Cluster, script: str) -> subprocess.CompletedProcess[str]:
    """Compiles the plugin against Slurm's source changed by a sed script."""
    details = "struct job_details" if cluster.release < (23, 2) else "job_details_t"
    changed = script.replace("DETAILS_T", details)
    return cluster.cluster_sh("builder", "sh", "-c", BUILD, "sh", changed)


ANOTHER_ARGUMENT = r"s/\(select_g_job_fini(job_record_t \*job_ptr\));/\1, bool again);/"


def test_a_slurm_that_calls_a_function_otherwise_stops_the_build(cluster):
    """Slurm's own header is what each of our functions is compared with."""
    done = build(cluster, ANOTHER_ARGUMENT)
    assert done.returncode
    assert "select_p_job_fini(): this Slurm declares it with other arguments" in done.stderr


@contextmanager
def plugin(cluster: Cluster, content: bytes) -> Iterator[None]:
    """Another select_cons_tres.so in slurmctld, while the block lasts."""
    cluster.slurmctld("stop")
    cluster.run("ctl", f"cp -p {PLUGIN} {PLUGIN}.kept")
    try:
        with TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            Path(folder, "select_cons_tres.so").write_bytes(content)
            cluster.put_folder("ctl", "/usr/local/lib", Path(folder))
        cluster.slurmctld("start")
        yield
    finally:
        cluster.slurmctld("stop")
        cluster.run("ctl", f"mv {PLUGIN}.kept {PLUGIN}")
        cluster.slurmctld("start")


FIRST, *OTHERS = (pytest.param(*row[1:], id=row[0]) for row in CHANGES)
OTHERS = [
    pytest.param(*one.values, id=one.id, marks=pytest.mark.long("another plugin is built"))
    for one in OTHERS
]


@pytest.mark.parametrize(("script", "found"), [FIRST, *OTHERS])
def test_a_plugin_of_other_job_records_refuses_and_says_that_it_is_not_asked(
    cluster, script, found
):
    """slurmctld lives, jobs keep Slurm's own GPUs; log, status and doctor say what is wrong."""
    cluster.engine("restart")
    restarted = time.monotonic()
    done = build(cluster, script)
    assert done.returncode == 0, done.stderr
    # What starts in the engine's first ten seconds may go unasked.
    time.sleep(max(0, restarted + 11 - time.monotonic()))
    with cluster.slurmctld_log_of() as log, plugin(cluster, b64decode(done.stdout)):
        pid = cluster.slurmctld("pid")
        pair = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        assert cluster.wait_running(pair).gpus == stock_pair(cluster)
        many = cluster.sbatch("-x", "dgx1", "--array=0-9", "--gres=gpu:1", script="sleep 300")
        until(lambda: all_running(cluster, many, 10), "ten tasks run")
        assert cluster.slurmctld("pid") == pid
        assert cluster.status()["messages"].get("place", 0) == 0
        status = cluster.run("ctl", "gputopo status").out
        doctor = cluster.run("ctl", "gputopo doctor", check=False)
    refused = [line for line in log if re.search(f"self-check found {found}", line)]
    assert len(refused) == 1
    assert len([line for line in log if "not asked: 10 jobs with GPUs have started" in line]) == 1
    assert "NOT ASKED about 11 jobs with GPUs" in status
    assert re.search("fail +questions: .*11 jobs with GPUs", doctor.out)
    assert doctor.code == 1


# The version in META, which the headers are made from, and its number in Slurm's own header.
ANOTHER_RELEASE = """
set -e
cp -r $SLURM_SRC /tmp/slurm && cp -r slurm_plugin/select /tmp/select
sed -i 's/^\\([[:space:]]*Micro:[[:space:]]*\\).*/\\199/' /tmp/slurm/META
from='SLURM_SRC=/tmp/slurm SLURM_BUILD=/tmp/headers'
make -C /tmp/select -j2 $from OUT=/tmp/out select_cons_tres.so >&2
base64 /tmp/select/select_cons_tres.so
"""


@pytest.mark.long("a plugin is built, slurmctld starts three times")
def test_slurm_is_upgraded_under_the_plugin_and_then_the_matching_plugin_comes(cluster):
    """Jobs run on Slurm's own GPUs, users see nothing; one line in the log and one in doctor."""
    done = cluster.cluster_sh("builder", "sh", "-c", ANOTHER_RELEASE)
    assert done.returncode == 0, done.stderr
    before = cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=300)
    assert before.gpus == {"dgx2": (0, 3)}
    with cluster.slurmctld_log_of() as log, plugin(cluster, b64decode(done.stdout)):
        submit = "sbatch -w dgx1 --gres=gpu:2 -o /dev/null --wrap 'sleep 300'"
        told = cluster.run("ctl", submit, user="alice")
        assert re.fullmatch(r"Submitted batch job \d+\n", told.out)
        assert told.err == ""
        stock = int(told.out.split()[-1])
        assert cluster.wait_running(stock).gpus == stock_pair(cluster)
        assert cluster.job(before.id).gpus == before.gpus
        assert cluster.run("ctl", "srun -w dgx1 --gres=gpu:1 true", user="alice").err == ""
        doctor = cluster.run("ctl", "gputopo doctor", check=False)
    refused = [line for line in log if "Incompatible Slurm plugin" in line]
    assert len(refused) == 1, refused
    assert PLUGIN in refused[0]
    named = [line for line in doctor.out.splitlines() if line.startswith("fail")]
    assert len(named) == 1, doctor.out
    assert f"slurmctld is {cluster.version}: it is not loaded" in named[0]
    cluster.cancel(stock)
    after = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    assert after.gpus == {"dgx1": (0, 3)}
    assert cluster.job(before.id).gpus == before.gpus


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_plugin_that_is_asked_has_nothing_to_say(cluster):
    """Jobs of every kind that is left to Slurm: no line of the log, nothing in status or doctor."""
    cluster.engine("restart")
    cluster.restart_slurmctld()
    time.sleep(11)
    with cluster.slurmctld_log_of() as log:
        ids = [
            cluster.sbatch("-w", node, "--exclusive", "--gres=gpu:1", sleep_s=300)
            for node in ("dgx1", "dgx2", "bridged1", "amd1")
        ]
        for jobid in ids:
            cluster.wait_running(jobid)
        doctor = cluster.run("ctl", "gputopo doctor", check=False)
        assert "NOT ASKED" not in cluster.run("ctl", "gputopo status").out
    assert "fail  questions" not in doctor.out
    assert not [line for line in log if "not asked" in line or "self-check" in line]
