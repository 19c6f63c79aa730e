"""What a job would get that is not submitted: the policy's GPUs, the waits, Slurm's own word."""

from dataclasses import replace
from typing import Any

import pytest
from machines_in_tests import basic_decider

from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import Rule
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import Limit, QueuedJob, SlurmPartition
from slurm_plugin.tell.why.read import SbatchSays
from slurm_plugin.tell.why.request import (
    NotJudged,
    NotTried,
    TriedJob,
    options_of,
    tried_job,
)
from slurm_plugin.tell.why.trial import Trial, not_judged, trial
from tests.slurm_plugin.tell.why.test_answer import JOB, node, state

SETTINGS = Settings(
    (SlurmPartition("gpu", ("dgx1", "dgx2"), True, default_time_s=600),),
    {"DefMemPerCPU": "50", "PrivateData": "none"},
)


def asked(*argv: str, nodes: Any = (), others: Any = (), **more: Any) -> TriedJob:
    """What sbatch would make of these options, as the last of the jobs that wait."""
    nobodys = QueuedJob(0, user="alice", uid=1000, account="research", qos=more.pop("qos", ""))
    site = state(nobodys, nodes, others, **{"settings": SETTINGS, **more})
    snapshot = replace(site.snapshot, jobs=tuple(others))
    return tried_job(options_of(argv, {})[0], replace(site, snapshot=snapshot))


def test_a_job_waits_for_the_node_that_it_names_beside_others_that_are_free():
    busy = (node("dgx1", 0), node("dgx2", 0), node("dgx3", 5))
    wanted = ("-N2", "--gres=gpu:8")
    assert trial(asked(*wanted, nodes=busy), None).starts_now
    found = trial(asked(*wanted, "-w", "dgx3", nodes=busy), None)
    assert found.sentence == (
        "It would not start now: it waits for 2 nodes with all that it asks for at once."
    )


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ("--gres=gpu:1,nic:1", "only GPUs of one type are judged"),
        ("--gres=gpu:1 --gpus-per-node=1", "two requests for GPUs together are not judged"),
        ("--gpus=2 --gres=gpu:1", "two requests for GPUs together are not judged"),
        ("-H -d afterok:1", "--dependency, --hold are not judged"),
        ("--array=1-3", "--array is not judged"),
        ("--nice=5 --contiguous", "--nice is not judged"),
        ("--switches=1 --gpus=1", "--switches is not judged"),
        ("--gres-flags=enforce-binding --gpus=1", "--gres-flags is not judged"),
        ("-n6 --mem-per-gpu=400", "--mem-per-gpu without a request for GPUs is not judged"),
        ("-p gpu -H job.sh --array=1", "--hold is not judged"),
    ],
)
def test_what_is_sbatchs_and_not_judged_is_left_to_slurm(tmp_path, monkeypatch, argv, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    with pytest.raises(NotJudged) as error:
        tried(argv, (node("dgx1", 0),))
    outcome = not_judged(error.value)
    for says in (SbatchSays(), SbatchSays("Job 3 to start at once", True, in_s=0.0)):
        assert outcome.beside(says).starts_now is None
        assert why in outcome.beside(says).sentence
    says = SbatchSays("Job 3 to start at some time", True, in_s=900.0)
    assert outcome.beside(says).sentence == (
        "It would not start now, as Slurm says: Job 3 to start at some time."
    )


#: What Slurm's test says, and what then is said of a job of which more is asked than is judged.
SLURM_SAYS = {
    SbatchSays("Job 3 to start at once", True, in_s=0.0): (
        True,
        "It would start now, as Slurm says; ",
    ),
    SbatchSays("Job 3 to start then", True, in_s=900.0): (False, "It would not start now, as"),
    SbatchSays("no such nodes", False): (False, "It would not start now, as Slurm says: no such"),
    SbatchSays(): (None, "Whether it would start now is not known here: "),
}


@pytest.mark.parametrize("says", SLURM_SAYS)
@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ("--segment=2 --gpus=1", "--segment is not judged"),
        ("--exclusive=user", "--exclusive=user is not judged"),
        ("--exclusive=TOPO -B 2:1", "--exclusive=TOPO, --extra-node-info are not judged"),
        ("--mem=0 --gpus=1", "--mem=0 is not judged"),
        ("--mincpus=4", "--mincpus is not judged"),
    ],
)
def test_which_nodes_a_job_may_have_slurms_own_test_says(argv, why, says):
    starts, begins = SLURM_SAYS[says]
    outcome = tried(argv, (node("dgx1", 0),)).beside(says)
    assert (outcome.starts_now, outcome.unsure) == (starts, why)
    assert outcome.sentence.startswith(begins)
    assert not outcome.gpus


