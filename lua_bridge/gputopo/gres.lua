-- Reads Slurm's GRES requests: "gres/gpu:2" (23.02 and later), "gres:gpu:2" (22.05),
-- "gres/gpu:v100=2" (tres_per_task), several separated by commas.
local M = {}

local find, gmatch, match = string.find, string.gmatch, string.match
local tonumber = tonumber

-- Slurm's own suffixes (a count of 1k is 1,024).
local SUFFIX = { [""] = 1, k = 1024, K = 1024, m = 1024 ^ 2, M = 1024 ^ 2 }
-- More than this is a typing error; Slurm says so better than we could.
local LARGEST_COUNT = 1000000

-- MIG slices: 1g.5gb, a100_3g.20gb, 1c.2g.10gb, 1g.10gb+me.
local function is_mig(gpu_type)
  return find(gpu_type, "%dg%.%d+gb") ~= nil
end

-- The part after the name "gpu": count and type, or nil when it cannot be read.
local function count_and_type(rest)
  local digits, suffix = match(rest, "^[:=](%d+)(%a?)$")
  if digits then
    return SUFFIX[suffix] and tonumber(digits) * SUFFIX[suffix]
  end
  local gpu_type = match(rest, "^:([^:=]+)$")
  if gpu_type then
    return 1, gpu_type
  end
  gpu_type, digits, suffix = match(rest, "^:([^:=]+)[:=](%d+)(%a?)$")
  if gpu_type and SUFFIX[suffix] then
    return tonumber(digits) * SUFFIX[suffix], gpu_type
  end
  return nil
end

-- parse(spec) -> count, type | nil
--   count 0: no GPU in it. type: the one type asked for; "" for any or several.
--   nil: shared or sliced GPUs (MPS, shards, MIG), or a text that cannot be read: not ours.
function M.parse(spec)
  local total, the_type = 0, nil
  for item in gmatch(spec, "[^,]+") do
    local name, rest = match(item, "^gres[/:]([%w_%-]+)(.*)$")
    if not name then
      name, rest = match(item, "^([%w_%-]+)(.*)$")
    end
    if name == "mps" or name == "shard" then
      return nil
    elseif name == "gpu" then
      local count, gpu_type = 1, nil
      if rest ~= "" then
        count, gpu_type = count_and_type(rest)
      end
      if not count or count > LARGEST_COUNT or (gpu_type and is_mig(gpu_type)) then
        return nil
      end
      gpu_type = gpu_type or ""
      if the_type == nil then
        the_type = gpu_type
      elseif the_type ~= gpu_type then
        the_type = ""
      end
      total = total + count
    end
  end
  return total, the_type or ""
end

return M
