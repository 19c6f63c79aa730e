-- Our parts of AdminComment: "[gpu-topo: HINT]" or "[gpu-topo: HINT | NOTE]", behind it of a
-- job whose shape was chosen "[gpu-shape: 2x4 ...]", of one that may borrow GPUs of other nodes
-- "[gpu-loan: STATE ...]", and in the slots mode "[gpu-slots: STATE key=value ...]". Whatever a
-- site or an administrator wrote around them stays.
local M = {}

local find, gsub, match = string.find, string.gsub, string.match

local BRACKET = "%[gpu%-topo:[^%]]*%]"
local KINDS = {
  ["[gpu-topo:"] = BRACKET,
  ["[gpu-shape:"] = "%[gpu%-shape:[^%]]*%]",
  ["[gpu-loan:"] = "%[gpu%-loan:[^%]]*%]",
  ["[gpu-slots:"] = "%[gpu%-slots:[^%]]*%]",
}
M.LONGEST_BRACKET = 1536
-- AdminComment has no limit in Slurm; somebody else's text beyond this is left alone.
M.LONGEST = 32768

local function is_one(text, pattern)
  return #text <= M.LONGEST_BRACKET and not find(text, "%c")
    and match(text, "^" .. pattern .. "$") ~= nil
end

-- Is this text exactly one bracket with a hint?
function M.is_bracket(text)
  return is_one(text, BRACKET)
end

-- Is this text one or more of our brackets, each kind once, a space between? Without
-- is_slots there is none of the slots mode.
function M.are_brackets(text, is_slots)
  local seen, rest = {}, text
  repeat
    local one, after = match(rest, "^(%[gpu%-%a+:[^%]]*%])(.*)$")
    local mark = one and match(one, "^%[gpu%-%a+:")
    local pattern = mark and KINDS[mark]
    if not pattern or seen[mark] or not is_one(one, pattern)
        or (mark == "[gpu-slots:" and not is_slots) then
      return false
    end
    seen[mark] = true
    rest = after == "" and after or match(after, "^ (%[.*)$")
  until not rest or rest == ""
  return rest ~= nil
end

-- The same without the word that the job may borrow: its batch step would have to meet the
-- donors, and only a submit can tell it so.
function M.without_loan(text)
  return (gsub(gsub(text, " ?%[gpu%-loan:[^%]]*%]", ""), "^ ", ""))
end

-- The HINT inside the last bracket of a comment, or nil when there is none.
function M.hint_in(comment)
  local last
  for inside in string.gmatch(comment or "", "%[gpu%-topo: *([^%]]*)%]") do
    last = inside
  end
  return last and match(match(last, "^[^|]*"), "^(.-) *$")
end

-- merged(old, ours) -> the comment with our brackets at its end, older ones of the same kind
-- removed; nil when the old text is too long to be touched.
function M.merged(old, ours)
  if old == nil or old == "" then
    return ours
  end
  if #old > M.LONGEST then
    return nil
  end
  for mark, pattern in pairs(KINDS) do
    if find(old, mark, 1, true) and find(ours, mark, 1, true) then
      old = gsub(gsub(old, " ?" .. pattern, ""), "^ ", "")
    end
  end
  return old == "" and ours or old .. " " .. ours
end

return M
