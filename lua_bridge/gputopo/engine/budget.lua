-- The budget of slurmctld's time, which waits for each answer with its locks held: so many
-- milliseconds of every second. What is not used is kept, up to three deadlines. A question is asked
-- only while a full deadline fits into what is left, and only while its user leaves as much behind as
-- he has had of late: however long his jobs take the engine, others are asked about as well.
local M = {}
M.__index = M

local max, min = math.max, math.min

local KEPT_DEADLINES = 3
-- An answer within so long is not counted: slurmctld itself takes as long for a submit.
local QUICK_S = 0.001
-- Users that are remembered; all are forgotten whenever the budget is whole again.
local MOST_USERS = 32
-- The budget counts as used up until no job was passed for so long, lest the log get many lines.
local QUIET_S = 60

-- new(budget_ms, deadline_s): milliseconds of a second; times in seconds on the caller's clock.
function M.new(budget_ms, deadline_s)
  return setmetatable({
    per_s = budget_ms / 1000, deadline_s = deadline_s, most_s = KEPT_DEADLINES * deadline_s,
    spent_s = 0, at_s = 0, had_s = {}, users = 0, out = 0, before = 0, out_s = nil,
  }, M)
end

-- What was spent is paid back, everybody's share alike. A clock set back pays nothing.
local function pay_back(self, now_s)
  local paid_s = max(0, now_s - self.at_s) * self.per_s
  self.at_s = now_s
  if paid_s >= self.spent_s then
    self.spent_s, self.had_s, self.users = 0, {}, 0
    return
  end
  local left = 1 - paid_s / self.spent_s
  self.spent_s = self.spent_s * left
  for user, had_s in pairs(self.had_s) do
    self.had_s[user] = had_s * left
  end
end

-- May the engine be asked about a job of this user now? The job is counted if not.
function M:allows(user, now_s)
  pay_back(self, now_s)
  if (self.had_s[user] or 0) <= self.most_s - self.spent_s - self.deadline_s then
    return true
  end
  self.out = self.out + 1
  return false
end

local function forget_least(self)
  local least
  for user, had_s in pairs(self.had_s) do
    if not least or had_s < self.had_s[least] then
      least = user
    end
  end
  self.had_s[least], self.users = nil, self.users - 1
end

-- A question about a job of this user took so long; `is_locked`: even readers waited, who may be
-- kept waiting for all tasks of an array at once. A machine that stood still, or a clock set
-- forward, makes no debt.
function M:spend(user, took_s, is_locked)
  took_s = max(0, min(took_s, self.deadline_s))
  if took_s <= (is_locked and 0 or QUICK_S) then
    return
  end
  if not self.had_s[user] then
    if self.users >= MOST_USERS then
      forget_least(self)
    end
    self.had_s[user], self.users = 0, self.users + 1
  end
  self.had_s[user] = self.had_s[user] + took_s
  self.spent_s = self.spent_s + took_s
end

-- began(now_s): true when the job that was just passed is the first one of a series (say so once).
function M:began(now_s)
  local is_first = not self.out_s
  self.out_s = now_s
  return is_first
end

-- ended(now_s) -> how many jobs passed in the series that is over by now, or nil
function M:ended(now_s)
  if not self.out_s or math.abs(now_s - self.out_s) < QUIET_S then
    return nil
  end
  local passed = self.out - self.before
  self.before, self.out_s = self.out, nil
  return passed
end

return M