def test_slurms_test_tells_no_start_now_where_others_wait_or_room_is_lacking():
    """It looks at no job that waits; and what is said to start now, both have to find."""
    now = SbatchSays("Job 3 to start at once", True, in_s=0.0)
    waits = replace(JOB, job_id=7, tres_per_node="gres/gpu:1", partition="gpu")
    with pytest.raises(NotJudged, match="--contiguous is not judged"):
        tried("--gres=gpu:2 --contiguous", [node("dgx1", 0)], others=[waits])
    hides = replace(SETTINGS, config={"PrivateData": "jobs"})
    with pytest.raises(NotJudged, match="--contiguous is not judged"):
        trial(asked("--contiguous", nodes=[node("dgx1", 0)], settings=hides), None)
    lacking = tried("--gres=gpu:9 --contiguous", [node("dgx1", 0)])
    assert lacking.beside(now).starts_now is None
    assert lacking.beside(now._replace(would_start=False)).never


def test_of_a_job_that_may_wait_for_better_gpus_slurms_test_tells_no_start(tmp_path):
    """It asks no policy, which may find others than were looked at here."""
    decider, nodes = basic_decider(tmp_path), [node("dgx1", 0)]
    assert tried("--gres=gpu:2 --tmp=5G", nodes, decider=decider).starts_now
    with pytest.raises(NotJudged, match="--tmp is not judged"):
        tried("--gres=gpu:2 --tmp=5G --gpu-topo=min-utility=0.9", nodes, decider=decider)


ALICE = "user alice in QOS normal"


@pytest.mark.parametrize(
    ("argv", "limit", "outcome"),
    [
        ("-t 60 --gres=gpu:2", ("QOS normal", "GrpTRESMins", "gres/gpu", 600, 640), "waits"),
        ("-t 60 --gres=gpu:2", ("QOS normal", "GrpTRESMins", "gres/gpu", 600, 500), "unknown"),
        ("-t 30 --gres=gpu:2", ("QOS normal", "GrpTRESMins", "gres/gpu", 600, 500), "starts"),
        ("-t 600 --gres=gpu:4", ("QOS normal", "GrpTRESRunMins", "gres/gpu", 100, 0), "waits"),
        ("-t 600 --gres=gpu:4", ("QOS normal", "MaxTRESMinsPJ", "gres/gpu", 100, None), "waits"),
        ("-t 10 --gres=gpu:4", ("QOS normal", "MaxTRESMinsPJ", "gres/gpu", 100, None), "starts"),
        ("-t 600", ("QOS normal", "MaxWallPJ", "minutes", 60, None), "waits"),
        ("-t 60", ("QOS normal", "MaxWallPJ", "minutes", 60, None), "starts"),
        ("-t 60", ("QOS normal", "GrpWall", "minutes", 60, 60), "waits"),
        ("--gres=gpu:4", ("QOS normal", "MaxTRESPN", "gres/gpu", 2, None), "waits"),
        ("-N2 --gres=gpu:2", ("QOS normal", "MaxTRESPN", "gres/gpu", 2, None), "starts"),
        ("--gres=gpu:1", ("QOS normal", "MinTRESPJ", "gres/gpu", 2, None), "waits"),
        ("--gres=gpu:1", ("QOS normal", "GrpTRES", "billing", 100, 100), "waits"),
        ("--gres=gpu:1", ("QOS normal", "GrpTRES", "billing", 100, 10), "unknown"),
        ("--gres=gpu:v100:1", (ALICE, "MaxTRESPU", "gres/gpu:v100", 2, 2), "waits"),
        ("--gres=gpu:1", (ALICE, "MaxTRESPU", "gres/gpu:a100", 2, 1), "unknown"),
        ("-n1", (ALICE, "MaxTRESPU", "gres/gpu:a100", 2, 2), "starts"),
        ("--gres=gpu:1", ("QOS another", "GrpTRES", "billing", 100, 100), "starts"),
        ("--mincpus=32", ("QOS normal", "MaxTRESPJ", "cpu", 40, None), "unknown"),
        ("--mincpus=32", (ALICE, "MaxJobsPU", "jobs", 4, 1), "starts"),
    ],
)
def test_a_limit_is_held_against_what_it_counts(argv, limit, outcome):
    limits = (Limit(*limit),)
    nodes = [node("dgx1", 0), node("dgx2", 0)]
    if outcome == "unknown":
        with pytest.raises(NotJudged, match="has a limit on"):
            tried(argv, nodes, qos="normal", limits=limits)
        return
    assert tried(argv, nodes, qos="normal", limits=limits).starts_now is (outcome == "starts")


