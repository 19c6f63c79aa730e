"""Loans where GPUs are chosen at a job's start: the look at the queue, what Slurm is told."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from at_start_in_tests import (
    LOCAL,
    MEETS,
    NODES,
    OFFER,
    STARTS,
    TEXT,
    Slurm,
    donor,
    job,
    lender_of,
    node,
    planned,
    polled,
)
from loans_in_tests import AT

from slurm_plugin.act.lending import matcher
from slurm_plugin.act.lending.at_start import planning, start_loans
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.act.lending.choice.offer import TOO_SLOW
from slurm_plugin.act.lending.plan import LoanContext
from slurm_plugin.base.job_notes.loan import LoanDonor
from slurm_plugin.base.job_notes.records import LoanRecord
from slurm_plugin.node.remote import join
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.slurm.interface import (
    NOW,
    QueuedJob,
)

# -- who is lent to -----------------------------------------------------------


def test_who_made_the_submitter_late_is_told_and_nothing_is_lent(tmp_path):
    slurm = Slurm(job())
    lender = lender_of(tmp_path, slurm, lambda: float(AT))
    for _ in range(2):
        lender.matcher.lending.slow.late(job().uid, 11)
    made = lender.reconcile(read_snapshot(slurm), True)
    assert made.offers == []
    [(_, _, refusal)] = made.refusals
    assert refusal is TOO_SLOW


def test_a_round_that_took_long_makes_no_more_loans(tmp_path, monkeypatch):
    """The gates of all others wait for its end."""
    slurm = Slurm(job())
    now = iter(range(0, 1000, 11))
    monkeypatch.setattr(matcher, "time", SimpleNamespace(monotonic=lambda: next(now)))
    lender = lender_of(tmp_path, slurm, lambda: float(AT))
    lender.reconcile(read_snapshot(slurm), True)
    assert not [words for words in slurm.words if words.startswith("donor")]


def test_a_job_that_fits_nowhere_is_offered_a_loan_and_its_gpus_are_taken():
    made = planned(job())
    assert [(one.name, offer) for one, _, offer in made.offers] == [("7", OFFER)]
    assert {name: one.free for name, one in made.nodes.items()} == {"dgx1": 0, "dgx2": 0}


@pytest.mark.parametrize(
    ("sentence", "waits"),
    [
        ("one that may not borrow", job("")),
        ("one that fits", job(tres_per_node="gres/gpu:2")),
        ("one that is held", job(priority=0)),
        ("one that depends on another", job(dependency="afterok:9(unfulfilled)")),
        ("one with a begin time", job(reason="BeginTime")),
        ("one whose begin time is to come", job(eligible=AT + 100)),
        ("one that lacks something else", job(reason="AssocMaxJobsLimit")),
        ("one without GPUs", job(tres_per_node="")),
        ("a donor", job(comment="gpu-donor of=9")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_offered_to(sentence, waits):
    assert planned(waits).offers == []


def test_gpus_of_each_socket_are_refused_in_a_line_though_their_room_is_not_known():
    """Slurm's record does not say how many sockets; who does not ask for it is told nothing."""
    each = {"tres_per_node": "", "tres_per_socket": "gres/gpu:2"}
    [(_, _, refusal)] = planned(job(**each)).refusals
    assert "with --gpus-per-socket its GPUs are to be beside its cores" in refusal.why
    assert planned(job("", **each)).refusals == []


def test_a_job_about_to_start_keeps_its_gpus():
    made = planned(job("", 6, tres_per_node="gres/gpu:v100:2", priority=9))
    assert made.nodes["dgx1"].free == 0
    assert made.nodes["dgx2"].free == 0b1100


def test_a_request_for_a_model_looks_at_its_nodes_alone():
    other = node("amd1", (), gpus={"mi250x": 8}, used_by_type={})
    assert planned(job(), nodes=[*NODES, other]).offers == []
    made = planned(job(tres_per_node="gres/gpu:v100:4"), nodes=[*NODES, other])
    assert len(made.offers) == 1


