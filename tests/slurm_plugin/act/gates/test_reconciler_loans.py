"""Who is lent to in the slots mode: by the hint, by what is predicted, by DRMaestro's rounds."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machines_in_tests import BASIC, basic_config, basic_decider
from slots_in_tests import NOW, Remembers, TwoNodes, gated, look, reconciler, running

from policies.performance import Shape
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.base.log_lines import Line, OfLoan
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.learn.job_profiles import Remote
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.slurm.interface import QueuedJob

PROFILES = {
    "md": Remote(run_s=1099.0, gpu_calls=100_000),
    "cfd": Remote(run_s=1000.0),
    "talks": Remote(sensitivity=0.9, network_share=0.9),
}


def decided(lines: Sequence[Line]) -> list[OfLoan]:
    """The lines about loans."""
    return [line for line in lines if isinstance(line, OfLoan)]


def borrowing(
    folder: Path,
    slurm: TwoNodes,
    settings: str = "",
    patience_s: float = 0,
    *,
    cache: CapacityCache | None = None,
    allow: str = "yes",
) -> tuple[Remembers, list[dict[str, Any]]]:
    """The lender after a look, or as many as it takes; and the lines of the decision log."""
    lines: list[dict[str, Any]] = []
    text = BASIC + f"enforcement: slots\nremote: {{{{allow: {allow}, {settings}}}}}\n"
    lender = Remembers(basic_config(folder, text).remote, slurm)
    lends = {"lending": lender, "profiles": PROFILES, "decider": basic_decider(folder, text)}
    planner = reconciler(folder, slurm, cache, lines, **lends)
    try:
        look(planner, slurm)
        deadline = time.monotonic() + patience_s
        while not decided(lines) and time.monotonic() < deadline:
            time.sleep(0.05)
            look(planner, slurm)
    finally:
        planner.matcher.close()
    return lender, lines


def wants(hint: str, job_id: int = 1, carried: str = "remote=1") -> QueuedJob:
    """A job of four GPUs that may borrow."""
    words = f"gated token=t tpn=gres/gpu:4 nodes=1- by=node {carried}"
    comment = f"[gpu-topo: {hint}] [gpu-slots: {words.strip()}]"
    return replace(gated(job_id), admin_comment=comment, time_limit_s=3600)


@pytest.mark.parametrize(
    ("hint", "carried", "allow", "lent"),
    [
        pytest.param("remote=allow", "remote=1", "yes", True, id="asked for"),
        pytest.param("", "remote=1", "yes", False, id="not asked for"),
        pytest.param("remote=allow", "", "yes", False, id="submitted without"),
        pytest.param("remote=allow", "remote=1 loan_next=1500", "yes", False, id="a pause"),
        pytest.param("remote=allow", "remote=1 loan_next=4600", "yes", True, id="set back since"),
        pytest.param("remote=allow", "remote=1", "no", False, id="the site lends nothing"),
    ],
)
def test_a_job_that_fits_on_no_node_borrows(tmp_path, hint, carried, allow, lent):
    slurm, cache = TwoNodes(wants(hint, carried=carried)), CapacityCache()
    lender, _ = borrowing(tmp_path, slurm, cache=cache, allow=allow)
    assert [name for name, _ in lender.asked] == (["1"] if lent else [])
    # What is lent is not given to a submit meanwhile.
    assert {node.free for node in cache.nodes.values()} == ({0} if lent else {0b11})


def ending(in_s: int) -> QueuedJob:
    """A job on the six other GPUs of dgx1."""
    return running(9, range(2, 8), end=NOW + in_s)


@pytest.mark.parametrize(
    ("hint", "ends_s", "lent", "says"),
    [
        ("remote=auto,profile=md", 2000, True, ""),
        ("remote=auto,profile=md", 60, False, "remote GPUs would end it in 1347 s, waiting for"),
        ("remote=auto,profile=cfd", 60, True, ""),
        ("remote=auto", 2000, False, "no profile of the job says how long it runs"),
        ("remote=allow", 60, True, ""),
    ],
)
def test_remote_auto_goes_by_profile_and_by_the_end_of_running_jobs(
    tmp_path, hint, ends_s, lent, says
):
    slurm = TwoNodes(wants(hint), ending(ends_s))
    lender, lines = borrowing(tmp_path, slurm)
    assert [name for name, _ in lender.asked] == (["1"] if lent else [])
    [line] = decided(lines)
    assert line.decision == ("lent" if lent else "not lent")
    notes = [update.admin_comment or "" for _, update in slurm.updates]
    assert bool(says) is any(says and says in note for note in notes)
    assert says in line.why


@pytest.mark.parametrize(
    ("gpus", "nodes", "lent"), [(4, "1-1", True), (4, "1-", False), (10, "1-", False)]
)
def test_gpus_for_the_whole_job_are_lent_where_it_has_to_be_on_one_node(
    tmp_path, gpus, nodes, lent
):
    """Without -N1 Slurm spreads it. Ten would be five on each of two nodes, which have two each."""
    job = wants("remote=allow")
    words = f"tpj=gres/gpu:{gpus} nodes={nodes} "
    job = replace(job, admin_comment=job.admin_comment.replace("tpn=gres/gpu:4 nodes=1- ", words))
    lender, _ = borrowing(tmp_path, TwoNodes(job))
    assert [name for name, _ in lender.asked] == (["1"] if lent else [])


def test_a_refusal_is_written_down_once(tmp_path):
    said = "no profile of the job says how long it runs, so nothing is predicted (profile=NAME)"
    job = wants("remote=auto")
    job = replace(job, admin_comment=job.admin_comment.replace("auto]", f"auto | {said}]"))
    slurm = TwoNodes(job)
    _, lines = borrowing(tmp_path, slurm)
    assert lines == []
    assert [update.admin_comment for _, update in slurm.updates] == [None]


def test_drmaestro_decides_about_all_waiting_jobs_in_one_round(tmp_path):
    jobs = [wants("remote=allow"), wants("remote=allow", 2)]
    drmaestro = "decider: drmaestro, solve_s: 30"
    lender, lines = borrowing(tmp_path, TwoNodes(*jobs, ending(2000)), drmaestro, 60)
    # There are four GPUs in all.
    assert [name for name, _ in lender.asked] == ["1"]
    assert lines[-1].why.startswith("drmaestro: ")


def loan_of(job: QueuedJob) -> QueuedJob:
    """The job, running, with two GPUs of dgx2 lent to it."""
    comment = job.admin_comment.replace("gated", "placed").replace(
        "remote=1", "loan=dgx1/fc,dgx2/fc/70/5"
    )
    held = {"dgx1": tuple(range(2, 8))}
    return replace(job, state="RUNNING", admin_comment=comment, nodes=("dgx1",), gpus=held)


def test_a_network_that_running_loans_fill_holds_a_job_back_for_a_bounded_time(tmp_path):
    """Three rounds of 30 s, as `waiting` says of every postponement."""
    borrows = loan_of(wants("remote=allow,profile=talks", 8))
    for held, lent in (
        ("", False),
        (f"loan_held={NOW - 89}", False),
        (f"loan_held={NOW - 90}", True),
    ):
        job = wants("remote=allow,profile=talks", 1, f"remote=1 {held}")
        slurm = TwoNodes(job, borrows, QueuedJob(70, "70", state="RUNNING"))
        lender, lines = borrowing(tmp_path, slurm, "decider: drmaestro, solve_s: 30", 60)
        assert [name for name, _ in lender.asked] == (["1"] if lent else [])
        [line] = decided(lines)
        assert line.why.startswith("drmaestro: ")
        notes = [update.admin_comment or "" for _, update in slurm.updates]
        assert any(f"loan_held={NOW}" in note for note in notes) is (held == "")


@pytest.mark.parametrize("promised", [{"dgx2": 0b1}, {"dgx1": 0b10}, {"dgx1": 0b100}])
def test_slots_promised_during_a_look_are_not_lent_either(tmp_path, promised):
    """Two free GPUs of each node would make four."""
    slurm, cache = TwoNodes(wants("remote=allow")), CapacityCache()

    def a_submit_comes(place: PlacementQuestion, shape: Shape) -> str:
        cache.promise("new", Hold(promised), NOW)
        return ""

    text = BASIC + "enforcement: slots\nremote: {{allow: yes}}\n"
    lender = Remembers(basic_config(tmp_path, text).remote, slurm)
    lends = {"lending": lender, "decider": basic_decider(tmp_path, text)}
    made = look(reconciler(tmp_path, slurm, cache, hold_reason=a_submit_comes, **lends), slurm)
    is_taken = promised != {"dgx1": 0b100}
    assert len(lender.asked) == (not is_taken)
    assert made.again is is_taken
    assert {node.free for node in cache.nodes.values()} == {0b11 if is_taken else 0}
