"""Why a job waits, in states that no live test makes: our own waits, hostile texts, odd nodes."""

from dataclasses import fields, replace
from typing import Any

import jobs_in_tests
import pytest

from slurm_plugin.base.job_notes import donor, hints
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.base.job_notes.shape import ShapeNote
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot
from slurm_plugin.slurm.interface import (
    QueuedJob,
    Reservation,
    SlurmNode,
    SlurmPartition,
)
from slurm_plugin.tell.why.answer import answer
from slurm_plugin.tell.why.state import Extras, WaitingState
from slurm_plugin.tell.why.words import in_words

NOW = 1_000_000.0
JOB = QueuedJob(
    14,
    "14",
    user="alice",
    uid=1000,
    account="research",
    partition="gpu",
    state="PENDING",
    reason="Resources",
    priority=10,
    submit=900_000,
    eligible=900_000,
    time_limit_s=3600,
    min_nodes=1,
    cpus=1,
    tres_per_node="gres/gpu:4",
)
LOAN = Loan("dgx1", 0b11, (LoanDonor("dgx2", 0b110, 31),))


def node(name: str, used: int = 0, **changes: Any) -> SlurmNode:
    """A node of 8 V100 of which the first `used` are in use."""
    return jobs_in_tests.node(name, range(used), **{"partitions": ("gpu",), **changes})


NODES = (node("dgx1", 5), node("dgx2", 5))


def state(job: QueuedJob = JOB, nodes: Any = NODES, others: Any = (), **more: Any) -> WaitingState:
    part = SlurmPartition("gpu", tuple(one.name for one in nodes), True)
    usual = Settings((part,), networks=more.pop("networks", None))
    settings = more.pop("settings", usual)
    snapshot = Snapshot(0.0, NOW, (job, *others), Detail.SETTINGS, tuple(nodes), settings)
    others_say = {one.name for one in fields(Extras)} & more.keys()
    extras = Extras(**{name: more.pop(name) for name in others_say})
    return WaitingState(job, snapshot, extras, **more)


def sentence(*args: Any, **more: Any) -> str:
    return answer(state(*args, **more)).sentence


def ours(text: str, **changes: Any) -> QueuedJob:
    return replace(JOB, admin_comment=text, reason="BeginTime", **changes)


def gated(**values: str) -> str:
    usual = {"token": "t", "tpn": "gres/gpu:4", "nodes": "1-", "by": "node"}
    return GateRecord("gated", {**usual, **values}).text()


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (
            ours(LoanRecord("meets", {"remote": "1", "loan": LOAN.text()}).text()),
            "waits for its loan: 2 GPUs of dgx2 get ready, to serve it beside 2 GPUs of dgx1.",
        ),
        (
            ours(gated(remote="1", loan=LOAN.text())),
            "waits for its loan: 2 GPUs of dgx2 get ready, to serve it beside 2 GPUs of dgx1.",
        ),
        (
            replace(JOB, admin_comment=donor.entry(28)),
            "is to lend its GPUs to job 28, and waits for their node.",
        ),
        (
            replace(JOB, admin_comment=ShapeNote(None).text(), reason="JobHeldUser", priority=0),
            "waits until the engine has chosen its nodes and GPUs.",
        ),
        (
            replace(
                JOB,
                admin_comment=ShapeNote(None, is_held=True).text(),
                reason="JobHeldUser",
                priority=0,
            ),
            "is held by its user, until it is released.",
        ),
        (
            ours(hints.entry("", "waiting 1/10 since 5: genie: job 9 first (until 65, begin 5)")),
            "could start, but its policy waits for better GPUs: genie: job 9 first.",
        ),
        (
            ours(f"{hints.entry('', 'mapa: 0.4 of the ideal')} {gated(since='999000')}"),
            "could start, but its policy waits for better GPUs: mapa: 0.4 of the ideal.",
        ),
        (
            replace(
                ours(f"{hints.entry('', 'mapa: 0.4 of the ideal')} {gated(since='999000')}"),
                reason="None",  # as after an update, until Slurm looks at it
            ),
            "could start, but its policy waits for better GPUs: mapa: 0.4 of the ideal.",
        ),
        (
            ours(gated(begin="1003600"), eligible=1_003_600),
            "is not to start before TIME (--begin, or a requeue).",
        ),
    ],
)
def test_what_is_ours_is_told_as_ours(job, says):
    from tests.slurm_plugin.tell.why.sentences import said

    assert said(sentence(job), "14") == says