def test_the_first_job_that_waits_is_not_delayed():
    """Of two that fit nowhere the first waits for six GPUs of dgx1, which come free at 1050."""
    first = job("", 6, tres_per_node="gres/gpu:6", priority=9, req_nodes="dgx1")
    runs = QueuedJob(
        5, state="RUNNING", nodes=("dgx1",), end=1050, gpus={"dgx1": (2, 3, 4, 5)}, cpus=1
    )
    assert planned(first, job(), runs).offers == []
    behind = replace(first, priority=1)
    assert len(planned(behind, job(), runs).offers) == 1


# -- loans under way ----------------------------------------------------------


def test_while_donors_start_all_their_gpus_are_kept():
    waits = donor("gpu-donor of=7", state="PENDING")
    made = planned(job(MEETS, reason="BeginTime", memory_per_cpu_mb=100), waits)
    kept = made.reserved[7]
    assert (kept.on("dgx1"), kept.on("dgx2"), kept.until) == (3, 12, 1055.0)
    assert {one.free for one in made.nodes.values()} == {0}
    assert (made.nodes["dgx1"].cpus, made.nodes["dgx1"].memory_mb) == (12, 3600)
    assert (made.starts, made.broken, made.is_busy) == ([], [], True)


def test_what_a_running_donor_has_is_kept_by_slurm_itself():
    made = planned(job(MEETS), donor("gpu-donor of=7"))
    assert (made.reserved[7].on("dgx1"), made.reserved[7].on("dgx2")) == (3, 0)


def test_with_all_donors_ready_the_job_starts_on_its_local_gpus():
    [(_, update)] = planned(job(MEETS), donor()).starts
    assert (update.tres_per_node, update.req_nodes) == ("gpu:2", "dgx1")
    assert (update.begin_time, update.min_cpus, update.priority) == (NOW, 4, 10)
    told = update.admin_comment or ""
    kept = LoanRecord.read_from(told)
    assert (kept.state, kept.get("loan"), kept.get("at")) == ("starts", f"{TEXT}/50001", "1000")
    assert "over the network, dgx2:2,3 (job 71)" in told
    assert join.donors_in(told) == [LoanDonor("dgx2", 0b1100, 71, 50001)]


def test_before_that_taskprolog_sees_no_loan():
    assert join.donors_in(job(MEETS).admin_comment) == []


FULL = (node("dgx1", range(8)), NODES[1])
DOWN = (node("dgx1", range(2, 8), state=("DOWN",)), NODES[1])


@pytest.mark.parametrize(
    ("state", "fields", "there", "nodes", "why"),
    [
        (MEETS, {}, [], NODES, "the donor on dgx2 is gone"),
        (MEETS, {}, [donor("gpu-donor failed of=7 x: no")], NODES, "x: no"),
        (MEETS, {}, [donor()], FULL, "the GPUs of dgx1 are others' now"),
        (MEETS, {}, [donor()], DOWN, "the GPUs of dgx1 are others' now"),
        (MEETS, {"priority": 0}, [donor()], NODES, "the job was held"),
        (MEETS, {"tres_per_node": "gres/gpu:6"}, [donor()], NODES, "its request was changed"),
        (MEETS.replace("990", "900"), {}, [donor("-")], NODES, "not ready within 60 s"),
        # Written before the clock was set back by an hour.
        (MEETS.replace("990", "4590"), {}, [donor("-")], NODES, "not ready within 60 s"),
        (STARTS.replace("995", "4595"), LOCAL, [donor()], NODES, "not started by Slurm"),
        (MEETS.replace(TEXT, "?"), {}, [donor()], NODES, "the loan cannot be read"),
        (STARTS, LOCAL, [], NODES, "the donor on dgx2 is gone"),
        (STARTS.replace("995", "960"), LOCAL, [donor()], NODES, "not started by Slurm (Resources)"),
        (STARTS, {}, [donor()], NODES, "its request was changed"),
    ],
)
def test_a_loan_that_comes_to_nothing_is_given_up_whole(state, fields, there, nodes, why):
    made = planned(job(state, **fields), *there, nodes=nodes)
    [(_, _, told)] = made.broken
    assert why in told
    assert (made.starts, made.reserved) == ([], {})


