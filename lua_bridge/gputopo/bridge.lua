-- The bridge between slurmctld's job_submit/lua and the placement engine. It carries one
-- request to the engine and its answer back; it decides nothing, and whatever goes wrong
-- here, the job is submitted as if the bridge were not there.
--
-- A site with its own job_submit.lua calls these two from its functions:
--   local gputopo = require("gputopo.bridge")
--   return gputopo.job_submit(job_desc, part_list, submit_uid)
--   return gputopo.job_modify(job_desc, job_rec, part_list, submit_uid)
local asking = require("gputopo.engine.asking")
local codec = require("gputopo.codec")
local comment = require("gputopo.comment")
local config = require("gputopo.config")
local gres = require("gputopo.gres")
local guard = require("gputopo.guard")
local hints = require("gputopo.hint")
local reply = require("gputopo.reply")
local request = require("gputopo.request")
local shapes = require("gputopo.shapes")
local slots_submit = require("gputopo.slots_submit")

local M = {}

local NO_VAL = 4294967294
local LONGEST_MESSAGE = 512
local CPU_ONLY = "gpu-topo: this job asks for no GPUs, so a placement hint has no meaning; "
  .. "ask for GPUs (--gres, --gpus, ...) or leave the hint out"
local NOT_LENT = "gpu-topo: GPUs of other nodes are not lent to this job: "
local PARTS = "it asks for parts of GPUs (shards, MPS, MIG), and whole ones alone are lent"
local FIXED_BRACKET = "gpu-topo: the hint of a submitted job can be changed by an administrator "
  .. "only; cancel the job and submit it again"

local engine, is_slots
local was_configured = false

local function log(text)
  slurm.log_info("%s", "gputopo: " .. codec.one_line(text, 1024))
end

local function refuse(line)
  slurm.log_user("%s", codec.one_line(line, LONGEST_MESSAGE))
  return slurm.ERROR
end

