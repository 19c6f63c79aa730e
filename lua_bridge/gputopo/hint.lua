-- The user's hint: the text after "gpu-topo:" at the start of --comment. Lua carries the
-- text and checks that it can be carried; what it means is the engine's business.
local M = {}

local find, match, sub = string.find, string.match, string.sub

local PREFIX = "gpu-topo:"
M.LONGEST = 1024

-- of(comment) -> hint | nil, refusal
--   nil, nil: no hint. nil, line: the submit is to be refused with that line.
function M.of(comment)
  if comment == nil or sub(comment, 1, #PREFIX) ~= PREFIX then
    return nil
  end
  -- Length first: a huge text is neither searched nor copied.
  if #comment > M.LONGEST + #PREFIX then
    return nil, "gpu-topo: the hint is " .. #comment - #PREFIX .. " bytes long, at most "
      .. M.LONGEST .. " are allowed"
  end
  if find(comment, "%c") then
    return nil, "gpu-topo: the hint holds a control character (line feed, tab or the like); "
      .. "write it on one line"
  end
  return match(comment, "^ *(.-) *$", #PREFIX + 1)
end

return M