def test_a_job_that_is_starting_keeps_its_local_gpus_for_a_while():
    made = planned(job(STARTS, **LOCAL), donor())
    assert (made.reserved[7].on("dgx1"), made.reserved[7].until, made.broken) == (3, 1030.0, [])


def test_a_job_that_started_since_the_queue_was_read_is_no_trouble():
    made = planned(job(STARTS, **LOCAL), donor(), nodes=FULL)
    assert (made.broken, made.back) == ([], [])


def test_a_job_that_slurm_put_back_asks_for_all_its_gpus_again():
    made = planned(job(STARTS, **LOCAL, eligible=AT + 120))
    [(_, (first, second))] = made.back
    assert (first.tres_per_node, first.req_nodes) == ("gres/gpu:4", "")
    assert (first.admin_comment, first.min_cpus, first.is_released) == (None, 4, True)
    assert second.begin_time is None  # Slurm has said when
    kept = LoanRecord.read_from(second.admin_comment or "")
    assert kept == LoanRecord("may", {"remote": "1"})


@pytest.mark.parametrize(("priority", "given"), [(6, 5), (0, None)], ids=["its own", "held"])
def test_where_priorities_are_numbers_the_job_gets_its_own_back(priority, given):
    put_back = job(STARTS, **LOCAL, eligible=AT + 120, priority=priority)
    [(_, (first, _))] = planned(put_back, updates=StartLoans(60, is_basic=True, now=AT)).back
    assert (first.priority, first.is_released) == (given, None)


def test_a_job_that_somebody_held_since_the_queue_was_read_stays_held(tmp_path):
    slurm = Slurm(job(STARTS, **LOCAL, eligible=AT + 120))
    seen, slurm.jobs = read_snapshot(slurm), [replace(slurm.jobs[0], priority=0)]
    lender_of(tmp_path, slurm, lambda: float(AT)).reconcile(seen, True)
    assert slurm.told == []


def test_gpus_counted_for_the_whole_job_come_back_as_such():
    whole = {"tres_per_node": "", "tres_per_job": "gres/gpu:4", "max_nodes": 1}
    meets = MEETS.replace("tpn=", "tpj=")
    [(_, update)] = planned(job(meets, **whole), donor()).starts
    assert (update.tres_per_node, update.tres_per_job) == ("gpu:2", "")
    starts = STARTS.replace("tpn=", "tpj=")
    assert planned(job(starts, **LOCAL), donor()).broken == []
    [(_, (first, _))] = planned(job(starts, **LOCAL, eligible=AT + 120)).back
    assert (first.tres_per_node, first.tres_per_job) == ("", "gres/gpu:4")


def test_a_request_that_somebody_changed_since_stays_as_it_is():
    changed = job(STARTS, tres_per_node="gres/gpu:1", req_nodes="dgx1")
    kept = LoanRecord.read_from(changed.admin_comment)
    assert kept is not None
    first, _ = StartLoans(60, now=AT).given_up(changed, kept, "x")
    assert (first.tres_per_node, first.req_nodes) == (None, None)


def test_what_is_no_gpu_stays_in_the_request():
    assert start_loans.local_request("gres/gpu:v100:4,gres/foo:1", 2) == "gpu:v100:2,gres/foo:1"


def test_a_site_that_lends_no_more_ends_loans_and_makes_none():
    off = LoanContext(AT, ready_s=None)
    made = planned(job(MEETS), donor(), context=off)
    assert made.broken[0][2] == "GPUs are not lent any more"
    assert made.is_ours
    assert not planned(job()).is_ours


# -- the whole, on a Slurm that remembers what it is told ---------------------