def test_what_is_sure_is_said_of_what_is_not_judged_too(tmp_path):
    nodes = (node("dgx1", 0),)
    found = tried("--switches=2 --gpu-topo=bad=1", nodes, decider=basic_decider(tmp_path))
    assert found.sentence.startswith("sbatch would refuse it: gpu-topo: ")


def tried(
    argv: str, nodes: Any, others: Any = (), decider: Any = None, lending: Any = None, **more: Any
) -> Trial:
    """`argv` is split at blanks; a hint is given by `--gpu-topo=KEY=VALUE`."""
    return trial(asked(*argv.split(), nodes=nodes, others=others, **more), decider, lending)


def test_a_job_that_fits_starts_and_one_that_does_not_is_told_why():
    nodes = (node("dgx1", 5), node("dgx2", 5))
    found = tried("--gres=gpu:2", nodes)
    assert found.starts_now
    assert list(found.gpus) == ["dgx1"]
    found = tried("--gres=gpu:4", nodes)
    assert not found.starts_now
    assert "6 are free, but never 4 on one node (dgx1 3, dgx2 3)" in found.sentence


def test_a_start_that_slurm_puts_off_is_none_now():
    found = tried("--gres=gpu:2", [node("dgx1", 0)])
    later = found.beside(SbatchSays("Job 3 to start at some time", True, in_s=900.0))
    assert later.sentence == "It would not start now, as Slurm says: Job 3 to start at some time."
    assert not later.starts_now
    assert found.beside(SbatchSays("Job 3 to start at some time", True)) == found


@pytest.mark.parametrize(
    ("others", "hides", "in_s", "is_sure"),
    [
        ([], "none", 900.0, True),
        ([{"partition": "gpu"}], "none", 300.0, False),
        ([{"partition": "gpu"}], "none", 331.0, True),
        ([{"partition": "gpu,other", "reason": "QOSMaxGRESPerUser"}], "none", 300.0, False),
        ([{"partition": "gpu", "time_limit_s": 0}], "none", 1e9, False),
        (
            [{"partition": "other"}, {"priority": 0}, {"state": "RUNNING"}],
            "none",
            31.0,
            True,
        ),
        ([], "jobs", 900.0, False),
    ],
)
def test_what_slurm_adds_for_jobs_that_wait_keeps_no_job_from_starting_now(
    others, hides, in_s, is_sure
):
    """Half of the partition's CPUs for ten minutes are five minutes more, be it over a limit."""
    fits = asked("--gres=gpu:2", nodes=[node("dgx1", 0)])
    one = replace(JOB, cpus=8, min_nodes=1, time_limit_s=600)
    both = tuple(node(name, 0) for name in ("dgx1", "dgx2"))
    jobs = tuple(replace(one, job_id=i, **more) for i, more in enumerate(others, 5))
    settings = replace(SETTINGS, config={"PrivateData": hides})
    snapshot = replace(fits.state.snapshot, jobs=jobs, nodes=both, settings=settings)
    later = SbatchSays("Job 3 to start at some time", True, in_s=in_s)
    for partition in ("gpu", ""):
        says = later.beside(snapshot, partition)
        assert says.is_later is (True if is_sure else None)
        assert trial(fits, None).beside(says).starts_now is not is_sure
    now = later._replace(in_s=5.0)
    assert now.beside(snapshot, "gpu") == now


def test_a_guess_says_nothing_of_a_job_that_only_slurm_can_judge():
    outcome = tried("--gres=gpu:2 --contiguous", [node("dgx1", 0)])
    guess = SbatchSays("Job 3 to start at some time", True)
    assert outcome.beside(guess).starts_now is None


