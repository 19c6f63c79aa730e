-- Our records in a job's AdminComment. Whatever a site or an administrator wrote around them stays.
--   [gpu-topo: HINT | NOTE]           the user's hint, and a note of ours if there is one
--   [gpu-shape: 2x4 ...]              a job whose shape was chosen
--   [gpu-loan: STATE ...]             a job that may borrow GPUs of other nodes
--   [gpu-slots: STATE key=value ...]  a job of the slots mode
--   [gpu-donor: of=JOB]               a donor
--
-- One grammar for Lua, Python (slurm_plugin/base/job_notes/brackets.py) and C
-- (slurm_plugin/select/pure/admin_comment.c):
-- a bracket is ours only outside of every other bracket, with none inside, without control
-- characters, and of at most LONGEST_BRACKET bytes. Of several of a kind the last one counts.
-- Behind a bracket that is never closed there is nothing of ours.
local M = {}

local byte, find, gsub, match, sub = string.byte, string.find, string.gsub, string.match, string.sub

local ORDER = { "gpu-topo", "gpu-shape", "gpu-loan", "gpu-slots", "gpu-donor" }
local IS_OURS = {}
for _, kind in ipairs(ORDER) do
  IS_OURS[kind] = true
end
local OPENS = byte("[")
M.LONGEST_BRACKET = 1536
-- AdminComment has no limit in Slurm; somebody else's text beyond this is left alone.
M.LONGEST = 32768

-- The kind of a text from "[" to the next "]", and what is inside; nil when it is not ours.
local function kind_of(text)
  local kind, body = match(text, "^%[(gpu%-%l+):([^%c]*)%]$")
  if kind and IS_OURS[kind] and #text <= M.LONGEST_BRACKET then
    return kind, match(body, "^ *(.-) *$")
  end
end

-- read(comment) -> {kind -> what is inside}, the rest, whether the rest closes its brackets
local function read(comment)
  local records, rest, taken = {}, "", 1
  local depth, opened, is_nested = 0, nil, false
  local at = find(comment, "[%[%]]")
  while at do
    if byte(comment, at) == OPENS then
      is_nested = depth > 0
      opened = is_nested and opened or at
      depth = depth + 1
    elseif depth > 0 then
      depth = depth - 1
      local kind, body
      if depth == 0 and not is_nested then
        kind, body = kind_of(sub(comment, opened, at))
      end
      if kind then
        records[kind] = body
        rest = rest .. gsub(sub(comment, taken, opened - 1), "%s+$", "")
        taken = at + 1
      end
    end
    at = find(comment, "[%[%]]", at + 1)
  end
  rest = rest .. sub(comment, taken)
  return records, match(rest, "^%s*(.-)%s*$"), depth == 0
end

-- inside(comment, kind) -> what stands in our bracket of this kind ("gpu-slots"), or nil
function M.inside(comment, kind)
  if comment == nil or #comment > M.LONGEST or not find(comment, "[gpu-", 1, true) then
    return nil
  end
  return read(comment)[kind]
end

-- The HINT of a comment, or nil when there is none.
function M.hint_in(comment)
  local inside = M.inside(comment, "gpu-topo")
  return inside and match(match(inside, "^[^|]*"), "^(.-) *$")
end

-- written(records, rest, is_closed) -> the comment that read() would read like this
local function written(records, rest, is_closed)
  local ours = {}
  for _, kind in ipairs(ORDER) do
    if records[kind] then
      local space = records[kind] ~= "" and " " or ""
      ours[#ours + 1] = "[" .. kind .. ":" .. space .. records[kind] .. "]"
    end
  end
  local text = table.concat(ours, " ")
  if rest == "" or text == "" then
    return rest .. text
  end
  -- Behind a bracket that is never closed ours would not count.
  return is_closed and rest .. " " .. text or text .. " " .. rest
end

-- Is this text nothing but brackets that an engine may send, each kind at most once? Those of the
-- slots mode need is_slots; those of donors are never sent.
function M.are_brackets(text, is_slots)
  local records, rest = read(text)
  return rest == "" and next(records) ~= nil and written(records, "", true) == text
    and not records["gpu-donor"] and (is_slots or not records["gpu-slots"])
end

-- The text without its gpu-loan bracket, for a job that may not borrow: only a submit can tell the
-- batch step of a job to meet donors.
function M.without_loan(text)
  local records, rest, is_closed = read(text)
  records["gpu-loan"] = nil
  return written(records, rest, is_closed)
end

-- The comment without anything of ours.
function M.without_ours(text)
  local _, rest = read(text)
  return rest
end

-- merged(old, ours) -> the comment with our brackets, in place of older ones of the same kinds;
-- nil when the old text is too long to be touched.
function M.merged(old, ours)
  if old == nil or old == "" then
    return ours
  elseif #old > M.LONGEST then
    return nil
  end
  local records, rest, is_closed = read(old)
  for kind, inside in pairs((read(ours))) do
    records[kind] = inside
  end
  return written(records, rest, is_closed)
end

return M
