-- Checks a complete "ok" reply and then applies it: all of it or nothing.
local comment = require("gputopo.comment")

local M = {}

local find, match = string.find, string.match
local pairs = pairs

-- The fields of job_desc an engine may set; these are strings, "" clears one.
local SETTABLE = {
  admin_comment = true,
  tres_per_node = true,
  tres_per_job = true,
  tres_per_task = true,
  req_nodes = true,
  exc_nodes = true,
  features = true,
}
-- ... and in the slots mode besides: "text" as above, "number" in decimal.
local SLOTS_SETTABLE = {
  tres_per_socket = "text",
  tres_bind = "text",
  cpus_per_tres = "text",
  mem_per_tres = "text",
  begin_time = "number",
  min_nodes = "number",
  max_nodes = "number",
  min_cpus = "number",
  cpus_per_task = "number",
  pn_min_cpus = "number",
  pn_min_memory = "number",
}
-- ... and for a job whose shape is chosen.
local SHAPE_SETTABLE = {
  min_nodes = "number",
  max_nodes = "number",
  num_tasks = "number",
  min_cpus = "number",
  pn_min_cpus = "number",
}
local LONGEST_VALUE = 4096

-- checked_field(field, value, is_slots, is_shape) -> value to set | nil, reason
local function checked_field(field, value, is_slots, is_shape)
  local kind = SETTABLE[field] and "text" or (is_slots and SLOTS_SETTABLE[field])
    or (is_shape and SHAPE_SETTABLE[field])
  if not kind then
    return nil, "the field " .. field .. " is not one the bridge may set"
  elseif field == "admin_comment" then
    if not comment.are_brackets(value, is_slots) then
      return nil, "admin_comment is not of the form [gpu-topo: ...]"
        .. (is_slots and " [gpu-slots: ...]" or "")
    end
  elseif kind == "number" then
    -- Slurm's marks for "no value" are below this, too.
    value = find(value, "^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?$") and tonumber(value)
    return value or nil, field .. " is not a number"
  end
  return value
end

-- checked(fields, is_slots, is_shape) -> plan {set = {field -> value}, env = {name -> text} or
-- nil, message = text or nil, token = text or nil} | nil, reason
function M.checked(fields, is_slots, is_shape)
  local plan = { set = {} }
  for key, value in pairs(fields) do
    local field, name = match(key, "^set%.(.*)$"), match(key, "^env%.(.*)$")
    if (field or name or key == "message") and (#value > LONGEST_VALUE or find(value, "[%c]")) then
      return nil, key .. " is too long or holds a control character"
    elseif field then
      local checked, reason = checked_field(field, value, is_slots, is_shape)
      if checked == nil then
        return nil, reason
      end
      plan.set[field] = checked
    elseif name then
      if not find(name, "^[%a_][%w_]*$") then
        return nil, "'" .. name .. "' is not the name of an environment variable"
      end
      plan.env = plan.env or {}
      plan.env[name] = value
    elseif key == "message" then
      plan.message = value
    elseif key == "token" then
      if not find(value, "^%w+$") then
        return nil, "the token is not of letters and digits"
      end
      plan.token = value
    elseif key ~= "id" and key ~= "keep_s" then
      return nil, "the key " .. key .. " is not known"
    end
  end
  if plan.token and not find(plan.set.admin_comment or "", plan.token, 1, true) then
    return nil, "the token does not stand in admin_comment"
  end
  return plan
end

local function apply_environment(job, env)
  -- srun and salloc send no environment, and slurmctld complains in its log about every
  -- attempt to read one. Only a batch job has a script.
  if job.script == nil then
    return
  end
  local environment = job.environment
  for name, value in pairs(env) do
    environment[name] = value
  end
end

local function apply_fields(job, set, before)
  for field, value in pairs(set) do
    local old = job[field]
    if field == "admin_comment" then
      -- Reading a script copies it, so it is read only where a loan depends on it.
      if comment.inside(value, "gpu-loan") and job.script == nil then
        value = comment.without_loan(value)
      end
      value = value ~= "" and comment.merged(old, value) or nil
    end
    if value ~= nil and value ~= old then
      before[field] = old or ""
      job[field] = value
    end
  end
end

-- Applies a checked plan. Should Slurm raise an error in the middle, what was set is put
-- back; returns true, or false and the error.
function M.apply(job, plan)
  local before = {}
  local ok, failure = pcall(apply_fields, job, plan.set, before)
  if ok and plan.env then
    ok, failure = pcall(apply_environment, job, plan.env)
  end
  if not ok then
    for field, value in pairs(before) do
      pcall(function() job[field] = value end)
    end
    return false, failure
  end
  return true
end

return M
