-- The user's hint: the text of --gpu-topo (where the SPANK plugin is installed), or the text
-- after "gpu-topo:" at the start of --comment. Lua carries the text and checks that it can
-- be carried; the engine reads its meaning.
local M = {}

local byte, find, gsub, match, sub = string.byte, string.find, string.gsub, string.match, string.sub

local PREFIX = "gpu-topo:"
-- Slurm writes "_" for each character of an option's name that is no letter or digit; the name as
-- the user writes it is accepted, too.
local OPTIONS = { "_SLURM_SPANK_OPTION_gputopo_gpu_topo=", "_SLURM_SPANK_OPTION_gputopo_gpu-topo=" }
-- At most so many variables are read: other SPANK plugins set some, a user may set very many.
local MOST = 4096
local LONGEST = 1024

-- text, where it starts after what names it -> hint | nil, refusal
local function checked(text, start)
  -- Length first: a huge text is neither searched nor copied.
  local length = #text - start + 1
  if length > LONGEST then
    return nil, "gpu-topo: the hint is " .. length .. " bytes long, at most "
      .. LONGEST .. " are allowed"
  end
  if find(text, "%c", start) then
    return nil, "gpu-topo: the hint holds a control character (line feed, tab or the like); "
      .. "write it on one line"
  end
  -- Brackets and bars delimit our own records, which will hold the hint.
  local stranger = match(text, "[^ -~]", start) or match(text, "[%[%]|]", start)
  if stranger then
    return nil, "gpu-topo: the hint holds " .. (find(stranger, "[ -~]") and "'" .. stranger .. "'"
      or string.format("the byte 0x%02X", byte(stranger)))
      .. "; hints are printable ASCII without [, ] and |"
  end
  return match(text, "^ *(.-) *$", start)
end

-- Does a comment give a hint, good or bad?
function M.is_in(comment)
  return comment ~= nil and sub(comment, 1, #PREFIX) == PREFIX
end

-- of(comment) -> hint | nil, refusal
--   nil, nil: no hint. nil, line: the submit is to be refused with that line.
function M.of(comment)
  if M.is_in(comment) then
    return checked(comment, #PREFIX + 1)
  end
end

-- The same for --gpu-topo. The table's first index is 0; it is nil where no SPANK plugin set
-- anything.
local function of_option(spank_job_env)
  if type(spank_job_env) ~= "table" then
    return nil
  end
  for i = 0, MOST do
    local text = spank_job_env[i]
    if text == nil then
      return nil
    end
    for _, name in ipairs(OPTIONS) do
      if sub(text, 1, #name) == name then
        return checked(text, #name + 1)
      end
    end
  end
end

-- asked(comment, spank_job_env) -> hint | nil, refusal | nil, whether it came by the option
function M.asked(comment, spank_job_env)
  local by_comment, refusal = M.of(comment)
  local by_option, option_refusal = of_option(spank_job_env)
  if refusal or option_refusal then
    return nil, refusal or option_refusal
  elseif by_option and by_comment and gsub(by_option, " ", "") ~= gsub(by_comment, " ", "") then
    return nil, "gpu-topo: --gpu-topo says '" .. sub(by_option, 1, 100) .. "' and --comment says '"
      .. sub(by_comment, 1, 100) .. "'; give the hint once"
  end
  return by_option or by_comment, nil, by_option ~= nil
end

return M
