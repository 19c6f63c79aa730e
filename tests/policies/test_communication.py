"""What a job communicates, by how much longer it takes on worse GPUs, and who says so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from machines import machine

from policies import Ahead, Cluster, NodeState, Placement, Release, Request, Wait, WaitingJob
from policies.contract.bits import mask_of
from policies.contract.interference import Kind
from policies.contract.policy import Site
from policies.horizon.communication import Communication, communication_by, run_s
from policies.horizon.futures import Choices, World
from policies.registry import registry
from policies.scoring.tables import tables

DGX1V = machine("dgx1v")
BERT = Kind("bert", 0, 2)
OF_BERT = {"profile": "bert"}


@pytest.mark.parametrize("communication", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("near", "far"), [(1.0, 0.25), (0.8, 0.3), (0.5, 0.49)])
def test_what_amdahls_law_makes_of_a_share_gives_it_back(communication, near, far):
    longer = run_s(100.0, communication, far) / run_s(100.0, communication, near)
    assert communication_by(longer, near, far) == pytest.approx(communication)


@pytest.mark.parametrize(
    ("longer", "near", "far", "expected"),
    [
        pytest.param(0.7, 1.0, 0.25, 0.0, id="faster on worse GPUs: it feels no links"),
        pytest.param(90.0, 1.0, 0.25, 1.0, id="slower than links explain"),
        pytest.param(1.5, 0.4, 0.4, None, id="no set is worse"),
        pytest.param(1.5, 0.3, 0.9, None, id="the far sets are the better ones"),
        pytest.param(9.0, 0.5, 0.4, None, id="no share makes it that slow"),
    ],
)
def test_what_the_law_cannot_explain_is_bounded_or_not_known(longer, near, far, expected):
    assert communication_by(longer, near, far) == expected


def known(spreads: dict[Kind, float], request: Request) -> tuple[float, str] | None:
    return Communication(spreads, tables).of_request(request, [DGX1V])


def test_a_profile_tells_where_the_hint_does_not():
    request = Request((2,), options=OF_BERT, user=7)
    measured = known({BERT: 1.3}, request)
    assert measured is not None
    assert 0.2 < measured.share < 0.8
    assert measured.source == "profile bert"
    assert known({BERT: 1.0}, request) == (0.0, "profile bert")
    said = replace(request, options={**OF_BERT, "communication": "0.05"})
    assert known({BERT: 2.0}, said) == (0.05, "")


@pytest.mark.parametrize(
    ("spreads", "request_"),
    [
        pytest.param({}, Request((2,), options=OF_BERT), id="nothing was measured"),
        pytest.param({BERT: 2.0}, Request((2,)), id="the job names no profile"),
        pytest.param({BERT: 2.0}, Request((3,), options=OF_BERT), id="other numbers of GPUs"),
        pytest.param({BERT: 2.0}, Request((2, 2), options=OF_BERT), id="several nodes"),
        pytest.param(
            {BERT._replace(user=8): 2.0}, Request((2,), options=OF_BERT, user=7),
            id="another user's runs",
        ),
        pytest.param(
            {BERT._replace(gpus=8): 2.0}, Request((8,), options=OF_BERT),
            id="no socket holds them",
        ),
    ],
)  # fmt: skip
def test_what_was_not_measured_for_this_job_is_not_known(spreads, request_):
    assert known(spreads, request_) is None


def test_the_sites_measurement_goes_before_the_users_own_runs():
    request = Request((2,), options=OF_BERT, user=7)
    own = BERT._replace(user=7)
    runs = known({own: 1.5}, request)
    assert runs is not None
    assert runs.source == "earlier runs of profile bert"
    assert known({own: 1.5, BERT: 2.0}, request) == known({BERT: 2.0}, request)


#: On a dgx1v 0,3 have a double link and 0,5 none.
def where(*waits: WaitingJob) -> Cluster:
    release = [Release(120.0, "n", 1 << 3)]
    return Cluster(
        {"n": NodeState("n", DGX1V, mask_of([0, 5]))}, ahead=Ahead(3600.0, waits, release)
    )


def test_a_profiled_job_waits_as_if_it_had_said_so_and_the_reason_says_who_did():
    horizon = registry.build("horizon", {}, Site(spreads={BERT: 2.0}))
    answer = horizon.place(Request((2,), options=OF_BERT), where())
    assert isinstance(answer, Wait)
    assert re.search(
        r" s sooner; communicates for \d+ % of its time by profile bert$", answer.reason
    )
    assert answer.instead is not None
    assert " % of its time by profile bert" in answer.instead.reason
    hinted = horizon.place(Request((2,), options={"communication": "0.5"}), where())
    assert isinstance(hinted, Wait)
    assert " by profile" not in hinted.reason
    lasting = registry.build("horizon", {}, Site(spreads={BERT: 1.0}))
    assert isinstance(lasting.place(Request((2,), options=OF_BERT), where()), Placement)


def test_what_a_waiting_job_communicates_counts_as_if_it_had_said_so():
    horizon = registry.build("horizon")
    cluster = where(WaitingJob((2,), 60.0, profile="bert"), WaitingJob((2,), 60.0))
    told = Communication({BERT: 2.0}, tables)
    choices = Choices(tables, horizon._objective)
    world = World(choices, cluster, Request((1,)), cluster.nodes.values(), told=told)
    profiled, other = (part for _, _, part in world._played_in(0)[1])
    assert profiled.weight > other.weight == 1.0
