"""Limits and partitions that keep a job: whose they are, and what they allow, in words."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import License, Limit, QueuedJob
from slurm_plugin.tell.why.answer import answer
from slurm_plugin.tell.why.reasons import licence_lacking
from slurm_plugin.tell.why.state import Extras, WaitingState
from tests.slurm_plugin.tell.why.test_answer import JOB, NOW, node, sentence, state

#: The account above each account.
ABOVE = {"research": "faculty", "faculty": "university", "university": "root"}


def in_partition(found: WaitingState, **changes: Any) -> WaitingState:
    """The state with another partition."""
    parts = tuple(replace(one, **changes) for one in found.snapshot.settings.partitions)
    settings = Settings(parts, {"AccountingStorageEnforce": "associations,limits,qos"})
    return replace(found, snapshot=replace(found.snapshot, settings=settings))


@pytest.mark.parametrize(
    ("reason", "limit", "says"),
    [
        ("AssocMaxGRESPerJob", Limit("account research", "MaxTRESPJ", "gres/gpu", 2),
         "asks for more than one job of account research may have: 2 GPUs."),
        ("QOSGrpCpuLimit", Limit("QOS normal", "GrpTRES", "cpu", 8, 8),
         "waits because QOS normal may use 8 CPUs at a time, and 8 CPUs are in use."),
        ("QOSMaxGRESPerUser", Limit("user 1000 in QOS normal", "MaxTRESPU", "gres/gpu", 2, 2),
         "waits because user alice in QOS normal may use 2 GPUs at a time, and 2 GPUs are in use."),
        ("AssocGrpCPURunMinutesLimit", Limit("account research", "GrpTRES", "cpu", 8, 8),
         "waits because of a limit on its account or user, which Slurm calls"
         " AssocGrpCPURunMinutesLimit."),
        ("AssocGrpGRESMinutes", Limit("account research", "GrpTRESMins", "gres/gpu", 600, 640),
         "waits because account research may use 600 GPU minutes in all, and 640 GPU minutes were"
         " used."),
        ("AssocGrpGRESMinutes", Limit("account research", "GrpTRES", "gres/gpu", 6, 6),
         "waits because of a limit on its account or user, which Slurm calls"
         " AssocGrpGRESMinutes."),
        ("AssocGrpGRES", Limit("account faculty", "GrpTRES", "gres/gpu", 8, 8),
         "waits because account faculty, which is above account research, may use 8 GPUs at a time,"
         " and 8 GPUs are in use."),
        ("QOSMinGRES", Limit("QOS normal", "MinTRESPJ", "gres/gpu", 8),
         "asks for less than a job of QOS normal has to: 8 GPUs."),
        ("MaxGRESPerAccount",
         Limit("account research in QOS normal", "MaxTRESPA", "gres/gpu", 2, 2),
         "waits because account research in QOS normal may use 2 GPUs at a time, and 2 GPUs are in"
         " use."),
        ("QOSGrpGRES", Limit("QOS shared", "GrpTRES", "gres/gpu", 2, 2),
         "waits because QOS shared, the QOS of partition gpu, may use 2 GPUs at a time, and 2 GPUs"
         " are in use."),
        ("AssocGrpGRES", Limit("account others", "GrpTRES", "gres/gpu", 8, 8),
         "waits because of a limit on its account or user, which Slurm calls AssocGrpGRES."),
    ],
)  # fmt: skip
def test_limits_in_words(reason, limit, says):
    job = replace(JOB, reason=reason, qos="normal")
    found = state(job, limits=(limit,), parents=ABOVE)
    assert answer(in_partition(found, qos="shared")).sentence == f"Job 14 {says}"


@pytest.mark.parametrize(
    ("reason", "partition", "says"),
    [
        ("Resources", {"allow_accounts": ("physics",)},
         "partition gpu is for account physics alone, and the job is of account research."),
        ("Priority", {"deny_accounts": ("university",)},
         "partition gpu is closed to account university."),
        ("AccountNotAllowed", {"allow_groups": ("admins", "staff")},
         "partition gpu is for groups admins, staff alone, and user alice is not in them."),
        ("QOSNotAllowed", {"allow_qos": ("high", "long")},
         "partition gpu is for QOS high, long alone, and the job has QOS normal."),
        ("QOSNotAllowed", {"deny_qos": ("normal",)}, "partition gpu is closed to QOS normal."),
        ("PartitionConfig", {"allow_groups": ("admins",)},
         "partition gpu is for group admins alone, and user alice is not in it."),
        ("PartitionConfig", {}, "its partition's settings rule it out."),
        ("Job's account not permitted to use this partition", {},
         "its partition does not take its user's jobs."),
    ],
)  # fmt: skip
def test_who_may_use_a_partition_in_words(reason, partition, says):
    found = state(replace(JOB, reason=reason, qos="normal"), parents=ABOVE)
    assert answer(in_partition(found, **partition)).sentence == f"Job 14 cannot start: {says}"


def test_a_rule_on_accounts_is_not_judged_where_the_accounts_above_are_not_known():
    found = in_partition(state(), allow_accounts=("faculty",))
    assert "4 free GPUs on one node" in answer(found).sentence
    assert (
        "4 free GPUs on one node" in answer(replace(found, extras=Extras(parents=ABOVE))).sentence
    )


@pytest.mark.parametrize("reason", ["", "None", "BeginTime"])
def test_before_slurm_looks_at_a_job_its_licences_and_limits_are_asked_for(reason):
    """After a submit or an update there is no reason yet; room alone does not start the job."""
    job = replace(JOB, reason=reason, tres_per_node="gres/gpu:1", licenses="matlab:1")
    none_free = (License("matlab", 1, 0),)
    waits = "waits for a licence: none of 1 matlab is free, and it needs 1."
    assert sentence(job, licenses=none_free) == f"Job 14 {waits}"
    one_free = (License("matlab", 1, 1),)
    assert "fits on dgx1 now" in sentence(job, licenses=one_free)
    later = replace(job, eligible=int(NOW) + 1)
    assert "is not to start before" in sentence(later, licenses=none_free)
    # What backfill plans is no begin time.
    planned = replace(job, eligible=int(NOW) - 5, start=int(NOW) + 3)
    assert sentence(planned, licenses=none_free) == f"Job 14 {waits}"


@pytest.mark.parametrize(
    "reason",
    ["ReservationDeleted", "Reservation class was deleted", "Reservation class is invalid"],
)
def test_a_job_whose_reservation_is_gone_is_held_whatever_is_free(reason):
    """JSON has the code, squeue's table the sentence."""
    job = replace(JOB, reason=reason, priority=0)
    says = "is held by Slurm, for its reservation is gone; once released it runs without one."
    assert sentence(job) == f"Job 14 {says}"


