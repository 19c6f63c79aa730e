-- Reads and rewrites Slurm's GRES requests: "gres/gpu:2" (23.11 and later), "gres:gpu:2" (22.05),
-- "gres/gpu:v100=2" (tres_per_task), several separated by commas.
--
-- In the slots mode every GPU of a node is a GRES type of its own ("v100.s3") and a model is a
-- node feature ("v100"). A user's request by model becomes one for any GPU on nodes with that
-- feature, which Slurm can run with or without an engine.
local M = {}

local find, gmatch, match = string.find, string.gmatch, string.match
local tonumber = tonumber

-- The fields of a job that hold such requests
M.FIELDS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }

-- Slurm's own suffixes (a count of 1k is 1,024).
local SUFFIX = { [""] = 1, k = 1024, K = 1024, m = 1024 ^ 2, M = 1024 ^ 2 }
-- A larger count is a typing error, which Slurm itself refuses.
local LARGEST_COUNT = 1000000

-- MIG slices: 1g.5gb, a100_3g.20gb, 1c.2g.10gb, 1g.10gb+me.
local function is_mig(gpu_type)
  return find(gpu_type, "%dg%.%d+gb") ~= nil
end

-- What stands before an item's name ("gres/", "gres:" or ""), the name, and what follows it
local function split(item)
  local before, name, rest = match(item, "^(gres[/:])([%w_%-]+)(.*)$")
  if not name then
    name, rest = match(item, "^([%w_%-]+)(.*)$")
  end
  return before or "", name, rest
end

-- What follows the name "gpu": count and type, or nil when it cannot be read.
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
    local _, name, rest = split(item)
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

-- "s3", "v100.s3": one particular GPU.
function M.is_slot(gpu_type)
  return find(gpu_type, "^s%d+$") ~= nil or find(gpu_type, "%.s%d+$") ~= nil
end

-- Of an item for GPUs: what stands before the type or the count ("gres/gpu"), the type if there
-- is one ("v100"), and what joins the count (":"). nil for an item of another kind.
local function gpu_item(item)
  local before, name, rest = split(item)
  if name ~= "gpu" or (rest ~= "" and not find(rest, "^[:=]")) then
    return nil
  elseif rest == "" or find(rest, "^[:=]%d+%a?$") then
    return before .. name, nil, match(rest, "^[:=]") or ":"
  end
  local gpu_type, joint = match(rest, "^:([^:=]+)([:=]?)")
  return before .. name, gpu_type, joint ~= "" and joint or ":"
end

-- types(spec) -> the GPU types that a request names, each once
function M.types(spec)
  local types, seen = {}, {}
  for item in gmatch(spec, "[^,]+") do
    local _, gpu_type = gpu_item(item)
    if gpu_type and not seen[gpu_type] then
      seen[gpu_type] = true
      types[#types + 1] = gpu_type
    end
  end
  return types
end

-- types_of(job) -> the GPU types that a job's fields, or a table of the same names, ask for
function M.types_of(job)
  local types = {}
  for _, field in ipairs(M.FIELDS) do
    local text = job[field]
    for _, gpu_type in ipairs(text and M.types(text) or {}) do
      types[#types + 1] = gpu_type
    end
  end
  return types
end

-- slot_of(job) -> the first particular GPU among them, or nil
function M.slot_of(job)
  for _, gpu_type in ipairs(M.types_of(job)) do
    if M.is_slot(gpu_type) then
      return gpu_type
    end
  end
end

-- untyped(spec) -> the same request without GPU types; the text itself where it names none
-- or cannot be read.
function M.untyped(spec)
  local total = M.parse(spec)
  if not total or #M.types(spec) == 0 then
    return spec
  end
  local items, place, head = {}, nil, nil
  for item in gmatch(spec, "[^,]+") do
    local name, _, joint = gpu_item(item)
    if not name then
      items[#items + 1] = item
    elseif not place then
      place, head = #items + 1, name .. joint
      items[place] = ""
    end
  end
  -- Slurm refuses items with a type beside items without one, so all GPUs become one item.
  items[place] = head .. total
  return table.concat(items, ",")
end

-- untyped_count("v100:2") -> "2": the form of --gpus and of the variables SLURM_GPUS...;
-- nil where nothing is to be changed.
function M.untyped_count(text)
  local total, typed = 0, false
  for item in gmatch(text, "[^,]+") do
    local gpu_type, count = match(item, "^(%a[%w_.%-]*):(%d+)$")
    count = tonumber(count or match(item, "^%d+$"))
    if gpu_type then
      typed = true
    elseif find(item, "^%a[%w_.%-]*$") then
      -- A type alone is one of it.
      count, typed = 1, true
    elseif not count then
      return nil
    end
    total = total + count
  end
  return typed and tostring(total) or nil
end

-- with_feature(features, model) -> features that ask for the model, too; nil where the old
-- text has a form that cannot be joined with "&" (counts, choices in brackets).
function M.with_feature(features, model)
  if features == nil or features == "" then
    return model
  elseif find(features, "[%[%]%*]") then
    return nil
  elseif find("&" .. features .. "&", "&" .. model .. "&", 1, true) then
    return features
  elseif find(features, "|", 1, true) then
    return "(" .. features .. ")&" .. model
  end
  return features .. "&" .. model
end

return M
