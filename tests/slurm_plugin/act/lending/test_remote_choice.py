"""Who is lent to: `remote=auto` by what is predicted, and DRMaestro about all who wait."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from policies import Request
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.drmaestro import RODINIA, DRMaestro
from policies.remote.r_queue import ExpectedRelease, NetworkSpeeds
from slurm_plugin.act.lending.choice.batch import Round
from slurm_plugin.act.lending.choice.network_use import (
    UNKNOWN,
    UNKNOWN_SHARE,
    NetworkUse,
    network_loads,
    network_use,
)
from slurm_plugin.act.lending.choice.offer import Borrower, Offer, Refusal, SpareCapacity, offer
from slurm_plugin.act.lending.choice.solver import Answers, SolverStarting, Unsolved
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.config import presets
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.learn.job_profiles import Remote
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import SlurmPartition

SETTINGS = RemoteConfig(presets.load("echo"), allow=True)
WIRES = SETTINGS.wires
WRITTEN = {
    # 100,000 calls: 347 s of latency on remote GPUs instead of 99 s of the 1099 in all.
    "md": Remote(run_s=1099.0, gpu_calls=100_000),
    "cfd": Remote(run_s=1000.0),
}
TALKATIVE, QUIET = (network_use(name, WRITTEN, WIRES) for name in WRITTEN)


def capacity(*nodes: Node, ends_s: float = math.inf, loads: Mapping[str, float] | None = None):
    """Nodes, and one job on the first of them that gives back four GPUs in `ends_s`."""
    first = nodes[0].name
    back = [ExpectedRelease(ends_s, {first: 0xF0}, {first: 4.0}, {first: 0.0})]
    return SpareCapacity(
        {node.name: node for node in nodes},
        back if ends_s < math.inf else [],
        loads or {},
    )


def node(name: str, gpus: int = 2, **more: object) -> Node:
    values: dict[str, object] = {"cpus": 8, "memory_mb": 8000, "model": "v100"}
    return Node(name, ("v100",) * gpus, (1 << gpus) - 1, **{**values, **more})


def borrower(
    use: NetworkUse = UNKNOWN, *, gpus: int = 4, rounds: int = 0, postponed: int = 0, **more: object
) -> Borrower:
    most = use.max_slowdown or math.inf
    asked = RemoteJob(Request((gpus,)), 1, 100, rounds, postponed, use.sensitivity, most)
    values: dict[str, object] = {"usable": frozenset("abcd"), "use": use}
    return Borrower(asked, **{**values, **more})


# -- remote=auto --------------------------------------------------------------


def test_a_refusal_and_a_loan_tell_both_predictions():
    asked = borrower(TALKATIVE, is_auto=True)
    refused = offer(asked, capacity(node("a"), node("b"), ends_s=100.0), SETTINGS)
    assert refused.by_choice
    assert "remote GPUs would end it in 1347 s, waiting for local ones in 1199 s" in refused.why
    lent = offer(asked, capacity(node("a"), node("b"), ends_s=300.0), SETTINGS)
    assert isinstance(lent, Offer)
    assert lent.why.startswith("r-queue-auto: ")
    assert lent.why.endswith("ends in 1347 s instead of 1399")
    # Nothing says when local GPUs are free.
    assert isinstance(offer(asked, capacity(node("a"), node("b")), SETTINGS), Offer)


def test_a_job_whose_time_would_be_over_first_is_lent_nothing():
    """Slurm would end it at its limit, whatever was lent."""
    there = capacity(node("a"), node("b"), ends_s=10_000.0)
    asked = borrower(TALKATIVE, is_auto=True, limit_s=1300.0)
    found = offer(asked, there, SETTINGS)
    assert isinstance(found, Refusal)
    assert found.why.endswith("its time limit is 1300 s")
    assert isinstance(offer(replace(asked, limit_s=1400.0), there, SETTINGS), Offer)


@pytest.mark.parametrize("name", ["", "never-heard-of", "nw"])
def test_without_a_run_time_in_its_profile_nothing_is_predicted_and_nothing_lent(name):
    asked = borrower(network_use(name, {}, WIRES), is_auto=True)
    found = offer(asked, capacity(node("a"), node("b")), SETTINGS)
    assert isinstance(found, Refusal)
    assert "no profile of the job says how long it runs" in found.why


def test_local_gpus_of_another_model_count_as_well():
    """Four K80s are free in a moment; the V100s that could be lent stay out of it."""
    slow = [node("a", gpus=0, model="k80"), node("b"), node("c")]
    found = offer(borrower(TALKATIVE, is_auto=True), capacity(*slow, ends_s=10.0), SETTINGS)
    assert isinstance(found, Refusal)
    assert "waiting for local ones in 1109 s" in found.why


def test_the_sites_network_is_what_is_predicted_with():
    """40 GB take 6 s over 7 GB/s and 44 s over 1 GB/s; local GPUs are free in 20 s."""
    heavy = Remote(run_s=100.0, gpu_cpu_gb=40.0)
    there = capacity(node("a"), node("b"), ends_s=20.0)
    for gb_s, is_lent in ((7.0, True), (1.0, False)):
        site = replace(SETTINGS, network_gb_s=gb_s)
        asked = borrower(network_use("x", {"x": heavy}, site.wires), is_auto=True)
        assert isinstance(offer(asked, there, site), Offer) is is_lent


def test_it_is_told_where_gpus_are_free_without_cpus_beside_them():
    there = capacity(node("a"), node("b", cpus=0))
    found = offer(borrower(), there, SETTINGS)
    assert found.by_choice
    assert "enough GPUs are free, but not the CPUs or the memory" in found.why
    assert decided(borrower(), there=there) == [found]
    few = offer(borrower(gpus=5), there, SETTINGS)
    assert not few.by_choice


def test_cpus_that_slurm_keeps_from_the_job_lend_nothing():
    """Of b its partition has what it may have; the GPUs' own cores are there for donors."""
    narrow = SlurmPartition("narrow", ("b",), False, max_cpus_per_node=2)
    full: dict[str, object] = {
        "partitions": frozenset(("narrow", "wide")), "limits": {"narrow": narrow},
        "taken": {"narrow": 2},
    }  # fmt: skip
    there = capacity(node("a"), node("b", **full))
    asked = borrower(partitions=frozenset(("narrow",)))
    assert isinstance(offer(asked, there, SETTINGS), Refusal)
    wide = borrower(partitions=frozenset(("narrow", "wide")))
    assert isinstance(offer(wide, there, SETTINGS), Offer)
    kept = capacity(node("a"), node("b", cpus=2, cpus_by_gpu=1))
    assert isinstance(offer(borrower(), kept, SETTINGS), Offer)


