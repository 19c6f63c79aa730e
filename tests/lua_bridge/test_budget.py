"""Questions take a bounded share of slurmctld's time, and one user's not all of it."""

from __future__ import annotations

import pytest

GPU_JOB = {"tres_per_node": "gres/gpu:2"}
HINTED = {**GPU_JOB, "comment": "gpu-topo: pattern=ring"}
MALLORY, ALICE = 666, 1000

#: budget.lua on a clock of its own, in ms: every user asks whenever allowed, in the given order,
#: and gets an answer after so long. Gives "START USER" of each question.
PLAYED = """
local budget = require("gputopo.engine.budget").new({budget_ms}, {deadline_ms} / 1000)
local asked, now_ms = {{}}, 0
while now_ms < {until_ms} do
  local took_ms = 0
  for _, user in ipairs({{{users}}}) do
    if took_ms == 0 and budget:allows(user, now_ms / 1000) then
      took_ms = {answer_ms}
      budget:spend(user, took_ms / 1000)
      asked[#asked + 1] = string.format("%.1f %d", now_ms, user)
    end
  end
  now_ms = now_ms + math.max(took_ms, {every_ms})
end
return table.concat(asked, "\\n")
"""


def played(lua, answer_ms, users=(MALLORY,), until_ms=20_000, every_ms=1.0, budget_ms=100):
    """When which user was asked about: (ms, user)."""
    chunk = PLAYED.format(
        budget_ms=budget_ms,
        deadline_ms=50,
        until_ms=until_ms,
        answer_ms=answer_ms,
        every_ms=every_ms,
        users=",".join(map(str, users)),
    )
    lines = (line.split() for line in lua.evaluate(chunk).splitlines())
    return [(float(at), int(user)) for at, user in lines]


@pytest.mark.parametrize("answer_ms", [2, 10, 38, 50])
@pytest.mark.parametrize("users", [(MALLORY,), (MALLORY, ALICE), range(40)])
def test_questions_take_a_tenth_of_the_time_whoever_asks(lua, answer_ms, users):
    asked = played(lua, answer_ms, users)
    assert 0.095 * 20_000 < len(asked) * answer_ms <= 0.1 * 20_000 + 150
    at = [start for start, _ in asked]
    most = max(sum(start <= other < start + 5000 for other in at) for start in at)
    assert most * answer_ms <= 500 + 150


def test_the_share_of_time_is_a_setting(lua):
    asked = played(lua, 38, budget_ms=300)
    assert 0.29 * 20_000 < len(asked) * 38 <= 0.3 * 20_000 + 150


def test_every_job_is_asked_about_where_answers_are_quick(lua):
    """One within a millisecond is not counted, however many there are."""
    assert len(played(lua, 1, until_ms=10_000)) == 10_000
    assert len(played(lua, 1.1, until_ms=10_000)) < 1200


def test_a_user_who_takes_all_he_can_leaves_a_question_to_the_next_one(lua):
    chunk = """
    local budget = require("gputopo.engine.budget").new(100, 0.05)
    local refused = 0
    for ms = 1, 20000 do
      if budget:allows(666, ms / 1000) then budget:spend(666, 0.05) end
      -- somebody new each time, who does not ask
      if not budget:allows(1000 + ms, ms / 1000) then refused = refused + 1 end
    end
    return tostring(refused)
    """
    assert lua.evaluate(chunk) == "0"


@pytest.mark.parametrize(("clients", "least"), [(1, 0.9), (3, 0.3)])
def test_who_asks_now_and_then_comes_before_those_who_ask_always(lua, clients, least):
    """Of the jobs that alice submits once in two seconds, how many are asked about."""
    chunk = """
    local budget = require("gputopo.engine.budget").new(100, 0.05)
    local asked, jobs = 0, 0
    for ms = 1, 200000 do
      for user = 1, CLIENTS do
        if budget:allows(user, ms / 1000) then budget:spend(user, 0.05) end
      end
      if ms % 2003 == 0 then
        jobs = jobs + 1
        if budget:allows(1000, ms / 1000) then
          asked = asked + 1
          budget:spend(1000, 0.05)
        end
      end
    end
    return tostring(asked / jobs)
    """
    assert float(lua.evaluate(chunk.replace("CLIENTS", str(clients)))) >= least


