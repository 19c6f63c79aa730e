"""Who lends to a job, and which jobs may borrow."""

from dataclasses import replace

import pytest
from loans_in_tests import P100, SETTINGS, node, room
from machines_in_tests import BASIC, basic_config

from slurm_plugin.act.lending import matcher
from slurm_plugin.act.lending.choice.offer import Offer, offer
from slurm_plugin.config import presets
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.decide.preferences import HintRefused, read_preferences
from slurm_plugin.decide.rules import Rules
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, Node

NEED = Need(4, cpus=4, memory_mb=1000, partitions=frozenset({"batch"}))


def lent(*nodes: Node, need: Need = NEED, settings: RemoteConfig = SETTINGS) -> dict[str, int]:
    """Slots by node, the job's own node first; nothing without an offer."""
    left = room(*nodes)
    found = offer(matcher.borrower(need, left, settings), matcher.spare_capacity(left), settings)
    return {found.host: found.mask, **found.donors} if isinstance(found, Offer) else {}


# -- who lends ----------------------------------------------------------------


ELSE = frozenset({"else"})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(nodes, expected, id=sentence)
        for sentence, nodes, expected in (
            ("two nodes with two free GPUs each",
             (node("a", 0b1010), node("b", 0b0101)), {"a": 0b1010, "b": 0b0101}),
            ("the job runs where most of its GPUs are",
             (node("a", 0b1), node("b", 0b111)), {"b": 0b111, "a": 0b1}),
            ("too few GPUs in all", (node("a", 0b11), node("b", 0b1)), {}),
            ("no CPUs for a donor", (node("a", 0b11), node("b", 0b11, cpus=1)), {}),
            ("no memory for a donor", (node("a", 0b11), node("b", 0b11, memory_mb=1000)), {}),
            ("nowhere the job's CPUs", (node("a", 0b11, cpus=3), node("b", 0b11, cpus=3)), {}),
            ("a donor is down", (node("a", 0b11), node("b", 0b11, is_open=False)), {}),
            ("a donor of another model", (node("a", 0b11), node("b", 0b11, P100)), {}),
            ("of another partition", (node("a", 0b11), node("b", 0b11, partitions=ELSE)), {}),
            ("no GPU beside the job", (node("a", 0), node("b", 0b1111, cpus=2, memory_mb=500)), {}),
        )
    ],
)  # fmt: skip
def test_who_lends_to_a_job_of_four_gpus(nodes, expected):
    assert lent(*nodes) == expected


def test_the_papers_order_is_the_least_occupied_first():
    nodes = (node("a", 0b111, jobs=3), node("b", 0b11, jobs=1))
    found = lent(*nodes, settings=replace(SETTINGS, donors="least-occupied"))
    assert found == {"b": 0b11, "a": 0b11}


def test_a_middleware_for_one_donor_gets_no_more():
    nodes = (node("a", 0b11), node("b", 0b1), node("c", 0b1))
    assert len(lent(*nodes)) == 3
    one = replace(SETTINGS, preset=presets.load("cricket"))
    assert lent(*nodes, settings=one) == {}


def test_an_offer_holds_the_gpus_cpus_and_memory_of_all_its_nodes():
    left = room(node("a", 0b11), node("b", 0b11))
    job = replace(matcher.borrower(NEED, left, SETTINGS), end=2000.0)
    found = offer(job, matcher.spare_capacity(left), SETTINGS)
    assert isinstance(found, Offer)
    assert found.holds == (
        Hold({"a": 0b11}, 4, 1000, 2000.0),
        Hold({"b": 0b11}, 2, 1024, 2000.0),
    )


# -- equal models ------------------------------------------------------------------


EQUAL = replace(SETTINGS, equal_models=("v100/p100", "a100/h100"))


@pytest.mark.parametrize(
    ("sentence", "need", "expected"),
    [
        ("any model", {}, {"a": 0b11, "b": 0b11}),
        ("which is a feature here", {"features": "p100"}, {"b": 0b11, "a": 0b11}),
        ("runs on the node that it names", {"req_nodes": frozenset("b")}, {"b": 0b11, "a": 0b11}),
        ("borrows from no node it excludes", {"exc_nodes": frozenset("b")}, {}),
        ("a model that is not there", {"features": "a100"}, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_models_that_a_site_calls_equal_lend_to_each_other(sentence, need, expected):
    old = node("b", 0b11, P100, features=frozenset({"p100"}))
    nodes = node("a", 0b11, features=frozenset({"v100"})), old
    assert lent(*nodes, need=replace(NEED, **need), settings=EQUAL) == expected
    assert lent(*nodes, need=replace(NEED, **need)) == {}


def test_a_job_asks_for_it_or_its_partition_does(tmp_path):
    """`rq` is an R queue, `plain` says auto by itself; a user's own word goes first."""
    lends = "enforcement: slots\nremote: {{allow: yes, r_queues: [rq]}}"
    auto = "plain: {{hints: {{remote: auto, profile: md}}}}"
    text = BASIC.replace("plain: {{policy: first-fit}}", auto) + lends
    rules = Rules(basic_config(tmp_path, text))

    def borrows(partition: str, hint: str) -> str:
        found = read_preferences(hint, rules(partition))
        return f"auto {found.profile}" if found.is_auto else "yes" if found.remote else ""

    hints = ("", "remote=allow", "remote=auto,profile=x", "remote=no", "off")
    partitions = ("batch", "rq", "rq,batch", "plain")
    assert {one: [borrows(one, hint) for hint in hints] for one in partitions} == {
        "batch": ["", "yes", "auto x", "", ""],
        "rq": ["yes", "yes", "auto x", "", ""],
        "rq,batch": ["", "yes", "auto x", "", ""],
        "plain": ["auto md", "yes", "auto x", "", ""],
    }


def test_where_the_site_lends_nothing_asking_for_it_is_refused_in_one_line(tmp_path):
    rules = Rules(basic_config(tmp_path))
    for hint in ("remote=allow", "remote=auto"):
        with pytest.raises(HintRefused, match="remote: GPUs of other nodes are not lent here; exp"):
            read_preferences(hint, rules("batch"))
    assert not read_preferences("remote=no", rules("batch")).remote


def test_a_request_for_a_model_runs_on_that_one():
    """GRES types are models where Slurm itself gives GPUs out."""
    new, old = (
        Node(name, (model,) * 4, 0b11, 8, 8000, partitions=NEED.partitions, model=model)
        for name, model in (("a", "v100"), ("b", "p100"))
    )
    asks = replace(NEED, types=frozenset({"p100"}))
    assert lent(new, old, need=asks, settings=EQUAL) == {"b": 0b11, "a": 0b11}
    assert lent(new, old, need=asks) == {}
