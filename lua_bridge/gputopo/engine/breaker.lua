-- After a failure the engine is left alone for a while: 1 s, then twice as long each
-- time up to 60 s. So a hung engine costs one deadline per pause, not one per submit. Where
-- nobody listens, as while the engine restarts, asking costs nothing and pauses stay short.
-- A late answer may be the work of one user's job: the pause is for that user alone, and grows for
-- him alone. Only three users in a row, none of whom was late lately, make it for all: two accounts
-- of one person must not have everybody shut off.
local M = {}
M.__index = M

local max, min = math.max, math.min

-- A failure that took less has cost slurmctld nothing.
local QUICK_S = 0.005
-- So many users, and no answer in time between them, make it the engine's fault.
local MOST_IN_A_ROW = 3
-- Users whose lateness is remembered; who was late longest ago is forgotten first.
local MOST_USERS = 32
-- A user's next pause is half as long for every so many times first_s that he was not late.
local HALVES_AFTER = 10
-- So many pauses of single users are told in a minute, and as many that late answers made for all.
local MOST_LINES, LINES_S = 3, 60

-- Times in seconds on the caller's clock.
function M.new(first_s, longest_s)
  return setmetatable({
    first_s = first_s, longest_s = longest_s, pause_s = 0, until_s = 0, is_said = false,
    late = {}, users = 0, turn = 0, -- each user's pause, how many, the latest one's number
    row = 0, in_a_row = 0, -- number of the row, which an answer in time ends; users in it
    user_lines = {}, all_lines = {},
  }, M)
end

local function is_over(pause, now_s)
  -- A wall clock set back must not prolong the pause.
  if pause.until_s - now_s > pause.pause_s then
    pause.until_s = now_s + pause.pause_s
  end
  return now_s >= pause.until_s
end

-- A pause of one user or for all, after one of last_s before (0: none).
local function pause_again(self, pause, last_s, now_s, began_s)
  local is_short = last_s == 0 or now_s - began_s < QUICK_S
  pause.pause_s = is_short and self.first_s or min(last_s * 2, self.longest_s)
  pause.until_s = now_s + pause.pause_s
end

-- What is left of the user's last pause, 0 for one who was not late lately. Only time in which the
-- engine answers others and he could ask counts for him.
local function last_pause_s(self, one, now_s)
  if one.row == self.row then
    return one.pause_s
  end
  local good_s = max(0, now_s - max(one.until_s, self.until_s))
  local left_s = one.pause_s / 2 ^ math.floor(good_s / (HALVES_AFTER * self.first_s))
  return left_s >= self.first_s and left_s or 0
end

-- May the engine be asked about a job of this user now? After a pause for all those come first who
-- were not late: somebody's long question must not follow upon each pause and make the next one.
function M:allows(user, now_s)
  local one = self.late[user]
  if not is_over(self, now_s) or one and not is_over(one, now_s) then
    return false
  elseif not one then
    return true
  end
  local is_first = self.pause_s == 0 or last_pause_s(self, one, now_s) == 0
  return is_first or now_s >= max(one.until_s, self.until_s) + HALVES_AFTER * self.first_s
end

local function forget_one(self)
  local first
  for user, one in pairs(self.late) do
    if not first or one.turn < self.late[first].turn then
      first = user
    end
  end
  self.late[first], self.users = nil, self.users - 1
end

local function remembered(self, user)
  local one = self.late[user]
  if not one then
    if self.users >= MOST_USERS then
      forget_one(self)
    end
    one = { pause_s = 0, until_s = 0, is_said = false }
    self.late[user], self.users = one, self.users + 1
  end
  self.turn = self.turn + 1
  one.turn = self.turn
  return one
end

local function is_line_left(lines, now_s)
  if not lines.at_s or math.abs(now_s - lines.at_s) >= LINES_S then
    lines.at_s, lines.count = now_s, 0
  end
  lines.count = lines.count + 1
  return lines.count <= MOST_LINES
end

-- "all" when the pause for all is to be told. Later one line says that the engine answers again, for
-- those of single users, too.
local function told_for_all(self)
  for _, one in pairs(self.late) do
    one.is_said = false
  end
  self.is_said = true
  return "all"
end

-- failed(user, now_s, began_s) -> "user" or "all", whose pause is to be told in the log, and its
-- seconds; or nil. `user`: whose job alone it may be about, nil for a failure of the engine;
-- `began_s`: when it was asked.
function M:failed(user, now_s, began_s)
  if not user then
    pause_again(self, self, self.pause_s, now_s, began_s)
    return not self.is_said and told_for_all(self) or nil, self.pause_s
  end
  local one = remembered(self, user)
  local last_s = last_pause_s(self, one, now_s)
  pause_again(self, one, last_s, now_s, began_s)
  one.row = self.row
  self.in_a_row = self.in_a_row + (last_s == 0 and 1 or 0)
  if last_s == 0 and self.in_a_row >= MOST_IN_A_ROW then
    pause_again(self, self, self.pause_s, now_s, began_s)
    local is_told = not self.is_said and is_line_left(self.all_lines, now_s)
    return is_told and told_for_all(self) or nil, self.pause_s
  end
  if one.is_said or self.pause_s > 0 or not is_line_left(self.user_lines, now_s) then
    return nil
  end
  one.is_said = true
  return "user", one.pause_s
end

-- succeeded(user) -> "user" or "all", whose pause was told in the log and is over, or nil: an answer
-- in time about whomever ends the pause for all.
function M:succeeded(user)
  local one = self.late[user]
  local over = self.is_said and "all" or one and one.is_said and "user" or nil
  self.pause_s, self.is_said = 0, false
  self.row, self.in_a_row = self.row + 1, 0
  if one then
    one.is_said = false
  end
  return over
end

return M