@pytest.mark.parametrize(
    ("argv", "others_cpus", "is_judged"),
    [
        ("-p narrow --gpus=2 -n4", 0, True),
        ("-p narrow --gpus=2 -n4", 5, False),
        ("-p gpu --gpus=2 -n4", 5, True),
    ],
)
def test_where_releases_count_a_partitions_cpus_differently_slurm_alone_knows(
    argv, others_cpus, is_judged
):
    """No job of the partition runs: 24.11.1 to 25.05.2 count the CPUs of all others as its own."""
    nodes = [node("dgx1", 0, partitions=("gpu", "narrow"), alloc_cpus=others_cpus)]
    narrow = SlurmPartition("narrow", ("dgx1",), False, max_cpus_per_node=4)
    settings = replace(SETTINGS, partitions=(*SETTINGS.partitions, narrow))
    site = asked(*argv.split(), nodes=nodes, settings=settings)
    if is_judged:
        assert trial(site, None).starts_now
        return
    empty = replace(nodes[0], name="dgx2", alloc_cpus=0)
    beside = asked(*argv.split(), nodes=[*nodes, empty], settings=settings)
    assert list(trial(beside, None).gpus) == ["dgx2"]
    found = trial(site, None)
    assert "how many CPUs are left to its partition" in found.unsure
    assert found.beside(SbatchSays()).starts_now is None
    assert found.beside(SbatchSays("Job 3 to start at once", True, in_s=0.0)).starts_now


AHEAD = replace(JOB, job_id=7, partition="gpu", tres_per_node="gres/gpu:1")
MEETS = LoanRecord("meets", {}).changed(loan=Loan("dgx1", 1, (LoanDonor("dgx2", 1, 31),)).text())


@pytest.mark.parametrize(
    "ahead",
    [
        replace(AHEAD, min_nodes=2, cpus=6),
        replace(AHEAD, cpus=3, eligible=2_000_000, admin_comment=MEETS.text()),
    ],
    ids=["a job of two nodes", "one that meets its donor"],
)
def test_what_jobs_ahead_are_to_hold_counts_against_their_partitions_limits(ahead):
    """Each has three CPUs of dgx1; the partition allows its jobs four of a node."""
    nodes = (node("dgx1", 0), node("dgx2", 0))
    for most, gets in ((4, False), (5, True), (0, True)):
        narrow = replace(SETTINGS.partitions[0], max_cpus_per_node=most)
        more = {"others": (ahead,), "settings": replace(SETTINGS, partitions=(narrow,))}
        found = trial(asked("--gres=gpu:1", "-c2", "-w", "dgx1", nodes=nodes, **more), None)
        assert found.starts_now == gets, (most, found.sentence)


@pytest.mark.parametrize(
    ("argv", "would_start", "says"),
    [
        ("--gres=gpu:16", True,
         "Slurm would start it, now or later; as far as is known here no node has 16 GPUs."),
        ("--gres=gpu:16", False, "It would never start as it is: no node has 16 GPUs."),
        ("--gres=gpu:16", None, "It would never start as it is: no node has 16 GPUs."),
        ("--gres=gpu:2", False, "It would not start now, as Slurm says: no such thing."),
        ("--gres=gpu:2", None, "It would start now on dgx1"),
    ],
)  # fmt: skip
def test_never_and_now_are_said_only_where_slurm_does_not_say_otherwise(argv, would_start, says):
    outcome = tried(argv, [node("dgx1", 0)]).beside(SbatchSays("no such thing", would_start))
    assert outcome.sentence.startswith(says)
    assert outcome.starts_now == says.startswith("It would start now")
    if not outcome.starts_now and argv == "--gres=gpu:2":
        [(_, by_ours)] = outcome.evidence
        assert by_ours.startswith("It would start now on dgx1")


