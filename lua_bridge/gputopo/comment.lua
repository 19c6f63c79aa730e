-- Our part of AdminComment: "[gpu-topo: HINT]" or "[gpu-topo: HINT | NOTE]". Whatever a
-- site or an administrator wrote around it stays.
local M = {}

local find, gsub, match = string.find, string.gsub, string.match

local BRACKET = "%[gpu%-topo:[^%]]*%]"
M.LONGEST_BRACKET = 1536
-- AdminComment has no limit in Slurm; somebody else's text beyond this is left alone.
M.LONGEST = 32768

-- Is this text exactly one bracket of ours?
function M.is_bracket(text)
  return #text <= M.LONGEST_BRACKET and not find(text, "%c")
    and match(text, "^" .. BRACKET .. "$") ~= nil
end

-- The HINT inside the last bracket of a comment, or nil when there is none.
function M.hint_in(comment)
  local last
  for inside in string.gmatch(comment or "", "%[gpu%-topo: *([^%]]*)%]") do
    last = inside
  end
  return last and match(match(last, "^[^|]*"), "^(.-) *$")
end

-- merged(old, bracket) -> the comment with our bracket at its end, older ones removed;
-- nil when the old text is too long to be touched.
function M.merged(old, bracket)
  if old == nil or old == "" then
    return bracket
  end
  if #old > M.LONGEST then
    return nil
  end
  if find(old, "[gpu-topo:", 1, true) then
    old = gsub(gsub(old, " ?" .. BRACKET, ""), "^ ", "")
    if old == "" then
      return bracket
    end
  end
  return old .. " " .. bracket
end

return M