def test_a_gate_behind_an_arrays_own_limit_says_so():
    """Slurm's reason changes from look to look there."""
    job = ours(gated(), array_id=14, task="2-3", throttle=1, tres_per_node="gres/gpu:1")
    job = replace(job, name="14_[2-3]", admin_comment=gated(tpn="gres/gpu:1"))
    first = replace(job, job_id=15, name="14_1", task="1", state="RUNNING", nodes=("dgx1",))
    says = "waits for other tasks: only 1 of its array's tasks may run at a time (%1)."
    assert sentence(job, others=(first,)) == f"Job 14_[2-3] {says}"
    assert "fits on dgx1" in sentence(job, others=(replace(first, array_id=9),))


def test_a_gate_whose_releases_failed_says_so():
    found = answer(state(ours(gated(tries="2", retry="1000060"))))
    assert found.cause == "fragmentation"
    assert any(text.startswith("2 releases came to nothing") for _, text in found.evidence)


OPENED = GateRecord("placed", {"token": "t", "tpn": "gres/gpu:1", "nodes": "2-2", "tries": "4"})


@pytest.mark.parametrize("comment", [OPENED.text(), ""])
def test_a_begin_time_that_is_over_is_no_reason(comment):
    """Slurm shows it until it looks again, after a gate of ours was opened, too."""
    two = replace(JOB, reason="BeginTime", min_nodes=2, tres_per_node="gres/gpu:1")
    two = replace(two, eligible=int(NOW), admin_comment=comment)
    one = SlurmPartition("gpu", ("dgx1", "dgx2"), True, max_nodes=1)
    over = state(two, settings=Settings((one,)))
    never = "can never start: it asks for 2 nodes, and partition gpu allows 1 node at most"
    assert answer(over).sentence == f"Job 14 {never}."
    assert f"fits on dgx1, dgx2 now {KNOWN}; Slurm is to look next" in sentence(two)
    later = replace(two, eligible=int(NOW) + 1)
    assert "is not to start before" in sentence(later)


@pytest.mark.parametrize("comment", [OPENED.text(), gated(tries="1", tpn="gres/gpu:1")])
def test_a_partition_that_is_down_is_told_behind_a_gate_too(comment):
    """Slurm has said so of a release, and says `BeginTime` of the gate that was shut again."""
    one = SlurmPartition("gpu", ("dgx1", "dgx2"), True, state="DOWN")
    down = state(ours(comment, tres_per_node="gres/gpu:1"), settings=Settings((one,)))
    assert answer(down).sentence == "Job 14 waits for partition gpu, which is DOWN."


@pytest.mark.parametrize("reason", ["BeginTime", "None"])
@pytest.mark.parametrize("comment", [OPENED.text(), gated(), ""])
def test_a_dependency_goes_before_a_begin_time_whatever_slurm_says_yet(comment, reason):
    job = replace(JOB, dependency="afterok:7(unfulfilled)", reason=reason, admin_comment=comment)
    waits = sentence(job)
    assert waits == "Job 14 waits until job 7 has ended well."
    never = sentence(replace(job, dependency="afterok:7(failed)"))
    assert never == "Job 14 can never start: job 7 did not end well."


def test_an_entry_of_ours_counts_for_nothing_where_slurm_holds_the_job():
    text = hints.entry("", "waiting 1/10 since 5: x (until 65, begin 5)")
    job = replace(JOB, admin_comment=text, reason="JobHeldAdmin", priority=0)
    assert sentence(job) == "Job 14 is held by an administrator, and only one can release it."


HOSTILE = "x\x1b[2J\u202e\n" + "y" * 5000


@pytest.mark.parametrize(
    "changes",
    [
        {"dependency": HOSTILE, "reason": "Dependency"},
        {"licenses": HOSTILE, "reason": "Licenses"},
        {"qos": HOSTILE, "reason": "QOSMaxGRESPerUser"},
        {"features": HOSTILE},
        {"tres_per_node": f"gres/gpu:{HOSTILE}"},
        {"req_nodes": f"dgx[1-{'9' * 30}]"},
        {"req_nodes": HOSTILE},
        {"reservation": HOSTILE},
        {"reason": HOSTILE},
        {"partition": HOSTILE},
        {"admin_comment": f"[gpu-topo: | waiting 1/10 since 5: {HOSTILE}]", "reason": "BeginTime"},
        {"comment": HOSTILE, "name": f"14_{HOSTILE}", "user": HOSTILE},
        {"cpus": 2**40, "memory_per_node_mb": 2**50, "min_nodes": 2**31},
        {"tres_per_node": "gres/gpu:99999999999999999999"},
        {"throttle": 2**31, "reason": "JobArrayTaskLimit"},
    ],
)
def test_no_text_of_a_user_moves_the_cursor_or_fills_the_screen(changes):
    other = replace(JOB, **{**changes, "job_id": 9, "submit": 1, "reason": "Priority"})
    text = in_words(answer(state(replace(JOB, **changes), others=(other,))))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text) < 4000
    assert text.startswith("Job 14")