@pytest.mark.parametrize(
    ("argv", "used", "says"),
    [
        ("--gpus=3 --cpus-per-gpu=6", 0, "It would start now on dgx1, dgx2, on GPUs that Slurm"),
        ("--gpus=9", 0, "It would start now on dgx1, dgx2, on GPUs that Slurm chooses"),
        ("-n20 --gres=gpu:1", 0, "It would start now on dgx1, dgx2"),
        ("--gpus=9", 4, "It would not start now: it waits for 9 free GPUs with their CPUs and"
         " memory: 8 are there."),
        ("-n20 --gres=gpu:1", 8, "It would not start now: it waits for 20 CPUs of nodes that have"
         " 1 free GPU: none is there."),
        ("--gpus=3 -w dgx1,dgx2", 0, "It would start now on dgx1, dgx2, on GPUs that"),
        ("--gpus=3 --cpus-per-gpu=6 -w dgx1,dgx2", 0, "It would start now on dgx1, dgx2, on"),
        ("--gpus-per-node=2 -w dgx1,dgx2", 0, "It would start now on dgx1: "),
        ("--gpus=17", 0, "It would never start as it is: it needs 17 GPUs, and all nodes together"
         " have 16 for it."),
    ],
)  # fmt: skip
def test_what_is_counted_for_the_whole_job_slurm_takes_of_several_nodes(tmp_path, argv, used, says):
    nodes = [node("dgx1", used), node("dgx2", used)]
    found = tried(argv, nodes, decider=basic_decider(tmp_path))
    assert found.sentence.startswith(says)


def test_of_gpus_that_slurm_spreads_it_is_not_known_what_they_are_worth(tmp_path):
    nodes = [node("dgx1", 0), node("dgx2", 0)]
    with pytest.raises(NotJudged, match="which GPUs Slurm takes of each node"):
        tried("--gpus=9 --gpu-topo=min-utility=0.9", nodes, decider=basic_decider(tmp_path))


def test_jobs_that_wait_and_fit_take_their_gpus_first():
    nodes = (node("dgx1", 5), node("dgx2", 5))
    first = replace(JOB, job_id=1, name="1", user="bob", tres_per_node="gres/gpu:3")
    assert list(tried("--gres=gpu:2", nodes, (first,)).gpus) == ["dgx2"]
    others = (first, replace(first, job_id=2, name="2"))
    assert not tried("--gres=gpu:2", nodes, others).starts_now


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("-n20", "It would start now on dgx1, dgx2."),
        ("-n6 -c5", "It would start now on dgx1, dgx2."),
        ("-n7 -c5", "It would never start as it is: it needs 35 CPUs, and all nodes together have"
         " 30 for it."),
        ("-n33", "It would never start as it is: it needs 33 CPUs, and all nodes together have 32"
         " for it."),
        ("-N1 -n20", "It would never start as it is: no node has 20 CPUs."),
        ("-p small -n20", "It would never start as it is: no node has 20 CPUs."),
        ("-N2 -n17", "It would start now on dgx1, dgx2."),
        ("-n20 -w dgx2", "It would start now on dgx2, dgx1."),
        ("-n9 --mem-per-cpu=500", "It would start now on dgx1, dgx2."),
        ("-n17 --mem-per-cpu=500", "It would never start as it is: it needs 17 CPUs, and all nodes"
         " together have 16 for it."),
        ("-n20 -x dgx1", "It would never start as it is: it needs 20 CPUs, and all nodes together"
         " have 16 for it."),
    ],
)  # fmt: skip
def test_tasks_without_gpus_are_spread_over_nodes(argv, says):
    """16 CPUs and 4000 MB each; partition small gives a job one node."""
    nodes = [node(name, 5, partitions=("gpu", "small")) for name in ("dgx1", "dgx2")]
    small = SlurmPartition("small", ("dgx1", "dgx2"), False, max_nodes=1)
    settings = replace(SETTINGS, partitions=(*SETTINGS.partitions, small))
    assert trial(asked(*argv.split(), nodes=nodes, settings=settings), None).sentence == says


def test_as_many_tasks_on_each_node_need_their_cpus_on_each():
    nodes = (node("dgx1", 0, alloc_cpus=12), node("dgx2", 0))
    assert tried("-N2 -n12", nodes).starts_now
    assert not tried("-N2 --ntasks-per-node=6", nodes).starts_now
    assert tried("-N2 --ntasks-per-node=4", nodes).starts_now


def test_tasks_without_gpus_wait_for_cpus_of_all_nodes_together():
    found = tried("-n23", (node("dgx1", 0, alloc_cpus=10), node("dgx2", 0)))
    assert found.sentence == "It would not start now: it waits for 23 CPUs: 22 are there."