def test_cpus_that_slurm_keeps_from_the_job_are_not_free_to_it():
    """Of 13 free ones four are for other GPUs; its partition may have eight, and uses three."""
    there = node("dgx1", 2, cpus=16, alloc_cpus=3, cpus_by_gpu=1)
    runs = QueuedJob(
        1, state="RUNNING", partition="gpu", nodes=("dgx1",), cpus=3, gpus={"dgx1": (0, 1)}
    )
    asks = replace(JOB, cpus=10, tres_per_node="gres/gpu:2")
    found = state(asks, (there,), (runs,))
    said = answer(found)
    has = "waits although dgx1 has 6 free GPUs: only"
    assert said.sentence == f"Job 14 {has} 9 of the 10 CPUs that it needs are free there."
    what = "dgx1: of its 13 free CPUs 4 are for jobs with more GPUs (RestrictedCoresPerGPU)"
    assert ("withheld", what) in said.evidence
    narrow = answer(in_partition(found, max_cpus_per_node=8))
    says = "waits, as Slurm says, for Resources; as far as is known here no node has 10 CPUs"
    assert narrow.sentence == f"Job 14 {says}."
    less = answer(
        in_partition(state(replace(asks, cpus=6), (there,), (runs,)), max_cpus_per_node=8)
    )
    assert less.sentence == f"Job 14 {has} 5 of the 6 CPUs that it needs are free there."
    assert "5 are left to its partition (MaxCPUsPerNode, MaxCPUsPerSocket)" in str(less.evidence)


def layers(mode: int, *free: int) -> tuple[License, ...]:
    """A hierarchical resource: four of it on all nodes, two on each half of them."""
    nodes = ("dgx[1-4]", "dgx[1-2]", "dgx[3-4]")
    return tuple(
        License("power", 4 if not at else 2, free[at], one, mode) for at, one in enumerate(nodes)
    )


@pytest.mark.parametrize(
    ("sentence", "asked", "there", "lacks"),
    [
        ("one layer suffices", "power:2", layers(1, 0, 2, 0), ""),
        ("no layer has enough", "power:2", layers(1, 0, 1, 0), "1 of 2 power on dgx[1-2]"),
        ("all above a node count: one half is left", "power:2", layers(2, 4, 0, 2), ""),
        ("each half lacks", "power:2", layers(2, 3, 0, 1), "1 of 2 power on dgx[3-4]"),
        ("what all nodes share lacks", "power:2", layers(2, 1, 2, 2), "1 of 4 power on dgx[1-4]"),
        ("by node and path, too", "power:2", layers(3, 1, 2, 2), "1 of 4 power on dgx[1-4]"),
        ("a layer that the job names", "power(dgx[1-2]):2", layers(1, 0, 2, 0), ""),
        ("one of two licences suffices", "matlab:1|comsol:1",
         (License("comsol", 1, 1), License("matlab", 1, 0)), ""),
        ("neither of two is free", "matlab:1|comsol:1",
         (License("comsol", 1, 0), License("matlab", 1, 0)), "none of 1 matlab"),
        ("both are needed", "matlab:1,comsol:1",
         (License("comsol", 1, 1), License("matlab", 1, 0)), "none of 1 matlab"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_licence_lacks_where_no_layer_of_it_is_left(sentence, asked, there, lacks):
    found = licence_lacking(state(replace(JOB, licenses=asked), licenses=there))
    told = found.text if found else ""
    assert lacks in told
    assert bool(lacks) == bool(told)


def test_a_layered_licence_that_lacks_is_told_where_slurm_says_nodes():
    """As 26.05 does: the nodes below a layer that lacks are left out."""
    asked = {"tres_per_node": "gres/gpu:1", "licenses": "power:2"}
    job = replace(JOB, reason="ReqNodeNotAvail", cpus=1, **asked)
    says = "waits for a licence: 1 of 4 power on dgx[1-4] is free, and it needs 2."
    assert sentence(job, licenses=layers(2, 1, 1, 0)) == f"Job 14 {says}"
    assert "licence" not in sentence(job, licenses=layers(2, 4, 2, 0))
