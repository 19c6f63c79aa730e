-- After a failure the engine is left alone for a while: 1 s, then twice as long each
-- time up to 60 s. So a hung engine costs one deadline per pause, not one per submit. Where
-- nobody listens, as while the engine restarts, asking costs nothing and pauses stay short.
local M = {}
M.__index = M

-- A failure that took less has cost slurmctld nothing.
local QUICK_S = 0.005

-- Times in seconds on the caller's clock.
function M.new(first_s, longest_s)
  return setmetatable({ first_s = first_s, longest_s = longest_s, pause_s = 0, until_s = 0 }, M)
end

-- May the engine be asked now?
function M:allows(now_s)
  if self.pause_s == 0 then
    return true
  end
  -- A wall clock set back must not prolong the pause.
  if self.until_s - now_s > self.pause_s then
    self.until_s = now_s + self.pause_s
  end
  return now_s >= self.until_s
end

-- True when this failure opened the breaker (say so once in the log); `began_s`: when it
-- was asked.
function M:failed(now_s, began_s)
  local opened = self.pause_s == 0
  if opened or now_s - began_s < QUICK_S then
    self.pause_s = self.first_s
  else
    self.pause_s = math.min(self.pause_s * 2, self.longest_s)
  end
  self.until_s = now_s + self.pause_s
  return opened
end

-- True when this success closed the breaker.
function M:succeeded()
  local closed = self.pause_s ~= 0
  self.pause_s = 0
  return closed
end

return M