@pytest.mark.parametrize(
    ("dependency", "says"),
    [
        ("afterok:3(unfulfilled)", "waits until job 3 has ended well."),
        (
            "afterany:3(unfulfilled),singleton(unfulfilled)",
            "waits until job 3 has ended and no other job of this name and user runs.",
        ),
        (
            "afterok:3(unfulfilled)?afterok:4(unfulfilled)",
            "waits until job 3 has ended well or job 4 has ended well.",
        ),
        ("after:3+5(unfulfilled)", "waits until job 3 has started."),
        ("afterok:3_*(unfulfilled)", "waits until job 3 has ended well."),
        (
            ",".join(f"afterok:{job}(unfulfilled)" for job in range(1, 900)),
            "waits until job 1 has ended well and job 2 has ended well and job 3 has ended well"
            " and 896 more.",
        ),
        ("", "waits until what its dependency names has happened."),
    ],
)
def test_dependencies_in_words(dependency, says):
    job = replace(JOB, reason="Dependency", dependency=dependency)
    assert sentence(job) == f"Job 14 {says}"


KNOWN = "as far as is known here"
NOT_SURE = f"waits, as Slurm says, for Resources; {KNOWN}"


@pytest.mark.parametrize(
    ("nodes", "changes", "says"),
    [
        ((node("dgx1", 8), node("dgx2", 8)), {}, "waits for 4 free GPUs: none of 16 is free."),
        ((node("dgx1", 8),), {}, "waits for 4 free GPUs on dgx1: none of its 8 is free."),
        ((node("dgx1", 5),), {}, "waits for 4 free GPUs on dgx1: 3 of its 8 are free."),
        ((node("dgx1", 7),), {}, "waits for 4 free GPUs on dgx1: 1 of its 8 is free."),
        (NODES, {"tres_per_node": "gres/gpu:16"},
         f"{NOT_SURE} no node has 16 GPUs."),
        (NODES, {"tres_per_node": "gres/gpu:h100:1"},
         f"{NOT_SURE} no node has GPUs of type h100."),
        ((node("dgx1", 0, state=("DOWN*",)), node("dgx2", 0, state=("IDLE", "DRAIN"))), {},
         "waits for a node that can take jobs: dgx1 is down, dgx2 is drained."),
        ((node("dgx1", 0), node("dgx2", 0)), {}, "fits on dgx1 now as far as is known here;"
         " Slurm said Resources when it last looked."),
        (NODES, {"min_nodes": 3, "features": "", "tres_per_node": "gres/gpu:v100:4"},
         f"{NOT_SURE} it needs 3 nodes, and only 2 will do."),
        (NODES, {"min_nodes": 2, "req_nodes": "dgx1", "exc_nodes": "dgx2"},
         f"{NOT_SURE} it needs 2 nodes, and only 1 will do (each is one that it does not"
         " exclude)."),
        (NODES, {"tres_per_node": "", "cpus": 40},
         f"{NOT_SURE} no node has 40 CPUs."),
        (tuple(node(f"n{i}", 5) for i in range(12)), {},
         "waits for 4 free GPUs on one node: 36 are free, but never 4 on one node (n0 3, n1 3,"
         " n10 3, n11 3, n2 3, n3 3, n4 3, n5 3 and 4 more)."),
    ],
)  # fmt: skip
def test_what_is_missing_on_the_nodes(nodes, changes, says):
    assert sentence(replace(JOB, **changes), nodes=nodes) == f"Job 14 {says}"


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("BadConstraints", "can never start as it is:"),
        ("Resources", NOT_SURE),
        ("None", "waits; as far as is known here"),
        ("ReqNodeNotAvail, May be reserved for other job",
         f"waits, as Slurm says, for ReqNodeNotAvail; {KNOWN}"),
    ],
)  # fmt: skip
def test_never_is_said_only_where_slurm_says_so_too(reason, says):
    """Slurm has rules that are not known here, and took the job."""
    job = replace(JOB, reason=reason, tres_per_node="gres/gpu:16")
    assert sentence(job) == f"Job 14 {says} no node has 16 GPUs."


