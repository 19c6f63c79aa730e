-- After a failure the engine is left alone for a while: 1 s, then twice as long each
-- time up to 60 s. So a hung engine costs one deadline per pause, not one per submit. Where
-- nobody listens, as while the engine restarts, asking costs nothing and pauses stay short.
-- A late answer may be the work of one user's job: the pause is for that user alone, until another
-- user's comes late meanwhile.
local M = {}
M.__index = M

-- A failure that took less has cost slurmctld nothing.
local QUICK_S = 0.005

-- Times in seconds on the caller's clock.
function M.new(first_s, longest_s)
  return setmetatable({
    first_s = first_s, longest_s = longest_s, pause_s = 0, until_s = 0, only = nil, was_for_all = false,
  }, M)
end

-- May the engine be asked about a job of this user now?
function M:allows(user, now_s)
  if self.pause_s == 0 or (self.only and self.only ~= user) then
    return true
  end
  -- A wall clock set back must not prolong the pause.
  if self.until_s - now_s > self.pause_s then
    self.until_s = now_s + self.pause_s
  end
  return now_s >= self.until_s
end

-- True when this failure opened the breaker, or opened it for all (say so once in the log).
-- `user`: whose job alone it may be about, nil for a failure of the engine; `began_s`: when it was asked.
function M:failed(user, now_s, began_s)
  local opened = self.pause_s == 0
  local is_another = self.only ~= nil and self.only ~= user
  if is_another and now_s < self.until_s then
    user, opened = nil, not self.was_for_all
  elseif opened or is_another or now_s - began_s < QUICK_S then
    self.pause_s = self.first_s
  else
    self.pause_s = math.min(self.pause_s * 2, self.longest_s)
  end
  self.only, self.was_for_all = user, self.was_for_all or user == nil
  self.until_s = now_s + self.pause_s
  return opened
end

-- True when this success, with a job of this user, closed the breaker.
function M:succeeded(user, now_s)
  if self.pause_s == 0 or (self.only and self.only ~= user and now_s < self.until_s) then
    return false
  end
  self.pause_s, self.only, self.was_for_all = 0, nil, false
  return true
end

return M