def test_donors_are_submitted_then_named_then_started(tmp_path):
    """The job is kept away from all GPUs meanwhile; if nobody ever comes back, for a while."""
    slurm = Slurm(job())
    polled(tmp_path, slurm)
    assert slurm.words == ["donor 7 1000 dgx2 2", "update 7", "update 71"]
    named, started = slurm.told[1][1], slurm.told[2][1]
    assert (named.begin_time, named.tres_per_node) == (AT + 90, None)
    kept = LoanRecord.read_from(named.admin_comment or "")
    assert (kept.state, kept.get("tpn"), kept.get("loan")) == ("meets", "gres/gpu:4", TEXT)
    assert (started.tres_per_node, started.begin_time) == ("gpu:v100:2", NOW)
    assert (started.priority, started.admin_comment) == (6, "[gpu-donor: of=7]")
    # At its start the donor is known by its id already, and has its time to get ready.
    assert slurm.kept_at_start == [7, 71]
    assert slurm.reserved.by_borrower[7].until == AT + 60 + planning.REQUEUED_S


@pytest.mark.parametrize(
    ("sentence", "waits"),
    [
        ("did not ask for it", job(admin_comment="[gpu-topo: ] [gpu-loan: may remote=1]")),
        ("paused", job("may remote=1 loan_next=1001")),
        ("is a heterogeneous one's", job(het_id=7)),
        ("runs in an observed partition", job(partition="watched")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_is_not_lent_to_that(sentence, waits, tmp_path):
    slurm = Slurm(waits)
    polled(tmp_path, slurm)
    assert slurm.told == []


def test_a_refused_loan_leaves_nothing_kept(tmp_path):
    slurm = Slurm(job(), refuses="update 7")
    polled(tmp_path, slurm)
    assert slurm.words == ["donor 7 1000 dgx2 2", "update 7", "scancel 71"]
    assert not slurm.reserved.by_borrower


def test_a_refused_loan_is_not_tried_again_for_half_a_minute(tmp_path):
    slurm, now = Slurm(job(), refuses="update 7"), [float(AT)]
    lender, tried = lender_of(tmp_path, slurm, lambda: now[0]), list[int]()
    for second in range(65):
        now[0], before = float(AT + second), len(slurm.told)
        lender.reconcile(read_snapshot(slurm), True)
        slurm.jobs = slurm.jobs[:1]  # the donor that was cancelled is gone
        if len(slurm.told) > before:
            tried.append(second)
    assert tried == [0, 30, 60]


def test_a_job_that_started_meanwhile_keeps_its_loan(tmp_path):
    """Slurm refuses to give it its request back: its donors must stay, and be named."""
    slurm = Slurm(job(STARTS, **LOCAL), refuses="update 7")
    polled(tmp_path, slurm)
    assert slurm.words == ["update 7"]
    assert slurm.told[0][1] is not None
    assert slurm.told[0][1].admin_comment is None


def test_a_loan_that_came_to_nothing_gives_the_request_back_first(tmp_path):
    slurm = Slurm(job(STARTS, **LOCAL), donor("gpu-donor failed of=7 x: no"))
    polled(tmp_path, slurm)
    assert slurm.words == ["update 7", "update 7", "scancel 71"]
    told = slurm.told[1][1]
    assert "remote GPUs: x: no; waits for GPUs of one node" in (told.admin_comment or "")
    kept = LoanRecord.read_from(told.admin_comment or "")
    assert kept == LoanRecord("may", {"remote": "1", "loan_tries": "1", "loan_next": "1030"})


LAST_WORD = "scancel --batch --signal=TERM"
RUNS = {"state": "RUNNING", "nodes": ("dgx1",)}


@pytest.mark.parametrize(
    ("borrower", "may_lend", "told"),
    [
        pytest.param(job(), False, [f"{LAST_WORD} 71"], id="nobody names it, and nothing is lent"),
        # Its begin time came while there was room: it has all of its GPUs on its own node.
        pytest.param(
            job(MEETS, **RUNS), True, [f"{LAST_WORD} 71"], id="its borrower runs without it"
        ),
        pytest.param(job(STARTS, **RUNS, **LOCAL), True, [], id="its borrower runs with it"),
    ],
)
def test_a_donor_ends_where_it_is_not_needed(tmp_path, borrower, may_lend, told):
    slurm = Slurm(donor(), borrower)
    polled(tmp_path, slurm, may_lend)
    assert slurm.words == told