# -- what is known of a job ---------------------------------------------------


def test_a_profiles_own_words_go_before_what_the_thesis_measured():
    written = {"nw": Remote(sensitivity=0.3, max_slowdown=1.2)}
    found = network_use("nw", written, NetworkSpeeds())
    assert (found.sensitivity, found.max_slowdown) == (0.3, 1.2)
    assert found.share == RODINIA["nw"].idle
    assert network_use("nw", {}, NetworkSpeeds()).sensitivity == RODINIA["nw"].sensitivity
    assert network_use("", {}, NetworkSpeeds()) == UNKNOWN


def test_the_share_of_the_network_follows_from_calls_and_bytes():
    shares = [network_use(name, WRITTEN, WIRES).share for name in ("md", "cfd")]
    assert shares == pytest.approx([1 - 1099 / 1347, 0.0], abs=1e-3)


def test_loans_load_the_networks_of_both_ends():
    loan = Loan("a", 0b11, (LoanDonor("b", 0b11, 71), LoanDonor("c", 0b1, 72)))
    assert network_loads([(loan, 0.2)]) == pytest.approx({"a": 0.6, "b": 0.4, "c": 0.2})
    assert network_loads([(loan, 0.2)] * 3)["a"] == 1.0
    assert RODINIA["nw"].idle == UNKNOWN_SHARE


# -- DRMaestro ----------------------------------------------------------------


