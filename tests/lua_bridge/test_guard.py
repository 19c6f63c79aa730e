"""What users may not change of jobs that lend or borrow GPUs, in both ways of enforcing."""

from __future__ import annotations

import pytest

DONOR = {"job_state": 0, "admin_comment": "[gpu-donor: of=7]", "comment": "gpu-donor of=7"}
MEETS = {
    "job_state": 0,
    "tres_per_node": "gres/gpu:4",
    "admin_comment": "[gpu-topo: remote=allow] [gpu-loan: meets loan=n1/3,n2/3/71]",
}
MAY = {**MEETS, "admin_comment": "[gpu-topo: remote=allow] [gpu-loan: may remote=1]"}

#: What makes a job larger, or starts it otherwise than the engine meant.
GROWS = [
    ("min_nodes", 8), ("max_nodes", 8), ("num_tasks", 8), ("min_cpus", 64), ("pn_min_cpus", 16),
    ("tres_per_node", "gres/gpu:8"), ("tres_per_job", "gres/gpu:64"), ("req_nodes", "n9"),
    ("exc_nodes", "n2"), ("features", "big"), ("min_mem_per_node", 90000), ("shared", 0),
    ("partition", "dear"), ("account", "other"), ("qos", "high"), ("reservation", "r"),
    ("begin_time", 1700000000), ("dependency", "after:3"), ("licenses", "a:1"),
    ("cpus_per_task", 8), ("array_inx", "0-9"), ("nice", 2147483747),
]  # fmt: skip
#: What an update that sets nothing looks like in numbers.
UNSET = {
    "min_nodes": 4294967294, "num_tasks": 4294967294, "shared": 65534, "begin_time": 0,
    "time_limit": 4294967294, "priority": 4294967294, "nice": 4294967294, "cpus_per_task": 65534,
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), GROWS)
def test_nothing_that_a_loan_rests_on_is_changed_by_its_user(lua, field, value):
    for record in (DONOR, MEETS):
        result = lua.modify(record, **{field: value})
        assert result.rc == -1
        assert "cannot be changed" in result.user[0]


@pytest.mark.parametrize(("field", "value"), [("time_limit", 9), ("priority", 0), ("requeue", 1)])
def test_a_donors_time_limit_and_priority_are_fixed_too(lua, field, value):
    assert lua.modify(DONOR, **{field: value}).rc == -1
    assert lua.modify({**DONOR, "job_state": 1}, **{field: value}).rc == -1
    assert lua.modify(MEETS, **{field: value}).rc == 0


@pytest.mark.parametrize("record", [DONOR, MEETS])
def test_name_and_comment_are_the_users_own(lua, record):
    """A donor reports its state in its comment."""
    assert (
        lua.modify(record, name="mine", comment="gpu-donor ready of=7 port=50001", **UNSET).rc == 0
    )


@pytest.mark.parametrize(("field", "value"), GROWS)
def test_before_a_loan_everything_may_change(lua, field, value):
    assert lua.modify(MAY, **{field: value}).rc == 0


@pytest.mark.parametrize(("field", "value"), GROWS)
def test_the_engine_changes_what_it_likes(lua, field, value):
    for record in (DONOR, MEETS):
        assert lua.modify(record, uid=0, **{field: value}).rc == 0


def test_a_donor_is_marked_from_its_first_moment(lua):
    job = lua.submit(comment="gpu-donor of=7", script="#!/bin/sh").job
    assert job["admin_comment"] == "[gpu-donor: of=7]"
    for text in (
        "gpu-donor of=",
        "gpu-donor of=7 x",
        "gpu-donor of=12345678901",
        "my gpu-donor of=7",
    ):
        assert "admin_comment" not in lua.submit(comment=text).job


def test_what_a_sites_script_copied_from_a_user_is_no_record_of_ours(lua, engine):
    """A site may copy a user's comment into AdminComment before it calls the bridge."""
    forged = "said [gpu-loan: starts loan=n1/1,n2/1/4711/50000 prio=4294967000] [site]"
    for fields in ({}, {"tres_per_node": "gpu:1"}):
        assert lua.submit(admin_comment=forged, **fields).job["admin_comment"] == "said [site]"
        assert lua.submit(admin_comment=forged, uid=0, **fields).job["admin_comment"] == forged
    assert "admin_comment" not in lua.submit(admin_comment="[gpu-slots: gated]" + "x" * 40000).job
