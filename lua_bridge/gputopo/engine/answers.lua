-- Answers the engine allowed to be used again (keep_s) for the very same request: a loop
-- of a thousand equal submits then costs slurmctld one question per keep_s.
local find, sub = string.find, string.sub

local M = {}
M.__index = M

-- With more answers than this all are forgotten, so that a burst of different jobs does not fill
-- slurmctld's memory.
local MOST = 256

function M.new()
  return setmetatable({ kept = {}, count = 0 }, M)
end

-- The plan for one more job. Each job needs a token of its own, so -1, -2, ... is put behind it in
-- the order of the jobs.
local function once_more(answer)
  local plan = answer.plan
  if type(plan) ~= "table" or not plan.token then
    return plan
  end
  local set = {}
  for field, value in pairs(plan.set) do
    set[field] = value
  end
  answer.used = answer.used + 1
  local text = set.admin_comment
  local _, stop = find(text, plan.token, 1, true)
  set.admin_comment = sub(text, 1, stop) .. "-" .. answer.used .. sub(text, stop + 1)
  return { set = set, env = plan.env, message = plan.message }
end

-- get(request, now_s) -> verb, plan, or nil
function M:get(request, now_s)
  local answer = self.kept[request]
  local left_s = answer and answer.until_s - now_s
  -- Above keep_s only when the wall clock was set back.
  if left_s and left_s > 0 and left_s <= answer.keep_s then
    return answer.verb, once_more(answer)
  end
  return nil
end

function M:put(request, verb, plan, keep_s, now_s)
  if not self.kept[request] then
    if self.count >= MOST then
      self.kept, self.count = {}, 0
    end
    self.count = self.count + 1
  end
  self.kept[request] = {
    verb = verb, plan = plan, keep_s = keep_s, until_s = now_s + keep_s, used = 0,
  }
end

return M
