"""Decisions: the wires decide, and everything doubtful is left to Slurm."""

import logging
from dataclasses import replace
from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines_in_tests import basic_decider, mask, node, question
from msgspec import UNSET, structs

from policies import Cluster, Placement, Policy, Request, Wait
from policies.contract.hint_keys import MIN_UTILITY
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.base.protocol import Pass, Use, WaitFor
from slurm_plugin.base.wire import clean_note
from slurm_plugin.decide.decide import Decider, use_note

FULL = 0xFF


@pytest.fixture(scope="module")
def decider(tmp_path_factory: pytest.TempPathFactory) -> Decider:
    return basic_decider(tmp_path_factory.mktemp("decide"))


class Fixed(Policy):
    """A policy that answers what it is told to."""

    name = "fixed"
    hints = (MIN_UTILITY,)

    def __init__(self, *answers: Placement | Wait | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def fixed(decider: Decider, *answers: Placement | Wait | Exception) -> tuple[Decider, Fixed]:
    policy = Fixed(*answers)
    return replace(decider, get_policy=lambda name: policy), policy


def test_two_gpus_of_an_empty_dgx1v_get_the_double_nvlink(decider):
    reply = decider.decide(question(node("dgx1", FULL, mask(0, 1)))).reply
    assert reply.nodes == {"dgx1": mask(0, 3)}
    assert reply.alt == {}
    assert reply.note.startswith("dgx1:0,3 by mapa: ring: ")
    assert reply.note == clean_note(reply.note)


def test_the_index_mapping_is_applied_both_ways(decider):
    # Slurm's 7..0 are the topology's 0..7: free are the topology's 0, 3 and 6.
    decision = decider.decide(question(node("mirrored", mask(7, 4, 1), mask(1, 4))))
    assert decision.reply.nodes == {"mirrored": mask(7, 4)}
    record = decision.record()
    assert set(record.chosen.gpus["mirrored"]) == {7, 4}
    assert record.slurm.gpus == {"mirrored": (1, 4)}


def test_a_better_node_is_taken_and_the_alternative_stays_with_slurms(decider):
    asked = question(node("dgx1", mask(0, 1, 6), mask(0, 6)), node("dgx2", FULL))
    reply = decider.decide(asked).reply
    assert reply.nodes == {"dgx2": mask(0, 3)}
    assert reply.alt == {"dgx1": mask(0, 1)}


def test_the_alternative_keeps_each_nodes_own_count(decider):
    asked = question(
        node("dgx1", mask(0, 1, 2, 5), mask(0, 1, 5)),
        node("dgx2", mask(0, 1, 2, 3, 4), mask(0)),
        node("dgx3", FULL),
    )
    reply = decider.decide(asked).reply
    assert {name: m.bit_count() for name, m in reply.alt.items()} in ({"dgx1": 3, "dgx2": 1}, {})
    if reply.nodes.keys() != {"dgx1", "dgx2"}:
        assert reply.alt


def test_a_heavier_node_is_not_taken_while_a_lighter_one_has_room(decider):
    asked = question(node("dgx1", mask(0, 5), mask(0, 5)), node("dgx2", FULL, weight=10))
    reply = decider.decide(asked).reply
    assert set(reply.nodes) == {"dgx1"}


@pytest.mark.parametrize(
    ("asked", "reason", "note"),
    [
        (question(node("dgx1", FULL)), "Slurm chose no GPUs", ""),
        (question(node("dgx1", FULL, 1), partition="quiet"), "partition is off", ""),
        (
            question(node("dgx1", FULL, 1), hint="off"),
            "opted out by hint",
            "Slurm's own choice: opted",
        ),
        (question(node("dgx1", FULL, 1), hint="pattern=knot"), "bad hint", "pattern: 'knot'"),
        (question(node("alien", FULL, 1)), "node left to Slurm", "choice: alien: not declared"),
        (
            question(node("dgx1", 0xF, 1, total=4)),
            "node left to Slurm",
            "dgx1: Slurm says 4 GPUs, the topology 8",
        ),
        (
            question(node("dgx1", FULL, 1), node("alien", FULL, 1)),
            "node left to Slurm",
            "alien: not declared",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_decided_is_slurms_own(decider, asked, reason, note):
    decision = decider.decide(asked)
    assert isinstance(decision.reply, Pass)
    assert decision.reason == reason
    assert note in decision.reply.note


def test_an_unknown_node_that_slurm_did_not_choose_is_only_left_out(decider):
    decision = decider.decide(question(node("dgx1", FULL, mask(0, 1)), node("alien", FULL)))
    assert isinstance(decision.reply, Use)
    assert decision.record().excluded_nodes == {"alien": "not declared in gputopo.yaml"}


def test_observe_decides_and_logs_and_changes_nothing(decider):
    asked = question(node("dgx1", FULL, mask(0, 1)), partition="watched")
    decision = decider.decide(asked)
    assert decision.reply == Pass()
    record = decision.record()
    assert record.decision == "use"
    assert record.applied is False
    assert record.chosen.gpus == {"dgx1": (0, 3)}


def test_the_record_sets_slurms_own_choice_beside_ours(decider):
    record = decider.decide(question(node("dgx1", FULL, mask(0, 1)))).record()
    assert record.slurm.gpus == {"dgx1": (0, 1)}
    assert record.slurm.effbw_gbps == pytest.approx(21.61, abs=0.01)
    assert record.chosen.effbw_gbps == pytest.approx(39.08, abs=0.01)
    assert record.candidates[0].gpus == record.chosen.gpus
    assert record.policy == "mapa"


def test_the_record_of_a_policy_without_scores_is_scored_by_the_judge(decider):
    bare = Placement({"dgx1": (0, 1)}, "fixed", "because")
    ours, _ = fixed(decider, bare)
    record = ours.decide(question(node("dgx1", FULL, mask(0, 1)))).record()
    # Its utility is the share of what the node could give to two GPUs: 1 for a double link.
    assert 0.0 < record.chosen.utility < 1.0
    assert structs.replace(record.chosen, utility=UNSET) == record.slurm
    assert record.chosen.effbw_gbps == pytest.approx(21.61, abs=0.01)


def test_the_record_of_a_policy_of_terms_carries_them(decider):
    asked = replace(question(node("dgx1", FULL, mask(0, 1))), hint="policy=topo-aware,batch=1")
    record = decider.decide(asked).record()
    terms = {"communication": 1.0, "interference": 1.0, "fragmentation": 0.5}
    assert record.chosen.terms == terms
    assert record.chosen.score == pytest.approx(2.5 / 3)
    assert record.chosen.effbw_gbps > 0
    assert record.candidates[0].terms == record.chosen.terms
    assert record.candidates[0].effbw_gbps is UNSET


WAIT = Wait("busy")


@pytest.mark.parametrize(
    ("most_s", "spent", "wait_s"),
    [
        (inf, {}, 30),
        (inf, {"postponed": 1, "waited_s": 93}, 7),
        (45.0, {}, 30),
        (45.0, {"postponed": 1, "waited_s": 30}, 15),
        (44.2, {"postponed": 1, "waited_s": 30}, 15),
    ],
)
def test_a_wait_is_cut_to_the_sites_step_and_to_what_is_left_of_the_jobs_time(
    decider, most_s, spent, wait_s
):
    ours, _ = fixed(decider, replace(WAIT, at_most_s=most_s))
    asked = question(node("dgx1", FULL, 1), **spent)
    bound_s = min(100, ceil(most_s)) if most_s < inf else 100
    assert ours.decide(asked).reply == WaitFor(wait_s, "fixed: busy", max_wait_s=bound_s)


def test_new_waits_add_up_to_no_more_than_the_policy_allows_one(decider):
    """Each question may be about other GPUs that come free: the sum is bounded, not each alone."""
    instead = Placement({"dgx1": (0,)}, "fixed", "what is free")
    ours, _ = fixed(decider, replace(WAIT, at_most_s=45.0, instead=instead))
    asked = question(node("dgx1", FULL, 1), postponed=2, waited_s=45)
    assert isinstance(ours.decide(asked).reply, Use)


@pytest.mark.parametrize(
    "spent", [{"postponed": 3}, {"postponed": 1, "waited_s": 100}], ids=["times", "seconds"]
)
def test_a_job_that_waited_enough_gets_what_is_free(decider, spent):
    instead = Placement({"dgx1": (4,)}, "fixed", "what is free")
    ours, _ = fixed(decider, replace(WAIT, instead=instead))
    reply = ours.decide(question(node("dgx1", FULL, 1), **spent)).reply
    assert reply.nodes == {"dgx1": mask(4)}


def test_a_policy_that_only_waits_is_asked_again_without_conditions(decider):
    placement = Placement({"dgx1": (4,)}, "fixed", "free")
    ours, policy = fixed(decider, WAIT, placement)
    asked = question(node("dgx1", FULL, 1), postponed=3, hint="min-utility=0.9,policy=mapa")
    assert isinstance(ours.decide(asked).reply, Use)
    assert [request.min_utility for request in policy.asked] == [0.9, 0.0]


def test_a_policy_that_never_places_ends_in_slurms_own(decider):
    ours, _ = fixed(decider, WAIT)
    decision = ours.decide(question(node("dgx1", FULL, 1), postponed=3))
    assert decision.reason == "waited long enough"


@pytest.mark.parametrize(
    "gpus",
    [{"dgx1": (1, 8)}, {"dgx1": (0, 4)}, {"dgx9": (0, 1)}, {"dgx1": (1, 1)}, {"dgx1": (1,)},
     {"dgx1": (1, 2, 3)}, {"dgx1": (1,), "dgx2": (1,)}],
    ids=["no such GPU", "busy", "unknown node", "twice", "too few", "too many", "split"],
)  # fmt: skip
def test_an_impossible_answer_of_a_policy_is_never_passed_on(decider, gpus, caplog):
    ours, _ = fixed(decider, Placement(gpus, "fixed", "wrong"))
    asked = question(node("dgx1", FULL & ~1, mask(1, 2)), node("dgx2", FULL))
    if gpus == {"dgx1": (0, 4)}:
        asked = question(node("dgx1", mask(0, 1, 2), mask(1, 2)))
    with caplog.at_level(logging.ERROR):
        decision = ours.decide(asked)
    assert decision.reply == Pass("Slurm's own choice: internal error")
    assert decision.reason == "internal error"
    assert "the decision failed" in caplog.text


def test_a_policy_that_raises_costs_only_its_own_answer(decider, caplog):
    ours, _ = fixed(decider, ZeroDivisionError("bug"))
    decision = ours.decide(question(node("dgx1", FULL, 1)))
    assert decision.reply == Pass("Slurm's own choice: internal error")
    assert decision.reason == decision.record().why == "internal error"


def test_a_partitions_hints_are_defaults_the_users_own_win(decider):
    ours, policy = fixed(decider, Placement({"dgx1": (0,)}, "fixed", ""))
    ours.decide(question(node("dgx1", FULL, 1), partition="picky"))
    ours.decide(question(node("dgx1", FULL, 1), partition="picky", hint="pattern=tree"))
    assert [(r.min_utility, r.pattern) for r in policy.asked] == [(0.9, "ring"), (0.9, "tree")]


def test_a_key_users_may_not_set_is_a_bad_hint(decider):
    asked = question(node("dgx1", FULL, 1), partition="picky", hint="min-utility=0")
    decision = decider.decide(asked)
    assert decision.reason == "bad hint"
    assert "expected one of pattern, off" in decision.reply.note


def test_the_same_question_gets_the_same_answer(decider):
    asked = question(*(node(f"dgx{i}", FULL, mask(0, 1) if i == 1 else 0) for i in (3, 1, 2)))
    first = decider.decide(asked).reply
    assert all(decider.decide(asked).reply == first for _ in range(5))
    assert decider.decide(replace(asked, candidates=asked.candidates[::-1])).reply == first


@st.composite
def questions(draw: st.DrawFn) -> list[CandidateNode]:
    nodes = []
    for name in draw(st.permutations(["dgx1", "dgx2", "dgx3", "mirrored"])):
        free = draw(st.integers(0, FULL))
        own = free & draw(st.integers(0, FULL))
        nodes.append(node(name, free, own, weight=draw(st.integers(1, 2))))
    return nodes


@given(questions(), st.sampled_from(["", "pattern=tree", "policy=best-fit", "policy=first-fit"]))
def test_what_is_used_is_free_and_as_much_as_slurm_counted(decider, nodes, hint):
    reply = decider.decide(question(*nodes, hint=hint)).reply
    counts = sorted(n.own.bit_count() for n in nodes if n.own)
    if not counts:
        assert isinstance(reply, Pass)
        return
    free = {n.name: n.free for n in nodes}
    for chosen in (reply.nodes, reply.alt):
        assert all(m and not m & ~free[name] for name, m in chosen.items())
    assert sorted(m.bit_count() for m in reply.nodes.values()) == counts
    if reply.alt:
        own = {n.name: n.own.bit_count() for n in nodes if n.own}
        assert {name: m.bit_count() for name, m in reply.alt.items()} == own


# The note in AdminComment: GPUs in rank order, policy, reason, within 200 bytes.


def test_gpus_stand_in_rank_order_by_slurms_index(decider):
    asked = question(node("mirrored", FULL, mask(0, 1, 2, 3)))
    decision = decider.decide(asked)
    order = decision.record().chosen.gpus["mirrored"]
    assert decision.reply.note.startswith(f"mirrored:{','.join(map(str, order))} by mapa: ")
    assert mask(*order) == decision.reply.nodes["mirrored"]


def test_many_nodes_are_counted_and_the_reason_stays():
    gpus = {f"node{i:03}": tuple(range(8)) for i in range(100)}
    note = use_note(gpus, "mapa", "because of its links")
    assert len(note.encode()) <= 200
    assert "more nodes by mapa: because of its links" in note
    assert note.startswith("node000:0,1,2,3,4,5,6,7 node001:")


def test_nothing_is_written_where_the_site_wants_nothing(decider):
    decide = decider.decide
    for partition in ("quiet", "watched"):
        asked = question(node("dgx1", FULL, 1), node("alien", FULL), partition=partition)
        assert decide(asked).reply == Pass()
    assert decide(question(node("alien", FULL, 1), partition="watched")).reply == Pass()


def test_the_record_counts_the_rings_pcie_hops(decider):
    record = decider.decide(question(node("dgx1", FULL, mask(0, 5)))).record()
    assert record.chosen.pcie_hops == 0
    assert record.slurm.pcie_hops == 1
