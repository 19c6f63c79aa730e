-- Checks a complete "ok" reply and then applies it: all of it or nothing.
local comment = require("gputopo.comment")

local M = {}

local find, gmatch, match = string.find, string.gmatch, string.match
local pairs = pairs

-- The fields of job_desc that an engine may set: in any case, in the slots mode, or for a job whose
-- shape is chosen. "" clears a text.
local ALWAYS, IN_SLOTS, FOR_SHAPE, FOR_BOTH = "always", "slots", "shape", "slots shape"
local TEXTS, NUMBERS = {}, {}

-- Lists fields of one kind, which may be set at one time.
local function may_set(kind, when, fields)
  for field in gmatch(fields, "[%w_]+") do
    kind[field] = when
  end
end

may_set(TEXTS, ALWAYS, "admin_comment tres_per_node tres_per_job tres_per_task")
may_set(TEXTS, ALWAYS, "req_nodes exc_nodes features")
may_set(TEXTS, IN_SLOTS, "tres_per_socket tres_bind cpus_per_tres mem_per_tres")
may_set(NUMBERS, IN_SLOTS, "begin_time cpus_per_task pn_min_memory")
may_set(NUMBERS, FOR_BOTH, "min_nodes max_nodes min_cpus pn_min_cpus")
may_set(NUMBERS, FOR_SHAPE, "num_tasks")
local LONGEST_VALUE = 4096
local NO_VAL = 4294967294
local HET = "the components of a heterogeneous job start together, each on its own request alone"
local INTERACTIVE = "the batch step meets the donors, and jobs of srun and salloc have none; "
  .. "use sbatch"

-- checked_field(field, value, is_slots, is_shape) -> value to set | nil, reason
local function checked_field(field, value, is_slots, is_shape)
  local when = TEXTS[field] or NUMBERS[field] or ""
  local is_allowed = when == ALWAYS or (is_slots and find(when, IN_SLOTS))
    or (is_shape and find(when, FOR_SHAPE))
  if not is_allowed then
    return nil, "the field " .. field .. " is not one the bridge may set"
  elseif field == "admin_comment" and not comment.are_brackets(value, is_slots) then
    return nil, "admin_comment is not of the form [gpu-topo: ...]"
      .. (is_slots and " [gpu-slots: ...]" or "")
  elseif NUMBERS[field] then
    -- Ten digits at most, which allows Slurm's marks for "no value".
    value = find(value, "^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?$") and tonumber(value)
    return value or nil, field .. " is not a number"
  end
  return value
end

-- checked(fields, is_slots, is_shape) -> plan | nil, reason
--   plan: set {field -> value}; besides, where the reply has them, env {name -> text}, message and
--   token, which are texts
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

-- not_lent(job, plan) -> why this job cannot have the loan that the plan allows it, or nil
function M.not_lent(job, plan)
  if not comment.inside(plan.set.admin_comment or "", "gpu-loan") then
    return nil
  elseif (job.het_job_offset or NO_VAL) < NO_VAL then
    return HET
  end
  -- Reading a script copies it, so it is read only where a loan depends on it.
  return job.script == nil and INTERACTIVE or nil
end

local function apply_fields(job, set, before)
  for field, value in pairs(set) do
    local old = job[field]
    if field == "admin_comment" then
      if M.not_lent(job, { set = set }) then
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
