-- Texts of the slots mode, where every GPU of a node is a GRES type of its own ("v100.s3")
-- and a model is a node feature ("v100"): a user's request by model becomes one for any GPU
-- on nodes with that feature, which Slurm can run with or without an engine.
local gres = require("gputopo.gres")

local M = {}

local find, gmatch, match = string.find, string.gmatch, string.match

-- "s3", "v100.s3": one particular GPU.
function M.is_slot(gpu_type)
  return find(gpu_type, "^s%d+$") ~= nil or find(gpu_type, "%.s%d+$") ~= nil
end

-- What stands between "gpu" and the count of one item, and what joins the count: "gres/gpu",
-- "v100", ":"; nil for an item of another kind. The type is nil where there is none.
local function gpu_item(item)
  local name, rest = match(item, "^(gres[/:]gpu)(.*)$")
  if not name then
    name, rest = match(item, "^(gpu)(.*)$")
  end
  if not name or (rest ~= "" and not find(rest, "^[:=]")) then
    return nil
  elseif rest == "" or find(rest, "^[:=]%d+%a?$") then
    return name, nil, match(rest, "^[:=]") or ":"
  end
  local gpu_type, joint = match(rest, "^:([^:=]+)([:=]?)")
  return name, gpu_type, joint ~= "" and joint or ":"
end

-- types(spec) -> the GPU types a request names: a list without doubles
function M.types(spec)
  local found, seen = {}, {}
  for item in gmatch(spec, "[^,]+") do
    local _, gpu_type = gpu_item(item)
    if gpu_type and not seen[gpu_type] then
      seen[gpu_type] = true
      found[#found + 1] = gpu_type
    end
  end
  return found
end

-- untyped(spec) -> the same request without GPU types; the text itself where it names none
-- or cannot be read.
function M.untyped(spec)
  local total = gres.parse(spec)
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
  -- Slurm refuses a type and none beside each other, so all GPUs become one item.
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
