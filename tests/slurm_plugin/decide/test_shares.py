"""Shards and MPS: a job's shares come from a GPU in use, and a pair on one bridge stays whole."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from machines_in_tests import BASIC, basic_config, decider_of, mask, question
from msgspec import structs

from bench.request_lines import encode_request
from policies.hints import to_running
from slurm_plugin.base.job_notes.hints import values_of
from slurm_plugin.base.log_lines import plain
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.base.protocol import Pass, decode
from slurm_plugin.decide.neighbours import Sharing
from slurm_plugin.errors import ProtocolError
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

#: Bridges over 0-2, 1-3, 4-5, 6-7.
TEXT = BASIC.replace(
    "partitions:", '  - {{nodes: "pair[1-9]", topology: a100-pcie-bridged}}\npartitions:'
)
FULL = (4,) * 8


@pytest.fixture(scope="module")
def decider(tmp_path_factory):
    return decider_of(basic_config(tmp_path_factory.mktemp("shares"), TEXT))


def shared(name, left, own=(), shares=1, busy=(), weight=1):
    """A node of four shards a GPU; what is `busy` is a job's of whole GPUs."""
    left = tuple(0 if gpu in busy else some for gpu, some in enumerate(left))
    idle = mask(*(gpu for gpu, some in enumerate(left) if some == 4))
    free = mask(*(gpu for gpu, some in enumerate(left) if some >= shares))
    return CandidateNode(name, 8, free, mask(*own), weight, idle, left)


def used(**taken):
    """Shards that are left where these are in use: `g3=1`."""
    return tuple(4 - taken.get(f"g{gpu}", 0) for gpu in range(8))


def ask(*nodes, shares=1, kind="shard", **more):
    return question(*nodes, shared=kind, shares=shares, **more)


CHOICES = [
    ("an empty node: a GPU of a pair, because all are", FULL, 1, (), 0),
    ("a GPU in use goes before one that nobody uses", used(g5=1), 1, (), 5),
    ("of two in use the fuller one", used(g5=1, g4=2), 1, (), 4),
    ("one with room for all of the job's shards", used(g5=1, g4=2), 3, (), 5),
    ("without room another is begun: the partner of one in use", used(g5=2), 3, (), 4),
    ("the partner of one that a job has whole", FULL, 1, (7,), 6),
    ("of GPUs in use the one whose partner is in use", used(g0=1, g6=1, g7=3), 1, (), 7),
]


@pytest.mark.parametrize(
    ("left", "shares", "busy", "expected"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES]
)
def test_the_parent_is_chosen_by_what_is_in_use(decider, left, shares, busy, expected):
    own = next(g for g, some in enumerate(left) if some >= shares and g not in busy)
    node = shared("pair1", left, (own,), shares, busy)
    assert decider.decide(ask(node, shares=shares)).reply.nodes == {"pair1": mask(expected)}


def test_the_node_with_a_shared_gpu_goes_first_and_a_heavier_one_never(decider):
    empty, begun = shared("pair1", FULL, (0,)), shared("pair2", used(g3=1))
    reply = decider.decide(ask(empty, begun)).reply
    assert (reply.nodes, reply.alt) == ({"pair2": mask(3)}, {"pair1": mask(0)})
    heavy = shared("pair2", used(g3=1), weight=2)
    assert decider.decide(ask(empty, heavy)).reply.nodes == {"pair1": mask(0)}


BIG, TINY = "policy=topo-aware,batch=64", "policy=topo-aware,batch=1"
BESIDE = [
    ("a job that its batch size tells apart", BIG, TINY, 4, "1.00"),
    ("one that is not slowed goes where it slows nobody", BIG, "", 4, "1.00"),
    ("without a hint anybody may be slowed", "", "", 5, "1.11"),
]