def test_a_long_queue_is_not_guessed_at_and_jobs_that_never_fit_do_not_count():
    nodes = (node("dgx1", 5), node("dgx2", 5))
    never = [replace(JOB, job_id=i, tres_per_node="gres/gpu:16") for i in range(1, 900)]
    assert tried("--gres=gpu:2", nodes, never).starts_now
    many = [replace(JOB, job_id=i, tres_per_node="gres/gpu:1") for i in range(1, 900)]
    with pytest.raises(NotTried, match="899 jobs wait already"):
        tried("--gres=gpu:2", nodes, many)


def slot_node(name: str, used: tuple[int, ...]) -> Any:
    types = {f"v100.s{i}": 1 for i in range(8)}
    in_use = {kind: int(i in used) for i, kind in enumerate(types)}
    return replace(node(name, 0), gpus=types, used=used, used_by_type=in_use)


@pytest.mark.parametrize("slots", [False, True], ids=["select", "slots"])
@pytest.mark.parametrize(
    ("argv", "used", "gpus"),
    [
        ("--gres=gpu:2", (), {"dgx1": {0, 3}}),
        ("--gres=gpu:2", (0, 3), {"dgx1": {1, 2}}),
        ("--gpus=8", (), {"dgx1": set(range(8))}),
    ],
)
def test_the_gpus_are_those_of_the_policy(tmp_path, slots, argv, used, gpus):
    one = slot_node("dgx1", used) if slots else replace(node("dgx1", 0), used=used)
    found = tried(argv, (one,), decider=basic_decider(tmp_path))
    assert {name: set(some) for name, some in found.gpus.items()} == gpus
    assert found.effbw_gbps
    assert found.effbw_gbps > 0


def test_of_two_nodes_the_better_pair_counts_unless_a_node_is_named(tmp_path):
    nodes = (replace(node("dgx1", 0), used=(1, 2, 3, 4, 6, 7)), node("dgx2", 0))
    decider = basic_decider(tmp_path)
    assert list(tried("--gres=gpu:2", nodes, decider=decider).gpus) == ["dgx2"]
    assert tried("--gres=gpu:2 -w dgx1", nodes, decider=decider).gpus == {"dgx1": (0, 5)}


def test_a_hint_counts_as_in_a_submit(tmp_path):
    nodes = (replace(node("dgx1", 0), used=(1, 2, 3, 4, 6, 7)),)
    decider = basic_decider(tmp_path)
    found = tried("--gres=gpu:2 --gpu-topo=min-utility=0.9", nodes, decider=decider)
    assert not found.starts_now
    assert "waits for better GPUs: mapa: " in found.sentence
    found = tried("--gres=gpu:2 --gpu-topo=off", nodes, decider=decider)
    assert "on dgx1, on GPUs that Slurm chooses (opted out by hint)" in found.sentence
    hint = asked("--gres=gpu:2", "--comment=gpu-topo: min-utility=0.9", nodes=nodes)
    assert not trial(hint, decider).starts_now


def test_a_hint_that_a_submit_refuses_is_refused(tmp_path):
    decider = basic_decider(tmp_path)
    found = tried("--gres=gpu:2 --gpu-topo=min-utility=2", (node("dgx1", 0),), decider=decider)
    assert not found.starts_now
    assert found.sentence.startswith("sbatch would refuse it: gpu-topo: min-utility: ")


def test_a_job_whose_shape_the_engine_plans_is_not_judged(tmp_path):
    with pytest.raises(NotTried, match="not known before its submit"):
        tried("--gpu-topo=policy=genie", (node("dgx1", 0),), decider=basic_decider(tmp_path))


LENDS = RemoteConfig(allow=True, donor_memory_mb=64)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("--gpus-per-node=4", "1 GPU of dgx2 would get ready, to serve it beside 3 GPUs of dgx1;"
         " it starts when they are"),
        ("--gpus-per-node=7", "nothing would be lent to it now: too few GPUs are free in all"),
        ("--gpus-per-task=2 -n2", "nothing would be lent to it now: each of its tasks wants GPUs"
         " of its own (--gpus-per-task), and lent ones are the job's"),
    ],
)  # fmt: skip
def test_what_is_known_of_a_loan_is_told(tmp_path, argv, says):
    decider = basic_decider(tmp_path)
    decider = replace(decider, rule=lambda *job: Rule(mode="enforce", lends=True))
    nodes = (node("dgx1", 5), node("dgx2", 5))
    found = tried(f"{argv} -N1 --gpu-topo=remote=allow", nodes, (), decider, LENDS)
    assert not found.starts_now
    assert dict(found.evidence)["loan"] == says


