-- gputopo-bridge.conf: "key = value" lines, "#" starts a comment. A missing file means
-- defaults; a bad line is reported and its default stays (a submit must never fail for it).
local M = {}

local match = string.match

local function number_between(low, high)
  return function(text)
    local number = tonumber(text)
    if number and number >= low and number <= high then
      return number
    end
    return nil, "a number from " .. low .. " to " .. high
  end
end

local function socket_path(text)
  -- sun_path holds 108 bytes with its terminating zero.
  if match(text, "^/") and #text <= 107 then
    return text
  end
  return nil, "an absolute path of at most 107 bytes"
end

local function one_of(...)
  local choices = { ... }
  return function(text)
    for _, choice in ipairs(choices) do
      if text == choice then
        return text
      end
    end
    return nil, "one of " .. table.concat(choices, ", ")
  end
end

-- Settings as data: default, and a reader that returns the value or nil and what is expected.
local SETTINGS = {
  socket = { default = "/run/gputopo/engine.sock", read = socket_path },
  enforcement = { default = "select", read = one_of("select", "slots") },
  deadline_ms = { default = 50, read = number_between(1, 1000) },
  locked_deadline_ms = { default = 10, read = number_between(1, 1000) },
  budget_ms = { default = 100, read = number_between(1, 1000) },
  retry_first_s = { default = 1, read = number_between(0.1, 3600) },
  retry_longest_s = { default = 60, read = number_between(0.1, 3600) },
}

-- parse(text, name) -> settings, complaints (a list of one-line texts naming the line)
function M.parse(text, name)
  local settings, complaints, number = {}, {}, 0
  for key, setting in pairs(SETTINGS) do
    settings[key] = setting.default
  end
  for line in string.gmatch(text .. "\n", "([^\n]*)\n") do
    number = number + 1
    line = match(string.gsub(line, "#.*", ""), "^%s*(.-)%s*$")
    if line ~= "" then
      local key, text_value = match(line, "^([%w_]+)%s*=%s*(.-)$")
      local setting = key and SETTINGS[key]
      local value, expected
      if setting then
        value, expected = setting.read(text_value)
      else
        expected = "one of budget_ms, deadline_ms, enforcement, locked_deadline_ms, retry_first_s, "
          .. "retry_longest_s, socket, then '= value'"
      end
      if value ~= nil then
        settings[key] = value
      else
        complaints[#complaints + 1] = name .. " line " .. number .. ": '" .. line
          .. "', expected " .. expected .. "; the line is ignored"
      end
    end
  end
  return settings, complaints
end

-- load(paths) -> settings, complaints: the first file that can be opened, else defaults.
function M.load(paths)
  for _, path in ipairs(paths) do
    local file = io.open(path, "r")
    if file then
      local text = file:read(65536) or ""
      file:close()
      return M.parse(text, path)
    end
  end
  return M.parse("", "")
end

return M
