"""When the engine is left alone: one user's late answers shut off that user, a hung engine all.

Days are played through asking.lua on a clock of their own, with an engine that answers one
question after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

#: Plays `took`, how many seconds the engine works on a question of `user` at `now`; `rates`, a
#: user's submits a second, at random moments. Gives the log, each user's submits and answers, and
#: the seconds that slurmctld lost in each minute.
DAY = """
local T, free, rates, until_s = 0, 0, {rates}, {until_s}
local function took_of(user, now) return {took} end
package.loaded["gputopo.engine.transport"] = {{new = function()
  return {{
    now = function() return T end,
    close = function() end,
    exchange = function(self, verb, rest, limit_s)
      local user = tonumber(string.match(rest, "uid=(%d+)"))
      local asked = T
      free = math.max(free, asked) + took_of(user, asked)
      T = math.min(free, asked + limit_s)
      if free > asked + limit_s then return nil, "timeout" end
      return "pass id=1"
    end,
  }}
end}}
package.loaded["gputopo.engine.asking"] = nil
local all = {{}}
local asking = require("gputopo.engine.asking").new({{
  socket = "/s", deadline_ms = 50, locked_deadline_ms = 10, budget_ms = 100, retry_first_s = 1,
  retry_longest_s = 60, enforcement = "select",
}}, function(line) all[#all + 1] = string.format("log %.3f %s", T, line) end)
if {is_unpaused} then asking.pause.allows = function() return true end end
math.randomseed(7)
local submits, of = {{}}, {{}}
for user, rate in pairs(rates) do
  of[user] = {{0, 0}}
  local at = -math.log(1 - math.random()) / rate
  while at < until_s do
    submits[#submits + 1] = {{at, user}}
    at = at - math.log(1 - math.random()) / rate
  end
end
table.sort(submits, function(one, other) return one[1] < other[1] end)
local lost = {{}}
for minute = 1, until_s / 60 do lost[minute] = 0 end
for _, submit in ipairs(submits) do
  local user = submit[2]
  T = math.max(T, submit[1])
  local began, minute = T, math.min(#lost, math.floor(submit[1] / 60) + 1)
  local answer = asking:ask(" uid=" .. user, "", {{}})
  lost[minute] = lost[minute] + T - began
  of[user] = {{of[user][1] + 1, of[user][2] + (answer and 1 or 0)}}
end
for user, counts in pairs(of) do
  all[#all + 1] = string.format("user %d %d %d", user, counts[1], counts[2])
end
for _, seconds in ipairs(lost) do all[#all + 1] = string.format("lost %.3f", seconds) end
package.loaded["gputopo.engine.transport"], package.loaded["gputopo.engine.asking"] = nil, nil
return table.concat(all, "\\n")
"""


@dataclass
class Day:
    """Submits and answers in time by user, slurmctld's seconds by minute, (second, line)s."""

    users: dict[int, tuple[int, int]]
    lost_s: list[float]
    log: list[tuple[float, str]]

    def answered(self, first: int) -> float:
        """Of the submits of users from `first` on, the part that had an answer in time."""
        counts = [pair for user, pair in self.users.items() if user >= first]
        return sum(answers for _, answers in counts) / sum(submits for submits, _ in counts)


@pytest.fixture
def play(lua):
    """play(took, rates, ...) -> Day."""

    def play(took: str, rates: dict[int, float], until_s: int = 300, is_unpaused: bool = False):
        table = ",".join(f"[{user}]={rate}" for user, rate in rates.items())
        chunk = DAY.format(
            took=took, rates=f"{{{table}}}", until_s=until_s, is_unpaused=str(is_unpaused).lower()
        )
        day = Day({}, [], [])
        for line in lua.evaluate(chunk).splitlines():
            kind, first, *rest = line.split(" ", 2)
            if kind == "user":
                submits, answers = rest[0].split()
                day.users[int(first)] = (int(submits), int(answers))
            elif kind == "lost":
                day.lost_s.append(float(first))
            else:
                day.log.append((float(first), rest[0]))
        return day

    return play


HONEST = dict.fromkeys(range(1000, 1020), 0.2)
BUSY = dict.fromkeys(range(1000, 1020), 1.5)
HUNDRED = dict.fromkeys(range(1000, 1100), 0.2)
LATE = "0.06 + 0.01 * math.random()"
#: How long the engine works on a question of one of the accounts: always too long, or now and then.
ACCOUNTS = [
    pytest.param(LATE, id="each late"),
    pytest.param(f"math.random() < 0.5 and {LATE} or 0.0005", id="every second one late"),
    pytest.param("0.3", id="each late for others, too"),
]


@pytest.mark.parametrize("rate", [0.05, 0.5, 5, 20])
@pytest.mark.parametrize("took", ACCOUNTS)
@pytest.mark.parametrize("others", [HONEST, BUSY], ids=["few submits", "many submits"])
def test_two_accounts_with_late_answers_shut_off_nobody_else(play, others, took, rate):
    day = play(f"user < 10 and ({took}) or 0.0005", {**others, 1: rate, 2: rate})
    assert day.answered(first=1000) >= 0.9


def test_nor_do_five(play):
    late = dict.fromkeys(range(1, 6), 5)
    assert play("user < 10 and 0.3 or 0.0005", {**HONEST, **late}).answered(first=1000) >= 0.8


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 5])
def test_nor_where_hardly_anybody_else_submits(play, rate):
    """Two accounts that are late in turn, nobody between them, are not three."""
    late = f"user < 10 and {LATE} or 0.0005"
    assert play(late, {1: rate, 2: rate, 1000: 0.02}, 3000).answered(first=1000) >= 0.95


@pytest.mark.parametrize("rate", [0.2, 1])
@pytest.mark.parametrize(
    ("users", "first_s", "later_s"),
    [(1, 0.3, 0.1), (3, 1, 0.5), (10, 1, 2), (30, 0.5, 0.3), (100, 0.5, 0.1)],
)
def test_an_engine_that_hangs_costs_slurmctld_little(play, users, first_s, later_s, rate):
    """Seconds of the first minute, and of each later one; few users have pauses of their own."""
    day = play("9", dict.fromkeys(range(1000, 1000 + users), rate), 600)
    assert day.lost_s[0] <= first_s + 0.001
    assert max(day.lost_s[1:]) <= later_s + 0.001


def test_the_budget_bounds_what_it_costs_without_any_pause(play):
    """A tenth of the time, and the three deadlines that are kept."""
    day = play("9", HUNDRED, is_unpaused=True)
    assert 5 < max(day.lost_s) <= 0.1 * 60 + 0.15


def told(day: Day) -> list[str]:
    return [line for _, line in day.log if "budget_ms" not in line]


def test_a_hung_engine_has_a_line_for_few_users_one_for_all_and_one_when_it_is_back(play):
    day = play("now < 120 and 0.2 or 0.0005", HUNDRED)
    lines = told(day)
    assert [" of user " in line for line in lines] == [True, True, False, False]
    assert "(timeout); jobs get Slurm's own choice, asking again in 1 s" in lines[2]
    assert lines[3].endswith("answers again")


def test_a_users_line_names_him_and_tells_when_he_is_asked_about_again(play):
    day = play("user == 7 and now < 0.5 and 0.06 or 0.0005", {7: 20})
    first, last = told(day)
    assert first.endswith("(timeout); jobs of user 7 get Slurm's own choice, asking again in 1 s")
    assert last.endswith("the engine at /s answers again about jobs of user 7")


def test_an_engine_that_is_late_now_and_then_does_not_flood_the_log(play):
    day = play(f"math.random() < 0.6 and {LATE} or 0.0005", dict.fromkeys(range(1000, 1100), 1))
    at = [second for second, line in day.log if "budget_ms" not in line]
    # Three beginnings of each kind in a minute, and as many ends.
    assert 12 < len(at) <= 12 * 5
    assert max(sum(start <= other < start + 60 for other in at) for start in at) <= 24


#: What is done with a new breaker (5 s, doubled up to 60), what was noted.
COURSES = {
    "the pause doubles from 5 to 60 s": (
        "for _ = 1, 6 do breaker:failed(nil, 1, 0.9) note(breaker.pause_s) end",
        "5 10 20 40 60 60",
    ),
    "the pause stays as it is where asking took no time": (
        "for _, took_s in ipairs({0, 0.1, 0.004, 0.006, -9}) do breaker:failed(nil, 1, 1 - took_s)"
        " note(breaker.pause_s) end",
        "5 10 5 10 5",
    ),
    "the first failure and the first success are news": (
        "note(breaker:failed(nil, 0, 0)) note(breaker:failed(nil, 9, 8)) "
        "note(breaker:succeeded('1')) note(breaker:succeeded('1')) "
        "note(breaker:failed(nil, 0, 0)) note(breaker.pause_s)",
        "all nil all nil all 5",
    ),
    "a clock set back does not prolong the pause": (
        "breaker:failed(nil, 1000, 1000) note(breaker:allows('1', 1004.9)) "
        "note(breaker:allows('1', 10)) note(breaker:allows('1', 14.9)) "
        "note(breaker:allows('1', 15))",
        "false false false true",
    ),
    "nor a user's": (
        "breaker:failed('a', 1000, 999) note(breaker:allows('a', 1004.9)) "
        "note(breaker:allows('a', 10)) note(breaker:allows('a', 14.9)) "
        "note(breaker:allows('a', 15))",
        "false false false true",
    ),
    "a late answer keeps the engine from that user alone, longer each time": (
        "note(breaker:failed('a', 0, -1)) note(breaker:allows('a', 1)) note(breaker:allows('b', 1))"
        "note(breaker:succeeded('b')) note(breaker:allows('a', 1)) note(breaker:allows('a', 5))"
        "breaker:failed('a', 5, 4) note(breaker:allows('a', 14)) note(breaker:allows('a', 15))",
        "user false true nil false true false true",
    ),
    "answers in time do not shorten it, time does": (
        "local function late(at) breaker:failed('a', at, at - 1) note(breaker.late.a.pause_s) end "
        "late(0) late(6) late(16) late(36 + 25) breaker:succeeded('a') late(101 + 50)"
        " breaker:succeeded('a') late(191 + 150) breaker:succeeded('a') late(356 + 50)",
        "5 10 20 40 40 10 10",
    ),
    "two users are never for all, however often they are late": (
        "for at = 0, 600, 60 do breaker:failed('a', at, at - 1) breaker:failed('b', at, at - 1) end"
        " note(breaker:allows('c', 600)) note(breaker.pause_s)",
        "true 0",
    ),
    "three are, until an answer comes in time": (
        "for _, user in ipairs({'a', 'b', 'c'}) do note(breaker:failed(user, 1, 0)) end "
        "note(breaker:allows('d', 5)) note(breaker:allows('d', 6)) note(breaker:succeeded('d')) "
        "note(breaker.pause_s) note(breaker:allows('a', 2))",
        "user user all false true all 0 false",
    ),
    "not when somebody was in time between them": (
        "breaker:failed('a', 1, 0) breaker:failed('b', 1, 0) breaker:succeeded('d') "
        "note(breaker:failed('c', 1, 0)) note(breaker:allows('d', 1))",
        "user true",
    ),
    "a fourth prolongs it, one of the three does not": (
        "for _, user in ipairs({'a', 'b', 'c'}) do breaker:failed(user, 1, 0) end "
        "note(breaker:failed('a', 6, 5)) note(breaker.pause_s) note(breaker:allows('d', 6)) "
        "note(breaker:failed('d', 6, 5)) note(breaker.pause_s) note(breaker:allows('e', 15))",
        "nil 5 true nil 10 false",
    ),
    "who was not late comes first after a pause for all": (
        "for _, user in ipairs({'a', 'b', 'c'}) do breaker:failed(user, 1, 0) end "
        "note(breaker:allows('a', 55)) note(breaker:allows('d', 6)) note(breaker:allows('a', 56)) "
        "breaker:succeeded('d') note(breaker:allows('b', 6))",
        "false true true true",
    ),
    "a pause for all does nobody good": (
        "for _, user in ipairs({'a', 'b', 'c'}) do breaker:failed(user, 1, 0) end "
        "breaker:failed('d', 6, 5) note(breaker.until_s) breaker:succeeded('e') "
        "breaker:failed('a', 61, 60) note(breaker.late.a.pause_s)",
        "16 10",
    ),
    "a failure of the engine is for all": (
        "note(breaker:failed('a', 0, -1)) note(breaker:failed(nil, 1, 1)) "
        "note(breaker:allows('b', 2))",
        "user all false",
    ),
    "few users are remembered, the latest ones": (
        "for user = 1, 1000 do breaker:failed(user, 1, 0) end local n = 0"
        " for _ in pairs(breaker.late) do n = n + 1 end"
        " note(n) note(breaker.late[968] == nil) note(breaker.late[969] ~= nil)",
        "32 true true",
    ),
}


@pytest.mark.parametrize("course", COURSES)
def test_over_time(lua, course):
    done, noted = COURSES[course]
    found = lua.evaluate(
        "local breaker = require('gputopo.engine.breaker').new(5, 60)"
        " local noted = {} local function note(value) noted[#noted + 1] = tostring(value) end "
        f"{done} return table.concat(noted, ' ')"
    )
    assert found == noted
