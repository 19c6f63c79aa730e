"""A disk is full for real: that of the engine's own files, and that of slurmctld's state."""

import json
from collections.abc import Iterator

import pytest
from live_harness import CONFIG, IN_BOTH_MODES, Watch, advised_again, configure_engine

from slurm_cluster.cluster import Cluster
from slurm_cluster.faults import SMALL_DISK
from slurm_cluster.hosts import until

pytestmark = [*IN_BOTH_MODES, pytest.mark.long("half a minute"), pytest.mark.timeout(900)]

PAIR = ("-w", "dgx1", "--gres=gpu:2")
DECISIONS = f"{SMALL_DISK}/decisions.jsonl"
STATE = f"{SMALL_DISK}/slurmctld"


@pytest.fixture
def small_disk(watch: Watch, cluster: Cluster) -> Iterator[Cluster]:
    """Decision log and state directory are on a small disk."""
    cluster.run("ctl", f"sed -i '/^decision_log:/d' {CONFIG}")
    small = f"decision_log: {{path: {DECISIONS}}}\nstate_dir: {SMALL_DISK}/state"
    configure_engine(cluster, small)
    cluster.wait_reconciled()
    yield cluster
    cluster.engine("stop")
    cluster.run("ctl", f"rm -rf {SMALL_DISK}/*")


def test_the_engines_disk_is_full(small_disk):
    """Placement goes on; log lines are lost and counted, and one line says so."""
    said = "going on without it"
    at_start = small_disk.engine_log(10_000).count(said)
    advised_again(small_disk)
    with small_disk.full_disk():
        # What is left of the file's last block holds a few lines still.
        until(
            lambda: advised_again(small_disk) or small_disk.status()["decisions_lost"], "lost", 60
        )
        advised_again(small_disk)
        lost = small_disk.status()["decisions_lost"]
    before = small_disk.engine_log(10_000).count(said)
    output = small_disk.started(*PAIR, sleep_s=300).id
    small_disk.end([output])
    assert "writing works again" in small_disk.engine_log()
    assert small_disk.status()["decisions_lost"] == lost
    assert small_disk.engine_log(10_000).count(said) == before == at_start + 1
    # Before it is the half line of the moment when the disk was full.
    [*_, last] = small_disk.run("ctl", ["cat", DECISIONS]).out.splitlines()
    assert json.loads(last)["job"] == output
    assert small_disk.run("ctl", ["gputopo", "explain", str(output)]).out


@pytest.fixture
def small_state(watch: Watch, cluster: Cluster) -> Iterator[Cluster]:
    """slurmctld's StateSaveLocation is on a small disk."""
    cluster.run("ctl", f"install -d -o slurm -g slurm {STATE}")
    cluster.configure_extra(f"StateSaveLocation={STATE}")
    yield cluster
    cluster.run("ctl", "squeue -h -o %A | xargs -r scancel")
    cluster.wait_idle()
    cluster.slurmctld("stop")
    cluster.run("ctl", f"rm -rf {SMALL_DISK}/*; rm /cluster/extra.conf; clusterctl reset")


def test_slurmctlds_disk_is_full(small_state):
    """It takes no scripts then; jobs that wait are released and placed, and run on afterwards."""
    kept = small_state.sbatch("-w", "dgx2", "--gres=gpu:3", sleep_s=300)
    holder = small_state.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    gpus = small_state.running_gpus([kept, holder])
    waits = small_state.sbatch(*PAIR, sleep_s=300)
    small_state.wait_reconciled()
    with small_state.full_disk():
        refused = small_state.run("ctl", "sbatch --gres=gpu:1 --wrap true", check=False)
        assert refused.code, refused.out
        small_state.cancel(holder)
        small_state.wait_running(waits)
        # A job without a script needs no disk.
        shown = small_state.run("ctl", "srun -w minsky1 --gres=gpu:1 true", check=False)
        assert not shown.code, shown.err
    again = small_state.sbatch("-w", "bridged1", "--gres=gpu:2", sleep_s=300)
    placed = small_state.running_gpus([waits, again])
    newer = f"[ {STATE}/job_state -nt {STATE}/../filled ]"
    small_state.run("ctl", f"touch {SMALL_DISK}/filled")
    small_state.cancel(small_state.sbatch("-H", "-n1", script="true"))
    until(lambda: not small_state.run("ctl", newer, check=False).code, "the state is saved", 60)
    small_state.slurmctld("kill")
    small_state.slurmctld("start")
    assert small_state.running_gpus([kept, waits, again]) == [gpus[0], *placed]