def test_nothing_is_told_to_change_of_a_job_that_fits_over_several_nodes():
    nodes = [node("dgx1", 5), node("dgx2", 5)]
    six = replace(JOB, tres_per_node="", tres_per_job="gres/gpu:6", max_nodes=0)
    found = answer(state(six, nodes))
    assert f"fits on dgx1, dgx2 now {KNOWN}" in found.sentence
    assert found.sooner == ()
    eight = answer(state(replace(six, tres_per_job="gres/gpu:8"), nodes))
    assert "with --gpus=3 now on dgx1" in eight.sooner


def test_no_change_is_told_that_changes_nothing():
    """A whole node that its partition gives; a node that the job names itself, and that is free."""
    whole = replace(JOB, exclusive=True, tres_per_node="gres/gpu:2")
    shared = SlurmPartition("gpu", ("dgx1", "dgx2"), True)
    for share, is_told in ((1, True), (0, False)):
        runs = [
            QueuedJob(i, state="RUNNING", partition="gpu", nodes=(name,), cpus=1, gpus={name: (0,)})
            for i, name in enumerate(("dgx1", "dgx2"), 1)
        ]
        settings = Settings((replace(shared, share=share),))
        asked = state(whole, [node("dgx1", 1), node("dgx2", 1)], runs, settings=settings)
        assert any("--exclusive" in one for one in answer(asked).sooner) == is_told
    # A node that it names itself, and that is free, is none to do without.
    bound = replace(JOB, req_nodes="dgx1", tres_per_node="gres/gpu:2")
    assert answer(state(bound)).sooner == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ("with --gres=gpu:3 now on dgx1", "with -N 2 --gres=gpu:2 now on dgx1, dgx2")),
        ({"tres_per_node": "gres/gpu:v100:5"}, ("with --gres=gpu:v100:3 now on dgx1",)),
        ({"tres_per_node": "", "tres_per_job": "gres/gpu:4", "max_nodes": 1},
         ("with --gpus=3 now on dgx1", "with -N 2 --gpus=4 now on dgx1, dgx2")),
        ({"tres_per_node": "gres/gpu:8", "min_nodes": 2},
         ("with --gres=gpu:3 now on dgx1, dgx2",)),
    ],
)  # fmt: skip
def test_fewer_gpus_or_more_nodes_are_told_in_the_users_own_option(changes, told):
    assert answer(state(replace(JOB, **changes))).sooner == told


def test_eight_gpus_are_spread_over_as_few_nodes_as_have_room():
    nodes = [node(f"n{i}", 5) for i in range(4)]
    found = answer(state(replace(JOB, tres_per_node="gres/gpu:8"), nodes))
    assert "with -N 4 --gres=gpu:2 now on n0, n1, n2, n3" in found.sooner


LENDS = RemoteConfig(allow=True, donor_memory_mb=64)
BORROWS = "--comment='gpu-topo: remote=allow' now on"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_nodes": 1}, [f"with {BORROWS} dgx1, dgx2, over the network"]),
        ({"max_nodes": 1, "het_id": 14}, []),
        ({"max_nodes": 1, "req_nodes": "dgx[1-2]"}, []),
        ({"tres_per_node": "gres/gpu:7"}, []),
        ({"admin_comment": LoanRecord("may", {"remote": "1"}).text()}, []),
        ({"tres_per_node": "gres/gpu:2"}, []),
    ],
)
def test_borrowing_is_told_where_it_would_help_and_may_be_asked_for(changes, told):
    found = answer(state(replace(JOB, **changes)), LENDS)
    assert [change for change in found.sooner if "remote" in change] == told
    assert not any("remote" in change for change in answer(state(replace(JOB, **changes))).sooner)


def test_a_job_of_cpus_alone_waits_for_cpus():
    nodes = [node("dgx1", 0, alloc_cpus=14)]
    job = replace(JOB, tres_per_node="", tres_per_task="cpu=4", cpus=4)
    says = "Job 14 waits for dgx1: only 2 of the 4 CPUs that it needs are free there."
    assert sentence(job, nodes=nodes) == says


def test_nodes_of_one_job_may_have_different_gpus_free():
    """With slots Slurm then chooses the GPUs, as no slots are free on both nodes."""
    nodes = [node("dgx1", 4), replace(node("dgx2", 4), used=(4, 5, 6, 7))]
    two = replace(JOB, min_nodes=2)
    fits = f"Job 14 fits on dgx1, dgx2 now {KNOWN};"
    assert sentence(two, nodes) == f"{fits} Slurm said Resources when it last looked."
    types = {f"v100.s{i}": 1 for i in range(8)}
    low = {kind: int(i < 4) for i, kind in enumerate(types)}
    high = {kind: int(i >= 4) for i, kind in enumerate(types)}
    nodes = [
        node("dgx1", 4, gpus=types, used_by_type=low),
        node("dgx2", 4, gpus=types, used_by_type=high),
    ]
    job = ours(gated(tpn="gres/gpu:v100:4", nodes="2-2"), tres_per_node="", min_nodes=2)
    assert sentence(job, nodes) == f"{fits} Slurm is to look next."


