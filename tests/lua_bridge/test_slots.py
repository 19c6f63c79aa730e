"""The slots mode: requests lose their model, the engine hears more and may set more."""

from __future__ import annotations

import os

import pytest

BATCH = {"script": "#!/bin/sh\n"}
V100 = {"tres_per_node": "gres/gpu:v100:2"}
NO_KEYS = (
    " begin=0 time_s=0 cpus=1 cpus_per_task=0 cpus_per_gpu=0 mem_node_mb=0 mem_all=0 mem_cpu_mb=0"
)


@pytest.fixture
def lua(installed, start_lua):
    """A Lua 5.1 that loaded the installed script in the slots mode."""
    with (installed / "gputopo-bridge.conf").open("a") as file:
        file.write("enforcement = slots\n")
    return start_lua(installed / "job_submit.lua")


def slots_keys(engine) -> str:
    """What the last request said after the keys of every mode."""
    return engine.requests[-1].partition(" slots=1")[2]


# -- a request without its model ----------------------------------------------


def test_a_job_by_model_becomes_one_by_feature_before_the_engine_is_asked(lua, engine):
    result = lua.submit(**V100, **BATCH, features="ib")
    assert (result.job["tres_per_node"], result.job["features"]) == ("gres/gpu:2", "ib&v100")
    assert " type=v100 " in engine.requests[0]
    assert " features=ib&v100 tpn=gres/gpu:2" in engine.requests[0]


def test_a_job_by_model_becomes_one_by_feature_without_an_engine(lua, engine):
    engine.stop()
    for job in (lua.submit(**V100, **BATCH).job, lua.submit(**V100).job):
        assert (job["tres_per_node"], job["features"]) == ("gres/gpu:2", "v100")


def test_a_job_by_model_becomes_one_by_feature_without_luasocket(installed, lua, start_lua):
    (installed / "socket").mkdir()
    (installed / "socket" / "unix.lua").write_text("error('LuaSocket is not installed')\n")
    result = start_lua(installed / "job_submit.lua").submit(**V100)
    assert result.job["tres_per_node"] == "gres/gpu:2"


def test_steps_do_not_inherit_the_model(lua):
    env = {
        "SLURM_GPUS": "v100:2",
        "SLURM_GPUS_PER_NODE": "2",
        "SLURM_TRES_PER_TASK": "cpu=1,gres/gpu:v100=1",
        "SBATCH_GRES": "gpu:v100:2",
        "OTHER": "v100:2",
    }
    assert lua.submit(**V100, **BATCH, env=env).env == {
        "SLURM_GPUS": "2",
        "SLURM_GPUS_PER_NODE": "2",
        "SLURM_TRES_PER_TASK": "cpu=1,gres/gpu=1",
        "SBATCH_GRES": "gpu:2",
        "OTHER": "v100:2",
    }


# -- refusals -----------------------------------------------------------------


def refusal(result) -> str:
    assert result.rc == -1
    assert result.writes == []
    (line,) = result.user
    return line


def test_users_cannot_pick_a_gpu_but_administrators_can(lua, engine):
    job = {"tres_per_node": "gres/gpu:v100.s3:1", "uid": 1000}
    assert "v100.s3 is one particular GPU" in refusal(lua.submit(**job))
    as_root = lua.submit(**{**job, "uid": 0})
    assert (as_root.rc, as_root.writes, engine.connections) == (0, [], 0)


def test_two_models_in_one_job_are_refused(lua):
    job = {"tres_per_node": "gres/gpu:v100:1", "tres_per_job": "gres/gpu:a100:2"}
    assert "v100 and a100 in one job" in refusal(lua.submit(**job))


def test_a_constraint_that_cannot_be_joined_is_refused(lua):
    assert "--constraint=[r1|r2]" in refusal(lua.submit(**V100, features="[r1|r2]"))


@pytest.mark.parametrize("field", ["tres_per_job", "tres_per_task", "tres_per_socket"])
def test_srun_and_salloc_take_a_model_by_gres_only(lua, field):
    """The step asks for the model again, and Slurm has no such type any more."""
    assert "--gres=gpu:v100:N" in refusal(lua.submit(**{field: "gres/gpu:v100=2"}))
    assert lua.submit(**{field: "gres/gpu:v100=2"}, **BATCH).rc == 0
    assert lua.submit(**{field: "gres/gpu=2"}).rc == 0