class InPlace:
    """Solves in this process, and remembers how many jobs it was asked about."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[int] = []
        self.error = error

    def ask(
        self, planner: DRMaestro, jobs: Sequence[RemoteJob], rooms: Mapping[str, NodeCapacity]
    ) -> Answers:
        self.asked.append(len(jobs))
        if self.error is not None:
            raise self.error
        return planner.decide(jobs, dict(rooms))


def decided(
    *jobs: Borrower,
    there: SpareCapacity,
    solver: InPlace | None = None,
    settings: RemoteConfig = SETTINGS,
) -> list[Offer | Refusal]:
    return Round(jobs, there, settings, solver or InPlace(), 10).decide()


def gpus(found: Offer | Refusal) -> dict[str, int]:
    """How many GPUs of which node; nothing for a refusal."""
    if isinstance(found, Refusal):
        return {}
    return {
        name: mask.bit_count() for name, mask in {found.host: found.mask, **found.donors}.items()
    }


def test_drmaestro_is_asked_once_about_all_who_wait():
    there = capacity(node("a"), node("b"), node("c"), node("d", gpus=1))
    solver = InPlace()
    found = decided(*[borrower(gpus=3)] * 3, there=there, solver=solver)
    assert solver.asked == [3]
    assert sorted(sum(gpus(one).values()) for one in found) == [0, 3, 3]


def test_the_longer_a_job_waits_the_sooner_it_is_lent_to():
    there = capacity(node("a"), node("b"))
    young, old = borrower(gpus=3), borrower(gpus=3, rounds=30)
    assert [bool(gpus(one)) for one in decided(young, old, there=there)] == [False, True]
    assert [bool(gpus(one)) for one in decided(old, young, there=there)] == [True, False]


def test_nothing_is_lent_twice_in_one_round():
    there = capacity(*(node(name) for name in "abcd"))
    found = decided(*[borrower(gpus=3)] * 4, there=there)
    lent = [one for one in found if isinstance(one, Offer)]
    assert len(lent) == 2
    for name in "abcd":
        masks = [{one.host: one.mask, **one.donors}.get(name, 0) for one in lent]
        assert not masks[0] & masks[1]


def test_jobs_that_may_use_other_nodes_are_asked_about_apart():
    there = capacity(*(node(name) for name in "abcd"))
    pair, others = borrower(usable=frozenset("ab")), borrower(usable=frozenset("cd"))
    solver = InPlace()
    found = decided(pair, others, pair, there=there, solver=solver)
    assert solver.asked == [2, 1]
    assert [set(gpus(one)) for one in found] == [{"a", "b"}, {"c", "d"}, set()]


def test_gpus_of_two_models_are_never_mixed():
    there = capacity(node("a"), node("b", model="p100"), node("c", model="p100"))
    assert gpus(decided(borrower(), there=there)[0]) == {"b": 2, "c": 2}


def test_a_busy_network_holds_a_sensitive_job_back_ten_times_at_most():
    there = capacity(node("a"), node("b"), loads={"a": 1.0, "b": 1.0})
    sensitive = borrower(NetworkUse(sensitivity=0.9))
    [held] = decided(sensitive, there=there)
    assert (held.by_choice, held.is_network) == (True, True)
    for calm in (
        decided(borrower(sensitive.use, postponed=10), there=there),
        decided(sensitive, there=replace(there, loads={})),
        decided(borrower(NetworkUse(sensitivity=0.4)), there=there),
        decided(borrower(NetworkUse(sensitivity=0.9, max_slowdown=2.0)), there=there),
        decided(sensitive, there=there, settings=replace(SETTINGS, max_slowdown=2.0)),
    ):
        assert gpus(calm[0]) == {"a": 2, "b": 2}


def test_remote_auto_is_kept_under_drmaestro_too():
    there = capacity(node("a"), node("b"), ends_s=100.0)
    [refused] = decided(borrower(TALKATIVE, is_auto=True), there=there)
    assert isinstance(refused, Refusal)
    assert "1347 s" in refused.why
    [lent] = decided(borrower(QUIET, is_auto=True), there=there)
    assert isinstance(lent, Offer)
    assert lent.why.startswith("drmaestro-auto: ")


def test_without_an_answer_in_time_the_r_queue_decides():
    there = capacity(*(node(name) for name in "abcd"))
    late = InPlace(Unsolved("no answer within 1 s"))
    found = decided(borrower(gpus=3), borrower(gpus=3), borrower(gpus=3), there=there, solver=late)
    assert [sum(gpus(one).values()) for one in found] == [3, 3, 0]
    assert isinstance(found[0], Offer)
    assert found[0].why.startswith("r-queue: ")


def test_while_the_solver_starts_nobody_decides():
    there, solver = capacity(node("a"), node("b")), InPlace(SolverStarting("x"))
    with pytest.raises(SolverStarting):
        decided(borrower(), there=there, solver=solver)


def test_a_plan_with_too_many_donors_is_made_again_by_the_r_queue():
    """DRMaestro knows no bound on donors; cricket takes one."""
    cricket = replace(SETTINGS, preset=presets.load("cricket"))
    there = capacity(node("a", gpus=2), node("b", gpus=1), node("c", gpus=1), node("d", gpus=2))
    [found] = decided(borrower(gpus=4), there=there, settings=cricket)
    assert gpus(found) in ({"a": 2, "d": 2}, {"d": 2, "a": 2})
