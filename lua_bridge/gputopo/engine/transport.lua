-- A kept-open Unix socket to the engine. One exchange, with all it may need (connect,
-- partial writes, reading, one reconnect), stays inside one deadline.
--
-- Not used on purpose: socket.select, which fails for descriptors above 1,023 (slurmctld
-- has many), and receive("*l"), which would read a line of any length.
local codec = require("gputopo.codec")

local M = {}
M.__index = M

local find, gsub, sub = string.find, string.gsub, string.sub
local min = math.min

M.LONGEST_REPLY = 65536
local LARGEST_ID = 1000000000

-- LuaSocket 3.0 returns a table of constructors, its release candidates a function.
local function load_luasocket()
  local unix = require("socket.unix")
  return type(unix) == "table" and unix.stream or unix, require("socket").gettime
end

-- new(path) -> transport; raises an error when LuaSocket is not installed.
function M.new(path)
  local new_socket, gettime = load_luasocket()
  return setmetatable({
    path = path,
    limit_s = 0,
    new_socket = new_socket,
    now = gettime,
    next_id = 0,
    socket = nil,
    unread = "",
  }, M)
end

function M:close()
  if self.socket then
    self.socket:close()
    self.socket = nil
  end
  self.unread = ""
end

-- Seconds left, never more than all of them should the wall clock be set back.
local function left_s(self, start_s)
  local left = self.limit_s - (self.now() - start_s)
  return left > 0 and min(left, self.limit_s) or 0
end

local function connect(self, start_s)
  local socket, failure = self.new_socket()
  if not socket then
    return nil, failure
  end
  socket:settimeout(left_s(self, start_s), "t")
  local connected
  connected, failure = socket:connect(self.path)
  if not connected then
    socket:close()
    return nil, "connect: " .. tostring(failure)
  end
  self.socket, self.unread = socket, ""
  return true
end

-- Appends what has arrived to self.unread; waits for at least one byte.
local function read_more(self, start_s)
  local socket = self.socket
  local left = left_s(self, start_s)
  if left <= 0 then
    return nil, "timeout"
  end
  socket:settimeout(left, "t")
  local first, failure = socket:receive(1)
  if not first then
    return nil, failure
  end
  socket:settimeout(0, "t")
  local all, _, some = socket:receive(M.LONGEST_REPLY)
  self.unread = self.unread .. first .. (all or some)
  return true
end

-- One line without its line feed, or nil and the reason.
local function read_line(self, start_s)
  while true do
    local stop = find(self.unread, "\n", 1, true)
    if stop and stop <= M.LONGEST_REPLY then
      local line = sub(self.unread, 1, stop - 1)
      self.unread = sub(self.unread, stop + 1)
      return line
    elseif stop or #self.unread >= M.LONGEST_REPLY then
      return nil, "a reply longer than " .. M.LONGEST_REPLY .. " bytes"
    end
    local ok, failure = read_more(self, start_s)
    if not ok then
      return nil, failure
    end
  end
end

-- The reply to `id`; late replies to earlier requests are dropped.
local function read_reply(self, id, start_s)
  while true do
    local line, failure = read_line(self, start_s)
    if not line then
      return nil, failure
    end
    local reply_id = codec.reply_id(line)
    if reply_id == id then
      return line
    elseif not reply_id or reply_id > id or reply_id == 0 then
      -- It goes into slurmctld's log, which garbage must not turn into a binary file.
      line = codec.one_line(gsub(line, "[^ -~]", "?"), 120)
      return nil, "not a reply to request " .. id .. ": " .. line
    end
  end
end

local function attempt(self, id, request, start_s)
  if not self.socket then
    local ok, failure = connect(self, start_s)
    if not ok then
      return nil, failure
    end
  end
  self.socket:settimeout(left_s(self, start_s), "t")
  local sent, failure = self.socket:send(request)
  if not sent then
    return nil, failure
  end
  return read_reply(self, id, start_s)
end

-- exchange(verb, rest, limit_s) -> reply line | nil, reason
--   Sends "VERB id=N" .. rest, and takes limit_s at most. A kept connection that turns out to be closed (the engine
--   was restarted) is opened again once. After any failure the connection is closed.
function M:exchange(verb, rest, limit_s)
  local start_s = self.now()
  self.limit_s = limit_s
  local id = self.next_id % LARGEST_ID + 1
  self.next_id = id
  local request = verb .. " id=" .. id .. rest .. "\n"
  local was_open = self.socket ~= nil
  local line, failure = attempt(self, id, request, start_s)
  if not line and was_open and failure ~= "timeout" and left_s(self, start_s) > 0 then
    self:close()
    line, failure = attempt(self, id, request, start_s)
  end
  if not line or self.unread ~= "" then
    self:close()
  end
  return line, failure
end

return M