def test_slurm_22_05_takes_a_model_from_sbatch_only(lua, engine):
    """Its steps may not ask for GPUs of several types, so srun and salloc get no slots there."""
    old = {"tres_per_node": "gres:gpu:v100:2"}
    assert "add --constraint=v100" in refusal(lua.submit(**old))
    assert lua.submit(tres_per_node="gres:gpu:2").rc == 0
    assert engine.requests == []
    env = {"SLURM_GPUS_PER_NODE": "v100:2", "SLURM_GPUS": "v100:2"}
    result = lua.submit(**old, **BATCH, env=env)
    assert result.env == {"SLURM_GPUS_PER_NODE": "", "SLURM_GPUS": "2"}
    assert slots_keys(engine).endswith(" tpn=gres:gpu:2")


# -- what the engine hears ----------------------------------------------------


def test_the_engine_hears_all_that_bears_on_where_a_job_fits(lua, engine):
    lua.submit(
        **BATCH,
        tres_per_job="gres/gpu:4",
        tres_per_task="cpu=2",
        array_inx="0-3",
        begin_time=1700000000,
        time_limit=90,
        min_cpus=8,
        cpus_per_task=2,
        cpus_per_tres="gres/gpu:3",
        min_mem_per_node=2000,
        mem_per_tres="gres/gpu:500",
        shared=0,
        bitflags=16 + 32 + 2**33,
        req_nodes="n[1-2]",
        exc_nodes="n3",
        reservation="big day",
        dependency="afterok:3",
        priority=0,
        features="ib",
        prefer="fast",
        immediate=1,
    )
    assert slots_keys(engine) == (
        " form=job batch=1 array=1 het=0 begin=1700000000 time_s=5400 cpus=8 cpus_per_task=2"
        " cpus_per_gpu=3 mem_node_mb=2000 mem_all=0 mem_cpu_mb=0 mem_gpu_mb=500 exclusive=1"
        " depends=1 held=1 enforce_binding=1 overcommit=0 closes=0 prefers=1 immediate=1 deadline=0"
        " by_core=0 by_thread=0 together=0"
        " features=ib req_nodes=n[1-2] exc_nodes=n3 reservation=big%20day tpj=gres/gpu:4 tpt=cpu=2"
    )


def test_what_a_job_does_not_ask_for_is_zero_or_absent(lua, engine):
    lua.submit(tres_per_node="gres/gpu:1")
    assert slots_keys(engine) == (
        " form=node batch=0 array=0 het=0"
        + NO_KEYS
        + " mem_gpu_mb=0 exclusive=0 depends=0 held=0 enforce_binding=0 overcommit=0 closes=0"
        + " prefers=0 immediate=0 deadline=0 by_core=0 by_thread=0 together=0"
        + " tpn=gres/gpu:1"
    )


TASKS_BY_GPUS = {"tres_per_job": "gres/gpu:4", "tres_per_task": "gres/gpu:1", "num_tasks": 4}


@pytest.mark.parametrize(
    ("fields", "heard"),
    [
        ({"num_tasks": 4, "min_cpus": 1, "cpus_per_task": 2}, "overcommit=1"),
        # --cpus-per-gpu on 22.05 makes it two CPUs per task of four
        ({"num_tasks": 4, "min_cpus": 3, "cpus_per_task": 2}, "overcommit=1"),
        ({"num_tasks": 4, "min_cpus": 4, "cpus_per_task": 2}, "overcommit=0"),
        ({"num_tasks": 4, "min_cpus": 8, "cpus_per_task": 2}, "overcommit=0"),
        ({**TASKS_BY_GPUS, "min_cpus": 1}, "overcommit=0"),
        ({"het_job_offset": 0}, "het=1"),
        ({"cores_per_socket": 4}, "by_core=1"),
        ({"threads_per_core": 1}, "by_core=0 by_thread=1"),
        ({"ntasks_per_core": 1}, "by_core=0 by_thread=1"),
        ({"ntasks_per_socket": 2}, "by_core=1"),
        ({"sockets_per_node": 2}, "by_core=1"),
        (
            {"ntasks_per_core": 65535, "cores_per_socket": 65534, "threads_per_core": 0},
            "by_core=0 by_thread=0",
        ),
        ({"contiguous": 1}, "together=1"),
        ({"req_switch": 2}, "together=1"),
        ({"segment_size": 4}, "together=1"),
        ({"contiguous": 65534, "req_switch": 4294967294, "segment_size": 65534}, "together=0"),
        ({"time_limit": 4294967295}, "time_s=315360000"),
    ],
)
def test_the_engine_hears(lua, engine, fields, heard):
    """Fewer CPUs than tasks are overcommitted; no time limit is ten years."""
    lua.submit(**{"tres_per_node": "gres/gpu:1", **fields})
    assert f" {heard} " in slots_keys(engine)


