"""What the metrics say of a snapshot, told by small queues."""

from dataclasses import replace

import jobs_in_tests
import pytest

from gres_topology.slurm_files import topology_shown
from gres_topology.slurm_files.network import Networks
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot
from slurm_plugin.serve.site_figures import MAX_REASONS, figures_of
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition

NOW = 1_800_000_000
FIT_NOWHERE = QueuedJob(
    *(9, "9"),
    state="PENDING",
    reason="Resources",
    priority=1,
    partition="gpu",
    tres_per_node="gres/gpu:4",
)
GATE = "[gpu-slots: gated tpn=gpu:2]"


def node(name, used, state="IDLE"):
    return jobs_in_tests.node(name, used, state=(state,), partitions=("gpu",))


def snapshot(nodes=(), jobs=()):
    return Snapshot(0.0, NOW, tuple(jobs), Detail.NODES, tuple(nodes))


def waiting(job_id, **more):
    return replace(FIT_NOWHERE, job_id=job_id, name=str(job_id), **more)


def test_jobs_of_several_nodes_stay_in_one_block_of_those_in_force():
    """Two free nodes, one in each block: the largest job that could start has one."""
    shown = [
        f"BlockName=b{i} BlockIndex={i} Nodes={name} BlockSize=1" for i, name in enumerate("ab")
    ]
    blocks = topology_shown.parse("\n".join(shown), "scontrol")
    there = snapshot([node("a", ()), node("b", ())])
    assert figures_of(there).fragmentation.largest_over_nodes == (2, 8)
    part = SlurmPartition("gpu", ("a", "b"), True)
    settings = Settings((part,), networks=Networks({"": blocks}, blocks))
    known = figures_of(replace(there, settings=settings)).fragmentation
    assert known.largest_over_nodes == (1, 8)


def test_gpus_by_state_and_what_is_stranded():
    nodes = [node("a", (0, 1, 2, 3, 4)), node("b", (0,)), node("c", (0,), "DOWN*")]
    nodes += [node("d", (), "RESERVED")]
    running = QueuedJob(1, state="RUNNING", partition="gpu", gpus={"b": (0,)})
    found = figures_of(snapshot(nodes, [running, FIT_NOWHERE]))
    assert found.gpus == {"used": 7, "free": 10, "closed": 15}
    assert found.fragmentation.by_largest_set == {3: 3, 7: 7}
    assert found.fragmentation.stranded_on == {"a": 3}
    # Half of the jobs, the one that waits, cannot use the three.
    assert found.fragmentation.share == pytest.approx(3 / 2 / 10)
    assert found.jobs == {"running": 1, "waiting": 1}


@pytest.mark.parametrize(
    ("sentence", "job", "reason"),
    [
        ("Slurm's own reason", waiting(1, reason="QOSMaxGRESPerUser"), "QOSMaxGRESPerUser"),
        ("no reason yet", waiting(1, reason=""), "None"),
        ("behind a gate", waiting(1, reason="BeginTime", admin_comment=GATE), "gate"),
        ("gated and held by its user", waiting(1, reason="JobHeldUser", priority=0,
         admin_comment=GATE), "JobHeldUser"),
        ("donors start", waiting(1, reason="BeginTime", admin_comment="[gpu-loan: meets remote=1]"),
         "loan"),
        ("a policy waits", waiting(1, reason="BeginTime",
         admin_comment="[gpu-topo: | waiting 1/3 since 5: mapa: later (until 65, begin 5)]"),
         "postponed"),
        ("a donor that has not started", waiting(1, admin_comment="[gpu-donor: of=7]"), "lends"),
    ],
)  # fmt: skip
def test_what_a_job_waits_for(sentence, job, reason):
    assert figures_of(snapshot(jobs=[job])).waits == {reason: 1}


def test_tasks_of_an_array_count_one_by_one_and_jobs_without_gpus_do_not():
    array = waiting(1, tasks=5)
    plain = waiting(2, tres_per_node="")
    found = figures_of(snapshot(jobs=[array, plain]))
    assert (found.jobs, found.waits) == ({"waiting": 5}, {"Resources": 5})


@pytest.mark.parametrize(
    ("sentence", "job", "heard", "unheard"),
    [
        ("nobody told of it", {"start": NOW - 60}, set(), 1),
        ("it was told of", {"start": NOW - 60}, {1}, 0),
        ("it started before the engine", {"start": NOW - 600}, set(), 0),
        ("its notice may be on the way", {"start": NOW - 1}, set(), 0),
        ("it has no GPUs", {"start": NOW - 60, "gpus": {}}, set(), 0),
    ],
)
def test_jobs_that_slurmctld_did_not_tell_of(sentence, job, heard, unheard):
    running = replace(QueuedJob(1, state="RUNNING", gpus={"a": (0,)}), **job)
    found = figures_of(snapshot(jobs=[running]), heard.__contains__, NOW - 300)
    assert found.unheard == unheard


def test_a_donor_whose_borrower_is_gone():
    donor = QueuedJob(8, state="RUNNING", gpus={"a": (0,)}, admin_comment="[gpu-donor: of=7]")
    assert figures_of(snapshot(jobs=[donor])).orphans == 1
    assert figures_of(snapshot(jobs=[donor, QueuedJob(7, state="RUNNING")])).orphans == 0
    assert figures_of(snapshot(jobs=[replace(donor, state="COMPLETING")])).orphans == 0


def test_very_many_reasons_are_counted_together():
    jobs = [waiting(i, reason=f"R{i}") for i in range(MAX_REASONS + 5)]
    found = figures_of(snapshot(jobs=jobs)).waits
    assert (len(found), found["other"]) == (MAX_REASONS + 1, 5)