@pytest.mark.parametrize(
    ("hint", "there", "expected", "slowed"), [b[1:] for b in BESIDE], ids=[b[0] for b in BESIDE]
)
def test_of_the_gpus_in_use_the_one_whose_jobs_get_along(decider, hint, there, expected, slowed):
    """GPU 5 is the fuller one; GPU 4 has a job of large batches."""
    here = {
        5: to_running(values_of(there), 1, {"pair1": mask(5)}),
        4: to_running(values_of(BIG), 2, {"pair1": mask(4)}),
    }
    beside = SimpleNamespace(is_wanted=False, sharing=lambda name: here.values())
    asking = replace(decider, sharing=Sharing(beside))
    node = shared("pair1", used(g5=3, g4=1), (0,))
    decision = asking.decide(ask(node, hint=hint))
    if not hint:
        here[4] = to_running(values_of(""), 2, {"pair1": mask(4)})
        decision = asking.decide(ask(node))
    assert decision.reply.nodes == {"pair1": mask(expected)}
    assert (f"slowed {slowed} times" in decision.reply.note) == (slowed != "1.00")
    assert beside.is_wanted == bool(hint)


def test_each_of_several_nodes_gives_one_gpu(decider):
    nodes = shared("pair1", used(g5=1), (0,)), shared("pair2", used(g3=2), (0,))
    reply = decider.decide(ask(*nodes)).reply
    assert reply.nodes == {"pair1": mask(5), "pair2": mask(3)}


def test_another_order_of_gpus_is_translated(decider):
    """Slurm's GPU 0 of this node is the topology's GPU 7."""
    reply = decider.decide(ask(shared("mirrored", used(g6=1), (0,)))).reply
    assert reply.nodes == {"mirrored": mask(6)}


@pytest.mark.parametrize(
    ("kind", "words"), [("shard", "2 shards"), ("mps", "2 shares of MPS")], ids=["shard", "mps"]
)
def test_the_log_and_explain_tell_of_the_parent(decider, kind, words):
    decision = decider.decide(ask(shared("pair1", used(g5=1), (0,), 2), shares=2, kind=kind))
    assert decision.reply.note == f"pair1:5 by shares: {words}: a GPU in use"
    line = decision.record()
    assert (line.policy, line.shares) == ("shares", words)
    assert plain(line)["chosen"] == {
        "gpus": {"pair1": [5]}, "of_gpus": {"pair1": [5]}, "shares": words,
        "begun": 0, "untouched": 7,
    }  # fmt: skip
    assert (line.slurm.begun, line.slurm.untouched) == (1, 6)
    told = in_words(story_of(7, [structs.replace(line, time="T1")], "decision log"))
    assert f"asked         {words} a node in partition" in told
    assert f"chosen        pair1: 5  {words} of GPU 5, 0 GPUs begun, 7 untouched there" in told


def test_a_node_that_is_not_declared_is_slurms(decider):
    reply = decider.decide(ask(shared("elsewhere", FULL, (0,)))).reply
    assert reply == Pass("Slurm's own choice: elsewhere: not declared in gputopo.yaml")


def test_the_question_travels():
    asked = ask(shared("pair1", used(g5=1), (0,), 3), shared("pair2", FULL), shares=3, kind="mps")
    assert decode(encode_request(asked).strip()) == asked


HEAD = b"place id=1 job=7 array=0 uid=1 postponed=0 waited_s=0 "
WRONG = [
    ("an unknown kind", b"shared=slice shares=1 node=n1/2/3/1/1/3/4,4"),
    ("no number of shares", b"shared=shard node=n1/2/3/1/1/3/4,4"),
    ("no shares of the node", b"shared=shard shares=1 node=n1/2/3/1/1"),
    ("shares in a question about GPUs", b"node=n1/2/3/1/1/3/4,4"),
    ("shares of too few GPUs", b"shared=shard shares=1 node=n1/2/3/1/1/3/4"),
    ("free where too few are left", b"shared=shard shares=5 node=n1/2/3/1/1/3/4,5"),
    ("shares of two GPUs", b"shared=shard shares=1 node=n1/2/3/3/1/3/4,4"),
    ("an idle GPU that the node lacks", b"shared=shard shares=1 node=n1/2/3/1/1/7/4,4"),
]


@pytest.mark.parametrize("words", [w[1] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_question_that_does_not_fit_together_is_refused(words):
    with pytest.raises(ProtocolError, match="place: "):
        decode(HEAD + words)