@pytest.mark.parametrize(
    ("script", "is_told"),
    [
        ("#!/bin/sh\n#SBATCH --deadline=now+1hour\n", 1),
        ("#!/bin/sh\n#SBATCH -N1 --deadline 12:00\nsrun x\n", 1),
        ("#SBATCH\t--deadline=12:00", 1),
        ("#!/bin/sh\n#SBATCH -N1\nx --deadline=3\n", 0),
        ("#!/bin/sh\n##SBATCH --deadline=12:00\n", 0),
        ("#!/bin/sh\n#SBATCH --comment=no--deadline\n", 0),
        ("#!/bin/sh\n#SBATCH\n--deadline=3\n", 0),
    ],
)
def test_the_engine_hears_of_a_deadline_in_the_script(lua, engine, script, is_told):
    lua.submit(tres_per_node="gres/gpu:1", script=script)
    assert f" deadline={is_told} " in slots_keys(engine)


def test_on_22_05_a_later_component_of_sbatch_is_known_by_its_input_file(lua, engine):
    """Only the first has the script there; srun and salloc get Slurm's own choice."""
    part = {"tres_per_job": "gres:gpu:v100:2", "het_job_offset": 1}
    lua.submit(**part, std_in="/dev/null")
    assert slots_keys(engine).startswith(" form=job batch=1 array=0 het=1")
    assert "add --constraint=v100" in refusal(lua.submit(**part))
    lua.submit(tres_per_job="gres:gpu:2", het_job_offset=1)
    assert len(engine.requests) == 1


def test_a_node_list_is_never_cut(lua, engine):
    """A cut list would name other nodes: such a job gets Slurm's own choice."""
    result = lua.submit(**V100, req_nodes="n1," * 2000)
    assert (result.rc, engine.requests) == (0, [])
    assert result.job["tres_per_node"] == "gres/gpu:2"


def test_a_job_that_can_have_no_slots_is_asked_about_for_its_hint(lua, engine):
    """Such as srun on 22.05: a wrong hint is refused all the same."""
    engine.answers("refuse id={id} message=no\n")
    result = lua.submit(tres_per_node="gres:gpu:2", comment="gpu-topo: patern=ring")
    assert (result.rc, result.user) == (-1, ["no"])
    assert " slots=" not in engine.requests[-1]
    assert lua.submit(tres_per_node="gres:gpu:2").rc == 0
    assert len(engine.requests) == 1


def test_tasks_per_gpu_alone_are_slurms_own_business(lua, engine):
    result = lua.submit(ntasks_per_gpu=2, num_tasks=4)
    assert (result.rc, result.log) == (0, [])
    assert engine.requests == []


def test_tasks_per_gpu_are_counted_before_each_gpu_is_a_type_of_its_own(lua, engine):
    """Slurm would count them for each type by itself, and refuse the job."""
    job = lua.submit(tres_per_job="gres/gpu:3", ntasks_per_gpu=2, cpus_per_task=4, min_cpus=1).job
    assert (job["ntasks_per_gpu"], job["num_tasks"], job["min_cpus"]) == ("65534", "6", "24")
    assert " tasks=6 " in engine.requests[-1]
    assert " cpus=24 " in slots_keys(engine)


def test_tasks_of_an_unknown_number_of_gpus_are_left_to_slurm(lua, engine):
    unknown = {"tres_per_node": "gres/gpu:2", "min_nodes": 1, "max_nodes": 2, "ntasks_per_gpu": 1}
    counted_again_by_srun = {"tres_per_node": "gres/gpu:2", "ntasks_per_gpu": 2}
    for asked in ({**unknown, **BATCH}, counted_again_by_srun):
        result = lua.submit(**asked)
        assert (result.rc, result.writes, engine.requests) == (0, [], [])
    lua.submit(**counted_again_by_srun, **BATCH)
    assert " tasks=4 " in engine.requests[-1]


def test_select_mode_says_nothing_new(installed, engine, start_lua):
    start_lua(installed / "job_submit.lua").submit(**V100, **BATCH)
    assert engine.requests == [
        "submit id=1 uid=1000 partition=main gpus=2 type=v100 nodes=1 per_node=2 tasks=1"
    ]