-- configure([directory]): reads gputopo-bridge.conf from the directory, else from that of
-- $SLURM_CONF, else from /etc/slurm. The first submit calls it if nobody has.
function M.configure(directory)
  was_configured = true
  local beside_slurm_conf = string.match(os.getenv("SLURM_CONF") or "", "^(.*)/[^/]*$")
  local paths = {}
  for _, place in ipairs({ directory or "", beside_slurm_conf or "", "/etc/slurm" }) do
    if place ~= "" then
      paths[#paths + 1] = place .. "/gputopo-bridge.conf"
    end
  end
  local settings, complaints = config.load(paths)
  for _, complaint in ipairs(complaints) do
    log(complaint)
  end
  is_slots = settings.enforcement == "slots"
  local failure
  engine, failure = asking.new(settings, log)
  if failure and not is_slots then
    error(failure, 0)
  elseif failure then
    -- Requests are still rewritten: in the slots mode Slurm can run no job that names a model.
    log("the engine is not asked: " .. failure)
  end
end

-- Applies a plan and tells the user what the engine has to say; true when it was applied.
local function applied(job, plan)
  local ok, failure = reply.apply(job, plan)
  if not ok then
    log("the engine's reply could not be applied: " .. tostring(failure))
  elseif plan.message then
    slurm.log_user("%s", codec.one_line(plan.message, LONGEST_MESSAGE))
  end
  return ok
end

-- A job whose shape is to be chosen has no GPUs until the engine chose. It must not run without
-- them, so it is held; the engine gives it a shape and releases it.
local function held(job, hint)
  local text = shapes.held(job, hint)
  if not comment.are_brackets(text) then
    return refuse(CPU_ONLY)
  end
  local ok = reply.apply(job, { set = { admin_comment = text, priority = 0 } })
  if not ok then
    return refuse(shapes.NOT_CHOSEN)
  end
  slurm.log_user("%s", shapes.HELD)
  return slurm.SUCCESS
end

local function is_component(job)
  return (job.het_job_offset or NO_VAL) < NO_VAL
end

-- A job without GPUs. Its hint may ask for a shape to be chosen; in a heterogeneous job the hint
-- may be meant for another component. A donor asks for no GPUs either; its record is written at
-- once, so that its user can never change it (guard.lua).
local function submit_without_gpus(job, part_list)
  local said = job.comment
  local parent = said and string.match(said, "^gpu%-donor of=(%d%d?%d?%d?%d?%d?%d?%d?%d?%d?)$")
  if parent then
    job.admin_comment = comment.merged(job.admin_comment, "[gpu-donor: of=" .. parent .. "]")
    return slurm.SUCCESS
  end
  local hint, refusal = hints.asked(said, job.spank_job_env)
  if not (hint or refusal) or is_component(job) then
    return slurm.SUCCESS
  elseif refusal or not shapes.are_asked_for(hint) then
    return refuse(CPU_ONLY)
  end
  local is_batch = job.script ~= nil
  local more = slots_submit.keys(job, {}, is_batch, {}, "node")
  local verb, plan = engine:ask(request.shape_line(job, part_list, hint), more, { is_shape = true })
  if verb == "refuse" then
    return refuse(plan)
  elseif verb == "pass" then
    return refuse(CPU_ONLY)
  elseif type(plan) == "table" and applied(job, plan) then
    return slurm.SUCCESS
  end
  return is_batch and held(job, hint) or refuse(shapes.NOT_CHOSEN)
end

-- slurmctld's own user, who may write AdminComment as root may; read at its first use.
local own_uid
local function is_slurm_user(uid)
  if not own_uid then
    local file = io.open("/proc/self/status", "r")
    own_uid = file and tonumber(string.match(file:read("*a"), "\nUid:%s+%d+%s+(%d+)")) or 0
    if file then
      file:close()
    end
  end
  return uid == own_uid
end

local function may_write_admin_comment(uid)
  return uid == 0 or is_slurm_user(uid)
end

-- In the slots mode a job's request is rewritten without its model, engine or not.
-- -> the keys to be added to the question (nil: no question), refusal
local function without_model(job, submit_uid, ask)
  local asked, is_batch = slots_submit.read(job)
  if gres.slot_of(asked) and may_write_admin_comment(submit_uid) then
    return nil
  end
  local set, refusal = slots_submit.normalised(job, asked, is_batch)
  if refusal then
    return nil, refusal
  end
  local counted = slots_submit.tasks_of_gpus(job, ask, is_batch)
  for field, value in pairs(counted or {}) do
    set[field] = value
  end
  local env = is_batch and slots_submit.environment(job.environment, asked) or nil
  local ok, failure = reply.apply(job, { set = set, env = env })
  if not ok then
    log("a job's request could not be rewritten: " .. tostring(failure))
    return nil
  end
  return counted and slots_submit.keys(job, asked, is_batch, set)
end

-- A site's own script may copy a user's text into AdminComment: what looks like a record of ours
-- there is removed.
local function drop_foreign_records(job, submit_uid)
  local said = job.admin_comment
  if said and string.find(said, "[gpu-", 1, true) and not may_write_admin_comment(submit_uid) then
    job.admin_comment = #said <= comment.LONGEST and comment.without_ours(said) or ""
  end
end

-- A job of parts of GPUs is left alone, but for the line that a hint for a loan gets.
local function tell_parts(job)
  local hint = hints.asked(job.comment, job.spank_job_env)
  local wish = hint and string.match(hint, "remote=(%a+)")
  if wish and wish ~= "no" then
    slurm.log_user("%s", NOT_LENT .. PARTS)
  end
end

local function submit(job, part_list, submit_uid)
  drop_foreign_records(job, submit_uid)
  local ask = request.asked(job) or request.asked_by_tasks(job)
  if not ask then
    return submit_without_gpus(job, part_list)
  elseif ask.foreign then
    tell_parts(job)
    return slurm.SUCCESS
  end
  local hint, refusal, by_option = hints.asked(job.comment, job.spank_job_env)
  if refusal then
    return refuse(refusal)
  end
  local more = ""
  if is_slots then
    more, refusal = without_model(job, submit_uid, ask)
    if refusal then
      return refuse(refusal)
    end
    -- A job that cannot have slots is sent only for its hint to be checked.
    more = more or (hint and hint ~= "" and "" or nil)
  end
  local line = more and request.line(job, part_list, ask, hint)
  local verb, plan = engine:ask(line, more, { is_locked = is_component(job) })
  if verb == "refuse" then
    return refuse(plan)
  elseif not verb and by_option and comment.are_brackets("[gpu-topo: " .. hint .. "]") then
    -- The engine checks the hint when the job starts. Slurm keeps a comment until then, but not
    -- an option: it is written into AdminComment.
    plan = { set = { admin_comment = "[gpu-topo: " .. hint .. "]" } }
  end
  if type(plan) == "table" then
    applied(job, plan)
    -- An R queue's job did not ask, and is not told.
    local why = hint and string.find(hint, "remote=", 1, true) and reply.not_lent(job, plan)
    if why then
      slurm.log_user("%s", NOT_LENT .. why)
    end
  end
  return slurm.SUCCESS
end

-- The job after the update: the fields that the update sets, and the record's others.
local function updated(job, record)
  return setmetatable({}, {
    __index = function(_, field)
      local value = job[field]
      if value == nil or value == NO_VAL or field == "user_id" then
        local recorded = record[field]
        if recorded ~= nil then
          return recorded
        end
      end
      return value
    end,
  })
end

-- The refusal of an update that changes what only the engine may change, or nil.
local function guarded_parts(job, record, submit_uid)
  if not may_write_admin_comment(submit_uid) then
    return guard.refusal(job, record, is_slots)
  end
  if not is_slots then
    return nil
  end
  local changed, refusal = guard.with_change(job, record)
  if changed then
    job.admin_comment = changed
  end
  local nodes = is_slurm_user(submit_uid) and guard.pinned(job, record)
  if nodes then
    job.req_nodes = nodes
  end
  return refusal
end

-- The engine has accepted a new hint: its bracket replaces the old one.
local function replace_hint(job, record, bracket, submit_uid)
  local present = comment.hint_in(record.admin_comment)
  if bracket == "" or present == comment.hint_in(bracket) then
    return slurm.SUCCESS
  elseif may_write_admin_comment(submit_uid) then
    job.admin_comment = comment.merged(job.admin_comment or record.admin_comment, bracket)
  elseif present then
    -- Slurm would deny the whole update, and the old bracket would go on to count.
    return refuse(FIXED_BRACKET)
  end
  return slurm.SUCCESS
end

-- An update of a job: what only the engine may change is refused; a new hint in the comment of a
-- pending job is checked like that of a submit.
local function modify(job, record, part_list, submit_uid)
  local closed = guarded_parts(job, record, submit_uid)
  if closed then
    return refuse(closed)
  elseif not hints.is_in(job.comment) or (record.job_state or 0) % 256 ~= 0 then
    return slurm.SUCCESS
  end
  -- The option a job was submitted with stays with it, and must not contradict the comment.
  local hint, refusal = hints.asked(job.comment, record.spank_job_env)
  if refusal then
    return refuse(refusal)
  end
  local after = updated(job, record)
  local ask = request.asked(after)
  if not ask then
    -- The record does not say what --ntasks-per-gpu asked for; its TRES do.
    local has_gpus = string.find(record.tres_fmt_req_str or "", "gres/gpu", 1, true)
    return has_gpus and slurm.SUCCESS or refuse(CPU_ONLY)
  elseif ask.foreign then
    return slurm.SUCCESS
  end
  local is_shaped = comment.inside(record.admin_comment, "gpu-shape")
  local line = request.line(after, part_list, ask, hint)
  local verb, plan = engine:ask(line, is_shaped and " change=1" or "", { is_locked = true })
  if verb == "refuse" then
    return refuse(plan)
  elseif verb == "ok" then
    local bracket = comment.without_loan(plan.set.admin_comment or "")
    return replace_hint(job, record, bracket, submit_uid)
  end
  return slurm.SUCCESS
end

local function guarded(hook, ...)
  local ok, result = true, nil
  if not was_configured then
    ok, result = pcall(M.configure)
  end
  if ok then
    ok, result = pcall(hook, ...)
  end
  if ok then
    return result
  end
  pcall(log, "error in the bridge, the job goes on without it: " .. tostring(result))
  return slurm.SUCCESS
end

function M.job_submit(job_desc, part_list, submit_uid)
  return guarded(submit, job_desc, part_list, submit_uid)
end

function M.job_modify(job_desc, job_rec, part_list, submit_uid)
  return guarded(modify, job_desc, job_rec, part_list, submit_uid)
end

return M