def test_few_users_are_remembered(lua):
    chunk = """
    local budget, most = require("gputopo.engine.budget").new(1, 1), 0
    for user = 1, 1000 do
      if budget:allows(user, 5) then budget:spend(user, 0.002) end
      local count = 0
      for _ in pairs(budget.had_s) do count = count + 1 end
      most = math.max(most, count)
    end
    return tostring(most)
    """
    assert lua.evaluate(chunk) == "32"


@pytest.mark.parametrize(
    ("what", "then_s", "is_asked"),
    [
        ("nothing: no time was paid back", 100, "false"),
        ("the clock was set back by a day", 100 - 86400, "false"),
        ("the clock was set back, and two seconds passed", 100 - 86400 + 2, "true"),
        ("the clock was set forward by a day", 100 + 86400, "true"),
    ],
)
def test_a_clock_that_is_set_neither_locks_out_nor_lets_in(lua, what, then_s, is_asked):
    chunk = f"""
    local budget = require("gputopo.engine.budget").new(100, 0.05)
    for _ = 1, 3 do
      if budget:allows(666, 100) then budget:spend(666, 86400) end
    end
    if {then_s} < 100 then budget:allows(666, 100 - 86400) end
    return tostring(budget:allows(666, {then_s}))
    """
    assert lua.evaluate(chunk) == is_asked, what


# -- the hook, on a clock that only answers and the test move ------------------


@pytest.fixture
def slow(lua, installed):
    """The script with answers that take 0.4 s of its clock, three deadlines of 1 s kept.

    `slow(S)` moves the clock and gives how long each question might take.
    """
    settings = installed / "gputopo-bridge.conf"
    text = settings.read_text().replace("budget_ms = 1000", "budget_ms = 100")
    settings.write_text(text.replace("locked_deadline_ms = 1000", "locked_deadline_ms = 200"))
    lua.evaluate(f"""
    local transport = require("gputopo.engine.transport")
    local exchange = transport.exchange
    T, TOOK, LIMITS = 1000, 0.4, ""
    require("socket").gettime = function() return T end
    transport.exchange = function(self, verb, rest, limit_s)
      local line, failure = exchange(self, verb, rest, limit_s)
      LIMITS = LIMITS .. limit_s .. " "
      T = T + TOOK
      return line, failure
    end
    require("gputopo.bridge").configure("{installed}")
    return ""
    """)
    return lambda seconds=0: lua.evaluate(f"T = T + {seconds}; return LIMITS").split()


def used_up(lua, engine, **job):
    """Submits until one passes unasked; its result."""
    while True:
        before = len(engine.requests)
        result = lua.submit(**(job or GPU_JOB))
        if len(engine.requests) == before:
            return result


def test_a_job_passes_unasked_when_the_budget_is_used_up(lua, engine, slow):
    engine.answers("ok id={id} set.req_nodes=n1\n")
    passed = used_up(lua, engine)
    assert (passed.rc, passed.writes, passed.user, len(engine.requests)) == (0, [], [], 3)
    slow(3)
    assert lua.submit(**GPU_JOB).job["req_nodes"] == "n1"


def test_the_log_has_a_line_when_it_begins_and_one_when_it_is_over(lua, engine, slow):
    (line,) = used_up(lua, engine).log
    assert "budget_ms (100 of each second) is used up, at last by a job of user 1000;" in line
    assert [lua.submit(**GPU_JOB).log for _ in range(40)] == [[]] * 40
    slow(59)  # asked about again, but not for long enough
    assert lua.submit(**GPU_JOB).log == []
    slow(2)
    (line,) = lua.submit(**GPU_JOB).log
    assert "every job is asked about again; without budget_ms left 41 passed unasked" in line
    assert len(used_up(lua, engine).log) == 1


def test_the_engine_is_told_how_many_passed_since_the_script_was_loaded(lua, engine, slow):
    used_up(lua, engine)
    assert not any("budget_out" in request for request in engine.requests)
    lua.submit(**GPU_JOB)
    slow(100)
    lua.submit(**GPU_JOB)
    lua.submit(**GPU_JOB)
    assert [request.endswith(" budget_out=2") for request in engine.requests[-2:]] == [True, True]