# -- what the engine may set --------------------------------------------------

PLACED = (
    "ok id={id} set.tres_per_node=gres/gpu:v100.s0:1,gres/gpu:v100.s3:1 set.req_nodes=n1"
    " set.min_nodes=1 set.max_nodes=1 set.tres_per_job= set.begin_time=1700000000"
    " set.admin_comment=[gpu-topo:%20x]%20[gpu-slots:%20placed%20token=1]\n"
)


def test_a_placed_job_gets_its_slots(lua, engine):
    engine.answers(PLACED)
    job = lua.submit(tres_per_job="gres/gpu:v100=2", **BATCH).job
    assert job["tres_per_node"] == "gres/gpu:v100.s0:1,gres/gpu:v100.s3:1"
    assert "tres_per_job" not in job
    assert (job["min_nodes"], job["begin_time"], job["req_nodes"]) == ("1", "1700000000", "n1")
    assert job["features"] == "v100"
    assert job["admin_comment"] == "[gpu-topo: x] [gpu-slots: placed token=1]"


def test_each_kind_of_bracket_replaces_its_own(lua, engine):
    engine.answers("ok id={id} set.admin_comment=[gpu-slots:%20placed]\n")
    old = "site [gpu-topo: a] more [gpu-slots: gated x=1]"
    assert lua.submit(**V100, admin_comment=old, uid=0).job["admin_comment"] == (
        "site more [gpu-topo: a] [gpu-slots: placed]"
    )


@pytest.mark.parametrize(
    "reply",
    [
        "set.min_nodes=two",
        "set.begin_time=",
        "set.min_cpus=99999999999",
        "set.priority=1",
        "set.admin_comment=[gpu-slots:%20a]%20[gpu-slots:%20b]",
        "set.admin_comment=[gpu-slots:%20a]%20x",
    ],
)
def test_a_reply_with_anything_else_leaves_the_job_without_its_model(lua, engine, reply):
    engine.answers(f"ok id={{id}} set.req_nodes=n9 {reply}\n")
    job = lua.submit(**V100, **BATCH).job
    assert "req_nodes" not in job
    assert (job["tres_per_node"], job["features"]) == ("gres/gpu:2", "v100")


def test_what_slurm_does_not_take_is_put_back(lua, engine):
    engine.answers(PLACED)
    job = lua.submit(**V100, **BATCH, poisoned="req_nodes").job
    assert job["tres_per_node"] == "gres/gpu:2"
    assert job["features"] == "v100"


# -- updates ------------------------------------------------------------------

GATED = {
    "job_state": 0,
    "user_id": 1000,
    "tres_per_node": "gres/gpu:2",
    "admin_comment": "[gpu-slots: gated token=1]",
}


@pytest.mark.parametrize(
    ("update", "what"),
    [
        ({"begin_time": 1700000000}, "start time"),
        ({"tres_per_node": "gres/gpu:1"}, "GPU request"),
        ({"tres_per_job": ""}, "GPU request"),
        ({"req_nodes": "n1"}, "nodes"),
        ({"exc_nodes": "n1"}, "nodes"),
        ({"features": "ib"}, "constraint"),
        ({"min_nodes": 2}, "number of nodes"),
    ],
)
def test_a_user_cannot_open_the_gate(lua, update, what):
    result = lua.modify(GATED, **update)
    assert f"its {what} cannot be changed by users" in refusal(result)
    assert lua.modify(GATED, **update, uid=0).rc == 0
    assert lua.modify({**GATED, "job_state": 1}, **update).rc == 0
    assert lua.modify({**GATED, "admin_comment": "[gpu-topo: x]"}, **update).rc == 0


CHANGED = "[gpu-slots: gated token=1 changed=1]"


@pytest.mark.parametrize(
    "update",
    [
        {"tres_per_node": "gres/gpu:1"}, {"tres_per_job": "gpu:4"}, {"req_nodes": "n1"},
        {"min_nodes": 2}, {"max_nodes": 3}, {"cpus_per_task": 2}, {"cpus_per_tres": "gpu:4"},
    ],
)  # fmt: skip
def test_what_root_changes_of_a_gated_jobs_request_is_told_to_the_engine(lua, update):
    """By the job's record, of which the release would else make what the user submitted."""
    others = "a site's words " + GATED["admin_comment"]
    marked = lua.modify({**GATED, "admin_comment": others}, **update, uid=0)
    assert marked.rc == 0
    assert marked.job["admin_comment"] == f"a site's words {CHANGED}"


