-- One question about a job: whether the engine may be asked now (breaker.lua, budget.lua), for how
-- long, and what its reply means. Where it is not asked or does not answer, the caller goes on
-- without it.
local answers = require("gputopo.engine.answers")
local breaker = require("gputopo.engine.breaker")
local budget = require("gputopo.engine.budget")
local codec = require("gputopo.codec")
local reply = require("gputopo.reply")
local transport = require("gputopo.engine.transport")

local M = {}
M.__index = M

-- At most one line in so many seconds about those that had no answer by then.
local LATE_EVERY_S = 60

-- new(settings, log) -> asking, failure: without LuaSocket nobody is asked, and failure says so.
-- settings as of config.lua; log(text) writes a line of slurmctld's log
function M.new(settings, log)
  local deadline_s = settings.deadline_ms / 1000
  local made, engine = pcall(transport.new, settings.socket)
  return setmetatable({
    settings = settings, log = log, engine = made and engine or nil, deadline_s = deadline_s,
    locked_deadline_s = math.min(settings.locked_deadline_ms / 1000, deadline_s),
    kept = answers.new(), budget = budget.new(settings.budget_ms, deadline_s),
    pause = breaker.new(settings.retry_first_s, settings.retry_longest_s), late_s = nil,
  }, M), not made and tostring(engine) or nil
end

-- May this user's job have slurmctld wait for the engine now?
local function is_within_budget(self, user, now_s)
  local passed = self.budget:ended(now_s)
  if passed then
    self.log("every job is asked about again; without budget_ms left " .. passed .. " passed unasked")
  end
  if self.budget:allows(user, now_s) then
    return true
  elseif self.budget:began(now_s) then
    self.log("budget_ms (" .. self.settings.budget_ms .. " of each second) is used up, at last by a "
      .. "job of user " .. user .. "; until there is time again jobs get Slurm's own choice")
  end
  return false
end

-- An engine that misses the short deadline may well meet the other one, so no pause follows.
local function note_late(self, limit_s, now_s)
  if not self.late_s or math.abs(now_s - self.late_s) >= LATE_EVERY_S then
    self.late_s = now_s
    self.log("no answer within " .. 1000 * limit_s .. " ms about a heterogeneous job or an update; "
      .. "it goes on without the engine (said once a minute)")
  end
end

local function note_failure(self, user, reason, began_s, limit_s)
  local now_s = self.engine.now()
  self.engine:close()
  if reason == "timeout" and limit_s < self.deadline_s then
    note_late(self, limit_s, now_s)
    return
  end
  local whose, pause_s = self.pause:failed(reason == "timeout" and user or nil, now_s, began_s)
  if whose then
    self.log("no answer from the engine at " .. self.settings.socket .. " (" .. reason .. "); jobs "
      .. (whose == "user" and "of user " .. user .. " " or "") .. "get Slurm's own choice, asking again "
      .. "in " .. pause_s .. " s")
  end
end

-- What a reply means: a checked plan for "ok", the line for "refuse", true for "pass";
-- nil and the reason when it cannot be used. Such a reply is about one job, so no pause follows:
-- a job that is written to provoke it must not keep the engine from other jobs.
local function meaning(self, verb, fields, is_shape)
  if verb == "ok" then
    return reply.checked(fields, self.settings.enforcement == "slots", is_shape)
  elseif verb == "refuse" then
    return fields.message, "a refusal without a message"
  elseif verb == "pass" then
    return true
  elseif verb == "error" then
    return nil, "it reports: " .. (fields.message or "")
  end
  return nil, verb and "the reply '" .. verb .. "' is not known" or fields
end

-- The line of the reply, or nil. How many jobs passed unasked is told along with the question.
local function exchanged(self, user, rest, limit_s)
  local began_s, out = self.engine.now(), self.budget.out
  local told = out > 0 and string.format(" budget_out=%d", out) or ""
  local answer, failure = self.engine:exchange("submit", rest .. told, limit_s)
  -- One that gave up may still keep the engine busy: it counts as a whole deadline. The short one
  -- is missed by ordinary jobs of large sites, too.
  local is_locked = limit_s < self.deadline_s
  local is_late = not answer and failure == "timeout" and not is_locked
  self.budget:spend(user, is_late and self.deadline_s or self.engine.now() - began_s, is_locked)
  if not answer then
    return note_failure(self, user, failure, began_s, limit_s)
  end
  local whose = self.pause:succeeded(user)
  if whose then
    self.log("the engine at " .. self.settings.socket .. " answers again"
      .. (whose == "user" and " about jobs of user " .. user or ""))
  end
  return answer
end

-- ask(line, more, how) -> "ok" and a checked plan, "refuse" and its line, "pass", or nil: go on
-- without the engine. None is asked where `line` or `more` is nil. how.is_shape: the job leaves its
-- shape to the engine; how.is_locked: a component of a heterogeneous job, or an update. slurmctld
-- holds its locks until it has asked about all components, and about all tasks of an array; for
-- srun, salloc and updates it holds them for writing, so that even its readers wait.
function M:ask(line, more, how)
  local engine = self.engine
  if not (line and more and engine) then
    return nil
  end
  local user, now_s = string.match(line, "^ uid=(%d+)"), engine.now()
  if not self.pause:allows(user, now_s) then
    return nil
  end
  local rest = line .. more
  local known, known_plan = self.kept:get(rest, now_s)
  if known then
    return known, known_plan
  end
  if not is_within_budget(self, user, now_s) then
    return nil
  end
  local answer = exchanged(self, user, rest, how.is_locked and self.locked_deadline_s or self.deadline_s)
  if not answer then
    return nil
  end
  local verb, fields = codec.parse_reply(answer)
  local plan, failure = meaning(self, verb, fields, how.is_shape)
  if not plan then
    self.log("a job goes on without the engine (unusable reply: " .. failure .. ")")
    return nil
  end
  if string.find(fields.keep_s or "", "^%d%d?$") then
    self.kept:put(rest, verb, plan, tonumber(fields.keep_s), engine.now())
  end
  return verb, plan
end

return M