@pytest.mark.parametrize("record", [LoanRecord("meets", {}), GateRecord("gated", {"token": "t"})])
def test_gpus_that_are_kept_for_anothers_loan_are_not_free(tmp_path, record):
    """Three GPUs are free on each node; the loan has two of dgx1, and two of dgx2 by its donor."""
    loan = Loan("dgx1", 0b11000000, (LoanDonor("dgx2", 0b11000000, 31),))
    borrower = replace(
        JOB,
        job_id=28,
        name="28",
        uid=1001,
        reason="BeginTime",
        eligible=2_000_000,
        admin_comment=record.changed(loan=loan.text()).text(),
    )
    waits = replace(JOB, job_id=31, uid=1001, req_nodes="dgx2", tres_per_node="gres/gpu:2")
    runs = replace(waits, state="RUNNING", reason="None", nodes=("dgx2",), gpus={"dgx2": (6, 7)})
    decider = basic_decider(tmp_path)
    lent = replace(node("dgx2", 5), used=(*range(5), 6, 7))
    for donor, dgx2 in ((waits, node("dgx2", 5)), (runs, lent)):
        free = (node("dgx1", 5), dgx2)
        assert tried("--gres=gpu:1", free, (borrower, donor), decider).gpus == {"dgx1": (5,)}
        found = tried("--gres=gpu:2", free, (borrower, donor), decider)
        assert "2 are free, but never 2 on one node (dgx1 1, dgx2 1)" in found.sentence
        kept = ("kept", "2 GPUs of dgx1 for job 28, which meets its donors")
        assert kept in found.evidence
    assert tried("--gres=gpu:2", free, (), decider).gpus == {"dgx1": (5, 6)}


def test_slots_of_which_none_are_free_on_both_nodes_are_slurms_own_choice(tmp_path):
    nodes = (slot_node("dgx1", (0, 1, 3, 4, 5)), slot_node("dgx2", (0, 1, 2, 4, 6, 7)))
    found = tried("-N2 --gres=gpu:2", nodes, decider=basic_decider(tmp_path))
    assert found.gpus == {"dgx1": (), "dgx2": ()}


@pytest.mark.parametrize(
    ("argv", "partition", "says"),
    [
        ("", {"state": "DOWN"}, "It would not start now: it waits for partition gpu, which is"
         " DOWN."),
        ("", {"state": "DRAIN"}, "sbatch would refuse it: no job may be submitted to gpu, which is"
         " DRAIN."),
        ("", {"allow_accounts": ("physics", "chemistry")}, "It would never start: partition gpu is"
         " for accounts physics, chemistry alone, and the job is of account research."),
        ("-A physics", {"allow_accounts": ("physics",)}, "It would start now on dgx1."),
        ("-q long", {"deny_qos": ("long",)},
         "It would never start: partition gpu is closed to QOS long."),
        ("", {"allow_groups": ("admins", "staff")}, "It would never start: partition gpu is for"
         " groups admins, staff alone, and user alice is not in them."),
        ("-t 60", {"max_time_s": 600}, "It would never start: it asks for -t 1:00:00, and partition"
         " gpu allows -t 10 at most."),
        ("-t 0", {"max_time_s": 600}, "It would never start: it asks for no time limit, and"
         " partition gpu allows -t 10 at most."),
    ],
)  # fmt: skip
def test_a_partition_that_does_not_take_the_job(argv, partition, says):
    one = replace(SETTINGS.partitions[0], **partition)
    settings = Settings((one,), {"AccountingStorageEnforce": "associations"})
    more = {"parents": {"research": "root"}, "settings": settings}
    found = asked(*argv.split(), nodes=(node("dgx1", 0),), **more)
    assert trial(found, None).sentence == says