def test_a_reason_that_is_not_known_is_slurms_own_word_whatever_is_free():
    nodes = (node("dgx1", 0),)
    says = "Job 14 waits for what Slurm calls 'BurstBufferOperation'."
    assert sentence(replace(JOB, reason="BurstBufferOperation"), nodes) == says
    reason = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher partitions"
    assert sentence(replace(JOB, reason=reason), nodes).startswith("Job 14 fits on dgx1 now")


def test_a_job_that_can_never_start_is_not_the_one_that_must_not_be_delayed():
    never = replace(JOB, job_id=1, name="1", priority=90, tres_per_node="gres/gpu:16")
    waits = replace(JOB, job_id=2, name="2", priority=50, user="bob", tres_per_node="gres/gpu:8")
    runs = replace(
        JOB,
        job_id=3,
        state="RUNNING",
        nodes=("dgx1",),
        gpus={"dgx1": tuple(range(4))},
        end=int(NOW) + 600,
    )
    found = sentence(nodes=(node("dgx1", 4),), others=(never, waits, runs))
    assert "would delay job 2 of bob" in found


def test_slots_count_as_gpus_of_their_model():
    """In the slots mode each GPU has a type of its own."""
    types = {f"v100.s{i}": 1 for i in range(8)}
    used = {kind: int(i < 5) for i, kind in enumerate(types)}
    nodes = [node(name, 5, gpus=types, used_by_type=used) for name in ("dgx1", "dgx2")]
    job = ours(gated(tpn="gres/gpu:v100:4"), tres_per_node="")
    assert "6 are free, but never 4 on one node (dgx1 3, dgx2 3)" in sentence(job, nodes=nodes)


def test_of_several_jobs_ahead_the_next_one_is_named():
    others = [
        replace(JOB, job_id=i, name=str(i), user="bob", priority=50, reason="Priority")
        for i in range(1, 9)
    ]
    found = answer(state(others=others))
    assert found.sentence.endswith("; 8 jobs come first, the next is job 1 of bob.")
    assert ("ahead", "and 3 jobs more") in found.evidence


def test_jobs_that_do_not_count_are_not_ahead():
    others = [
        replace(JOB, job_id=1, priority=0),
        replace(JOB, job_id=2, priority=50, reason="Dependency"),
        replace(JOB, job_id=3, priority=50, eligible=2_000_000),
        replace(JOB, job_id=4, priority=50, state="RUNNING", nodes=("dgx1",)),
        replace(JOB, job_id=5, priority=5),
    ]
    assert answer(state(others=others)).sentence.endswith("(dgx1 3, dgx2 3).")


def test_where_slurm_hides_others_nothing_is_guessed_of_them():
    job = replace(JOB, reason="Priority")
    found = answer(state(job, hides_jobs=True))
    assert found.sentence.endswith("; jobs of others, which you may not see, come first.")
    assert found.our_start == 0


def test_a_reservation_of_ones_own_leaves_its_nodes_alone():
    mine = Reservation("class", 900_000, 2_000_000, ("dgx1",), users="alice")
    job = replace(JOB, reservation="class")
    says = "waits for 4 free GPUs on dgx1: 3 of its 8 are free."
    assert sentence(job, reservations=(mine,)) == f"Job 14 {says}"
    over = replace(mine, end=950_000)
    job = replace(job, reason="Reservation")
    says = "Job 14 can never start: its reservation class is over."
    assert sentence(job, reservations=(over,)) == says


def test_the_estimate_keeps_to_the_queues_order():
    """One GPU's worth of order: who is ahead gets the first GPUs that come free."""
    runs = [
        replace(
            JOB,
            job_id=100 + i,
            state="RUNNING",
            nodes=(name,),
            gpus={name: tuple(range(5))},
            end=int(NOW) + 600 * (i + 1),
        )
        for i, name in enumerate(("dgx1", "dgx2"))
    ]
    eight = replace(JOB, tres_per_node="gres/gpu:8")
    first = replace(eight, job_id=1, name="1", priority=50)
    assert answer(state(eight, others=runs)).our_start == NOW + 600
    assert answer(state(eight, others=(*runs, first))).our_start == NOW + 1200