@pytest.mark.parametrize(
    ("record", "update"),
    [
        (GATED, {"min_nodes": 4294967294, "begin_time": 1700000000, "time_limit": 5, "nice": 3}),
        ({**GATED, "admin_comment": CHANGED}, {"tres_per_node": "gres/gpu:1"}),
        ({**GATED, "admin_comment": "[gpu-slots: placed token=1]"}, {"min_nodes": 2}),
        ({**GATED, "admin_comment": "[gpu-slots: gated tpn=gres:gpu:2]"}, {"tres_per_node": ""}),
        ({**GATED, "admin_comment": ""}, {"tres_per_node": "gres/gpu:1"}),
    ],
    ids=["not the request", "told already", "released", "Slurm 22.05", "Slurm's own"],
)
def test_no_other_update_of_root_is(lua, record, update):
    assert "admin_comment" not in lua.modify(record, **update, uid=0).job


def test_the_engines_own_updates_say_themselves_what_the_job_is_to_have(lua):
    for comment in ("[gpu-slots: placed token=1]", "[gpu-topo: | Slurm's own choice: x]"):
        update = {"admin_comment": comment, "tres_per_node": "gres/gpu:1", "req_nodes": "n1"}
        assert lua.modify(GATED, **update, uid=0).job["admin_comment"] == comment


def test_an_update_of_the_engines_that_does_not_know_of_the_change_is_refused(lua):
    changed = {**GATED, "admin_comment": CHANGED}
    late = {"admin_comment": "[gpu-slots: placed token=1]", "req_nodes": "n1"}
    assert "was changed a moment ago" in refusal(lua.modify(changed, **late, uid=0))
    assert lua.modify(changed, admin_comment=CHANGED, uid=0).rc == 0
    assert lua.modify(changed, admin_comment="", tres_per_node="gpu:2", uid=0).rc == 0


@pytest.mark.parametrize("update", [{"priority": 0}, {"time_limit": 5}, {"name": "x"}])
def test_a_user_may_still_hold_shorten_and_name_a_gated_job(lua, update):
    assert lua.modify(GATED, **update).rc == 0


def test_a_user_cannot_pick_a_gpu_afterwards(lua):
    update = {"tres_per_node": "gres/gpu:v100.s3:1"}
    record = {"job_state": 0, "user_id": 1000}
    assert "one particular GPU" in refusal(lua.modify(record, **update))


FIRST_OF_HET = {**GATED, "het_job_id": 7, "het_job_offset": 0}
PINS = {"admin_comment": "[gpu-topo: x] [gpu-slots: placed token=1 pin=n1%2Cn3]"}


def test_the_engines_update_pins_the_first_component_of_a_heterogeneous_job(lua):
    engine = os.getuid()  # that of slurmctld
    assert lua.modify(FIRST_OF_HET, **PINS, uid=engine).job["req_nodes"] == "n1,n3"
    assert (
        "req_nodes" not in lua.modify(FIRST_OF_HET, admin_comment="[gpu-slots: x]", uid=engine).job
    )
    assert lua.modify(FIRST_OF_HET, **PINS, req_nodes="n7", uid=engine).job["req_nodes"] == "n7"


@pytest.mark.parametrize(
    "record",
    [GATED, {**GATED, "het_job_id": 0, "het_job_offset": 0}, {**FIRST_OF_HET, "het_job_offset": 1}],
    ids=["a plain job", "as Slurm shows it", "another component"],
)
def test_no_other_job_is_pinned_by_what_stands_in_admin_comment(lua, record):
    assert "req_nodes" not in lua.modify(record, **PINS, uid=os.getuid()).job


def test_nobody_but_the_engine_pins_a_job_by_admin_comment(lua):
    """root may write that field, with a text copied from anywhere."""
    assert "req_nodes" not in lua.modify(FIRST_OF_HET, **PINS, uid=os.getuid() + 1).job


def test_a_changed_hint_is_asked_about_as_in_the_other_mode(lua, engine):
    lua.modify({**GATED, "partition": "main"}, comment="gpu-topo: pattern=star")
    assert engine.requests[0].endswith("per_node=2 tasks=1 hint=pattern=star")


def test_all_memory_of_a_node_is_told_from_none_asked_for(lua, engine):
    lua.submit(tres_per_node="gres/gpu:1", min_mem_per_node=0)
    assert " mem_node_mb=0 mem_all=1 " in slots_keys(engine)
