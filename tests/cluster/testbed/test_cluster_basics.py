"""The cluster itself: what stock Slurm does on it, and that its parts are the real ones."""

import pytest
from live_harness import GPUS, OURS_ON_A_NODE, goes_by_links

from slurm_cluster.faults import FAKED_CLOCK
from slurm_cluster.hosts import ClusterError, until

pytestmark = pytest.mark.cluster

# The last column is what 22.05 and 23.11 do: they find the double link in every form.
STOCK_CHOICES = {
    "--gres=gpu:2": ((0, 1), (0, 3)),  # the two lowest GPUs, one NVLink apart
    "--gpus-per-node=2": ((0, 1), (0, 3)),
    "--gpus=2": ((0, 3), (0, 3)),  # finds the double link
    "--gres=gpu:3": ((0, 1, 2), (0, 1, 3)),
}


def test_stock_slurm_on_an_empty_dgx1(cluster):
    """With correct Links stock Slurm still chooses mostly by index: the baseline."""
    cluster.switch("stock")
    for asked, (usual, linked) in STOCK_CHOICES.items():
        expected = linked if goes_by_links(cluster) else usual
        jobid = cluster.sbatch("-w", "dgx1", asked, sleep_s=30)
        assert cluster.wait_running(jobid).gpus == {"dgx1": expected}, asked
        assert cluster.visible_gpus(jobid) == expected
        cluster.cancel(jobid)
        cluster.wait_idle()


def test_accounting_remembers_who_used_how_many_gpus(cluster):
    """sacct answers from slurmdbd with the user, the account and gres/gpu."""
    jobid = cluster.sbatch("-w", "minsky1", "--gres=gpu:3")
    assert cluster.wait_finished(jobid).state == "COMPLETED"
    row = cluster.run("ctl", f"sacct -n -P -X -j {jobid} -o user,account,alloctres").out.strip()
    assert row.startswith("alice|research|")
    assert "gres/gpu=3" in row


def test_nodes_have_none_of_our_files(cluster):
    config = cluster.run("ctl", "cat /etc/slurm/slurm.conf").out
    for node in GPUS:
        assert cluster.run(node, OURS_ON_A_NODE).out == ""
        assert cluster.run(node, "cat /etc/slurm/slurm.conf").out == config


@pytest.mark.select_plugin
def test_an_engine_or_slurmctld_that_was_started_knows_the_nodes(cluster):
    """So the next job may get any node; without that, each start would take its five seconds."""
    for daemon in ("engine", "slurmctld"):
        assert cluster.run("ctl", ["clusterctl", daemon, "restart"]).err == ""
        assert cluster.status()["slurm_nodes"]["nodes"] == len(GPUS)


# kill returns before the process is gone, and a reset that still finds it has nothing to tell.
KILL = "pid=$(clusterctl {} pid); kill -9 $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
CRASHES = {
    "slurmctld ended by itself": ("ctl", KILL.format("slurmctld")),
    "engine ended by itself": ("ctl", KILL.format("engine")),
    "Traceback": ("ctl", "echo 'Traceback (most recent call last):' >>/var/log/gputopo/engine.log"),
    "ended without a successor": (
        "dgx1",
        "pid=$(cat /run/slurmd.pid); kill -9 $pid; until tail -1 /home/slurmd.dgx1.log |"
        " grep -q successor; do sleep 0.2; done; slurmd",
    ),
}


@pytest.mark.parametrize("said", CRASHES)
def test_what_ended_or_crashed_by_itself_is_told_at_the_next_reset(cluster, said):
    """It is reported once; a crash that the test announced is not reported."""
    host, crash = CRASHES[said]
    cluster.run(host, crash)
    with pytest.raises(ClusterError, match=said):
        cluster.reset()
    cluster.reset()
    cluster.run("ctl", "echo 'fatal: on purpose' >>/var/log/slurm/slurmctld.log")
    cluster.expects("fatal: on purpose")
    cluster.reset()


#: Prints how many seconds a wait of 0.05 s on the monotonic clock took, as the one for Python's
#: global lock is made.
WAITS = """
import ctypes, time
libc, monotonic = ctypes.CDLL(None), 1
attributes, condition, mutex = (ctypes.create_string_buffer(256) for _ in range(3))
libc.pthread_condattr_init(attributes)
libc.pthread_condattr_setclock(attributes, monotonic)
libc.pthread_cond_init(condition, attributes)
libc.pthread_mutex_init(mutex, None)
libc.pthread_mutex_lock(mutex)
began = time.monotonic()
seconds, rest = divmod(began + 0.05, 1)
libc.pthread_cond_timedwait(condition, mutex, (ctypes.c_long * 2)(int(seconds), int(rest * 1e9)))
print(time.monotonic() - began)
"""


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_a_process_with_a_clock_of_its_own_waits_as_long_as_ever(cluster, hours):
    """Else the threads of an engine with such a clock keep each other from their work."""
    with cluster.clock_of() as set_to:
        set_to(hours)
        waited = cluster.run("ctl", ["python3", "-c", WAITS], env=FAKED_CLOCK, timeout_s=20).out
    assert float(waited) >= 0.05


def test_a_node_that_was_silent_once_is_asked_again_at_the_next_reset(cluster):
    """Slurm itself would ask it SlurmdTimeout / 3 later, and give it no job until then."""
    state = "sinfo -h -p gpu -n amd1 -o %T"
    update = "scontrol update nodename=amd1 state="
    # Asked now, so that Slurm's own next ping is not soon.
    cluster.run("ctl", f"{update}undrain")
    until(lambda: cluster.run("ctl", state).out.strip() == "idle", "amd1 answers", 60)
    cluster.run("ctl", f"{update}noresp")
    assert cluster.run("ctl", state).out.strip() == "idle*"
    cluster.reset()


def test_a_slurmd_that_was_reconfigured_is_ended_and_comes_back(cluster):
    """Slurm has then started it anew from its file, which Debian calls slurmd-wlm."""
    cluster.expects("ended without a successor")
    end = "kill $(pidof slurmd); while pidof slurmd; do sleep 0.1; done"
    start = "exec -a slurmd $(readlink -f $(command -v slurmd))"
    cluster.run("dgx1", ["bash", "-c", f"{end}; {start}"])
    with cluster.without("slurmd", "dgx1"):
        assert cluster.run("dgx1", "pidof slurmd", check=False).code
    assert cluster.run("dgx1", "pidof slurmd").out