def test_answers_are_kept_whatever_was_told(lua, engine, slow):
    engine.answers("pass id={id} keep_s=60\n")
    lua.submit(**HINTED)
    asked = len(engine.requests)
    engine.answers("pass id={id}\n")
    used_up(lua, engine)
    before = len(engine.requests)
    lua.submit(**HINTED)
    assert (asked, len(engine.requests)) == (1, before)


def test_another_user_is_asked_about_when_one_has_had_his_share(lua, engine, slow):
    used_up(lua, engine)
    before = len(engine.requests)
    lua.submit(**GPU_JOB, user_id=1001)
    assert len(engine.requests) == before + 1


SLOTS_JOBS = [
    pytest.param({"tres_per_node": "gres/gpu:v100:2", "script": "x"}, id="a model"),
    pytest.param(
        {"tres_per_job": "gres/gpu:4", "script": "x", "ntasks_per_gpu": 2}, id="tasks per GPU"
    ),
    pytest.param({"tres_per_node": "gres/gpu:2", "comment": "gpu-topo: x"}, id="srun with a hint"),
    pytest.param({"spank": ["GPUTOPO=x"], **GPU_JOB, "script": "x"}, id="an option"),
    pytest.param({"comment": "gpu-topo: policy=genie", "script": "x"}, id="a job without a shape"),
    pytest.param({"comment": "gpu-topo: policy=genie"}, id="srun without a shape"),
    pytest.param({"tres_per_node": "gres/gpu:a:1,gres/gpu:b:1", "script": "x"}, id="two models"),
]


@pytest.mark.parametrize("job", SLOTS_JOBS)
def test_in_the_slots_mode_it_is_as_if_nobody_answered(lua, engine, installed, slow, job):
    settings = installed / "gputopo-bridge.conf"
    settings.write_text(settings.read_text() + "enforcement = slots\n")
    lua.evaluate(f'require("gputopo.bridge").configure("{installed}"); return ""')
    used_up(lua, engine, tres_per_node="gres/gpu:2", script="x")
    asked = len(engine.requests)
    unasked = lua.submit(**dict(job))
    assert len(engine.requests) == asked
    engine.stop()
    slow(100)
    lua.submit(tres_per_node="gres/gpu:2", script="x")
    alone = lua.submit(**dict(job))
    said = [(r.rc, r.job, r.env, r.user, r.writes) for r in (unasked, alone)]
    assert said[0] == said[1]


# -- while slurmctld holds its locks for more than one question ----------------

PENDING = {"job_state": 0, "user_id": 1000, "tres_per_node": "gres/gpu:2", "admin_comment": ""}


def silent(peer, request):
    """Never answers."""


def test_a_component_and_an_update_have_a_deadline_of_their_own(lua, engine, slow):
    lua.submit(**GPU_JOB)
    lua.submit(**GPU_JOB, het_job_offset=0)
    slow(100)
    lua.submit(**GPU_JOB, het_job_offset=3)
    lua.modify(PENDING, comment="gpu-topo: pattern=ring")
    assert slow() == ["1", "0.2", "0.2", "0.2"]


def test_a_short_deadline_that_is_missed_keeps_the_engine_from_nobody(lua, engine, slow):
    engine.behaviour = silent
    (line,) = lua.submit(**GPU_JOB, het_job_offset=0).log
    assert "no answer within 200 ms about a heterogeneous job or an update" in line
    engine.answers("ok id={id} set.req_nodes=n1\n")
    assert lua.submit(**GPU_JOB).job["req_nodes"] == "n1"


def test_those_that_missed_it_are_not_said_one_by_one(lua, engine, slow):
    engine.behaviour = silent
    lines = []
    for _ in range(3):
        lines += lua.submit(**GPU_JOB, het_job_offset=0).log
        slow(25)
    assert len(lines) == 1
    slow(10)
    assert len(lua.submit(**GPU_JOB, het_job_offset=0).log) == 1


def test_a_short_deadline_that_was_missed_counts_as_what_it_took(lua, engine, slow):
    """On large sites ordinary components miss it: four of one job are not to use up the budget."""
    engine.behaviour = silent
    lua.evaluate("TOOK = 0; return ''")
    for _ in range(5):
        lua.submit(**GPU_JOB, het_job_offset=0)
    assert len(engine.requests) == 5
