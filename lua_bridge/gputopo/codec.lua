-- The engine's line format (docs/protocol.md): VERB key=value ..., values percent-encoded.
local M = {}

local char, find, format = string.char, string.find, string.format
local gmatch, gsub, match, sub = string.gmatch, string.gsub, string.match, string.sub

-- Everything but 0x21-0x7e without "%" (0x25).
local UNSAFE = "[^!-$&-~]"

local ESCAPE = {}
for code = 0, 255 do
  ESCAPE[char(code)] = format("%%%02X", code)
end

function M.encode(text)
  if not find(text, UNSAFE) then
    return text
  end
  return (gsub(text, UNSAFE, ESCAPE))
end

-- " key=N key=N ..." from { {key, number}, ... }; nil where one is not a whole number from 0 to
-- 10^15. Lua would write larger ones as 2e+15, and Slurm refuses such jobs by itself.
local LARGEST_NUMBER = 1e15
function M.numbers(pairs)
  local line = ""
  for _, pair in ipairs(pairs) do
    local number = pair[2]
    if not (number >= 0 and number <= LARGEST_NUMBER and number % 1 == 0) then
      return nil
    end
    line = line .. " " .. pair[1] .. "=" .. format("%d", number)
  end
  return line
end

-- The text with its percent codes decoded.
function M.unescaped(text)
  return (gsub(text, "%%(%x%x)", function(hex)
    return char(tonumber(hex, 16))
  end))
end

-- The same, or nil when a "%" is not followed by two hexadecimal digits.
function M.decode(value)
  if not find(value, "%", 1, true) then
    return value
  end
  if find(gsub(value, "%%%x%x", ""), "%", 1, true) then
    return nil
  end
  return M.unescaped(value)
end

-- The id of a reply line as a number, or nil.
function M.reply_id(line)
  return tonumber(match(line, "^%l+ id=(%d+)$") or match(line, "^%l+ id=(%d+) "))
end

-- parse_reply(line) -> verb, fields (key -> decoded value) | nil, reason
function M.parse_reply(line)
  if find(line, "[^ -~]") then
    return nil, "a byte outside printable ASCII"
  end
  local verb = match(line, "^(%l+) ") or match(line, "^(%l+)$")
  if not verb then
    return nil, "no verb"
  end
  local fields = {}
  for word in gmatch(sub(line, #verb + 2), "[^ ]+") do
    local key, value = match(word, "^([%w_.]+)=(.*)$")
    value = key and M.decode(value)
    if not value then
      return nil, "a word that is not key=value"
    elseif fields[key] ~= nil then
      return nil, "the key " .. key .. " twice"
    end
    fields[key] = value
  end
  return verb, fields
end

-- One printable line of at most `limit` bytes, for logs and users.
function M.one_line(text, limit)
  text = gsub(tostring(text), "[%c]+", " ")
  if #text > limit then
    text = sub(text, 1, limit - 3) .. "..."
  end
  return text
end

return M