@pytest.mark.parametrize(
    ("taken", "limits", "says"),
    [
        ({"allow_groups": ("root",)}, "NO", "It would start now on dgx2."),
        ({"state": "DOWN"}, "NO", "It would start now on dgx2."),
        ({"allow_groups": ("root",)}, "ALL", "It would never start: partition gpu is for group root"
         " alone, and user alice is not in it."),
        ({"state": "DOWN"}, "ALL", "It would start now on dgx2."),
    ],
)  # fmt: skip
def test_of_two_partitions_the_one_that_takes_the_job_counts(taken, limits, says):
    closed = replace(SETTINGS.partitions[0], nodes=("dgx1",), **taken)
    other = SlurmPartition("other", ("dgx2",), False)
    nodes = (node("dgx1", 0), node("dgx2", 0, partitions=("other",)))
    settings = Settings((closed, other), {"EnforcePartLimits": limits})
    found = asked("-p", "gpu,other", nodes=nodes, settings=settings)
    assert trial(found, None).sentence == says


@pytest.mark.parametrize(
    ("user", "uid", "starts"),
    [("root", 0, True), ("slurm", 64030, True), ("alice", 1000, False), ("daemon", 1, True)],
)
def test_a_partition_for_groups_takes_their_users_root_and_slurms_own(user, uid, starts):
    """The group of a user's own name is in every /etc/group."""
    group = "daemon" if user == "daemon" else "nobodys"
    one = replace(SETTINGS.partitions[0], allow_groups=(group,))
    settings = Settings((one,), {"SlurmUser": "slurm(64030)"})
    found = asked(nodes=(node("dgx1", 0),), settings=settings)
    theirs = replace(found.state, job=replace(found.state.job, user=user, uid=uid))
    assert trial(replace(found, state=theirs), None).starts_now is starts


def test_the_limits_of_the_users_own_qos_count_where_none_is_named():
    """What the user has in use stands before what nobody has used (`unused_limits`)."""
    limit = Limit("user 1000 in QOS small", "MaxTRESPU", "gres/gpu", 2, 1)
    limits = (limit, replace(limit, owner="user alice in QOS small", used=0))
    site = {"limits": limits, "qos": "small"}
    nodes = (node("dgx1", 0),)
    assert tried("--gpus-per-node=1", nodes, **site).starts_now
    assert tried("--gpus-per-node=2", nodes, **site).sentence == (
        "It would not start now: it waits because user alice in QOS small may use 2 GPUs at a time,"
        " and 1 GPU is in use."
    )


def test_a_limit_that_the_job_would_exceed_counts():
    limit = Limit("account faculty", "GrpTRES", "gres/gpu", 8, 6)
    nodes, above = (node("dgx1", 0),), {"research": "faculty"}
    assert tried("--gpus-per-node=2", nodes, limits=(limit,), parents=above).starts_now
    assert tried("--gpus-per-node=3", nodes, limits=(limit,), parents=above).sentence == (
        "It would not start now: it waits because account faculty, which is above account research,"
        " may use 8 GPUs at a time, and 6 GPUs are in use."
    )


def test_how_nvlink_joins_the_nodes_is_told_before_the_start(tmp_path):
    decider = basic_decider(tmp_path)
    domains = {"dgx1": "a.1", "dgx2": "a.1", "dgx3": "b.1"}
    found_in = {
        name: replace(machine, domain=domains.get(name, ""))
        for name, machine in decider.machines.items()
    }
    decider = replace(decider, machines=found_in)
    nodes = [node("dgx1", 0), node("dgx3", 0)]
    apart = "its nodes are of no one NVLink domain: dgx1 in a.1; dgx3 in b.1"
    assert ("NVLink", apart) in tried("--gpus-per-node=8 -N2", nodes, decider=decider).evidence
    nodes = [node("dgx1", 0), node("dgx2", 0)]
    joined = "its nodes are of one NVLink domain, a.1"
    assert ("NVLink", joined) in tried("--gpus-per-node=8 -N2", nodes, decider=decider).evidence
    nodes = [node("dgx1", 0), node("dgx2", 0), node("dgx3", 255)]
    found = tried("--gpus-per-node=8 -N3", nodes, decider=decider)
    assert not found.starts_now
    many = "it asks for 3 nodes, and the largest NVLink domain has 2"
    assert ("NVLink", many) in found.evidence
    # Of a rack of which two trays were collected nobody knows how many it has.
    other = replace(found_in["dgx1"], domain=None)
    found = tried(
        "--gpus-per-node=8 -N3", nodes, decider=replace(decider, machines=found_in | {"x": other})
    )
    assert "NVLink" not in dict(found.evidence)
    assert not tried("--gpus-per-node=8 -N1", nodes, decider=decider).evidence
