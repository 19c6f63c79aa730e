-- What users may not change of their own jobs while the engine decides when these start. By its
-- AdminComment such a job waits behind a gate ("[gpu-slots: gated ...]"), waits for its donors
-- ("[gpu-loan: meets ...]"), or is a donor ("[gpu-donor: ...]"). A donor starts before all other
-- jobs, so it must stay exactly what the engine submitted.
local codec = require("gputopo.codec")
local comments = require("gputopo.comment")
local gres = require("gputopo.gres")

local M = {}

local match = string.match

local LARGEST_MEMORY_MB = 2 ^ 62
local UNSET_16, UNSET_32 = 65534, 4294967294
local CLOSED = "gpu-topo: this job waits for its GPUs; its %s cannot be changed by users. "
  .. "Hold, release, time limit, name and cancelling work; or cancel it and submit it again"
local LENDING = "gpu-topo: this job lends its GPUs to another of your jobs; its %s cannot be "
  .. "changed. Cancelling works"
local OUTDATED = "gpu-topo: the job's request was changed a moment ago"
local ONE_GPU = "gpu-topo: %s is one particular GPU, and the engine chooses those"

-- Fields of an update by what a user calls them, in the order of the answer.
local GPUS = { "GPU request", unpack(gres.FIELDS) }
local COUNT = { "number of nodes", "min_nodes", "max_nodes" }
local BEHIND_A_GATE = {
  { "start time", "begin_time" }, GPUS, { "nodes", "req_nodes", "exc_nodes" },
  { "constraint", "features" }, COUNT,
}
local ON_LOAN = {
  { "constraint", "prefer", "contiguous", "req_switch" },
  { "tasks", "num_tasks", "ntasks_per_node", "ntasks_per_socket", "ntasks_per_core",
    "ntasks_per_gpu", "array_inx" },
  { "CPUs", "min_cpus", "max_cpus", "pn_min_cpus", "cpus_per_task", "cpus_per_tres",
    "sockets_per_node", "cores_per_socket", "threads_per_core" },
  { "memory", "min_mem_per_node", "min_mem_per_cpu", "mem_per_tres", "pn_min_tmp_disk" },
  { "partition", "partition" }, { "account", "account" }, { "QOS", "qos" },
  { "reservation", "reservation" }, { "dependency", "dependency" }, { "licenses", "licenses" },
  { "burst buffer", "burst_buffer" }, { "sharing of nodes", "shared" }, { "nice value", "nice" },
}
local OF_A_DONOR = {
  { "time limit", "time_limit", "time_min" }, { "priority", "priority" },
  { "requeueing", "requeue" }, { "boot delay", "delay_boot" },
}

-- Does an update set this field?
local function is_set(field, value)
  if type(value) ~= "number" then
    return value ~= nil
  elseif field == "begin_time" then
    return value > 0
  end
  return value ~= UNSET_16 and value ~= UNSET_32 and value < LARGEST_MEMORY_MB
end

-- touched(job, list, ...) -> the first thing in the lists that the update sets, in a user's
-- words; nil for none
local function touched(job, ...)
  for _, list in ipairs({ ... }) do
    for _, group in ipairs(list) do
      for i = 2, #group do
        if is_set(group[i], job[group[i]]) then
          return group[1]
        end
      end
    end
  end
end

-- refusal(job, record, is_slots) -> the line for a user whose update changes what only the engine
-- may change, or nil. Not to be called for root and SlurmUser, who may change all.
function M.refusal(job, record, is_slots)
  local slot = is_slots and gres.slot_of(job)
  if slot then
    return string.format(ONE_GPU, string.sub(slot, 1, 120))
  end
  local said = record.admin_comment
  if comments.inside(said, "gpu-donor") then
    local what = touched(job, BEHIND_A_GATE, ON_LOAN, OF_A_DONOR)
    return what and string.format(LENDING, what)
  elseif (record.job_state or 0) % 256 ~= 0 then
    return nil
  end
  local gate, loan = comments.inside(said, "gpu-slots"), comments.inside(said, "gpu-loan")
  local what
  if match(" " .. (gate or loan or ""), " loan=") then
    what = touched(job, BEHIND_A_GATE, ON_LOAN)
  elseif gate then
    what = touched(job, BEHIND_A_GATE)
  end
  return what and string.format(CLOSED, what)
end

-- What of a gated job's request its record has, too, so that its release goes by the record.
local RECORDED = {
  GPUS, COUNT, { "nodes", "req_nodes" }, { "CPUs", "cpus_per_tres", "cpus_per_task" },
}

-- with_change(job, record) -> the AdminComment by which the engine sees that root changed a gated
-- job's request, which it would otherwise undo; nil where this update is no such change. The
-- second value is a refusal, for an update of the engine's that rests on the request as it was.
-- The engine's own changes bring an AdminComment. In Slurm 22.05 not all of them do.
function M.with_change(job, record)
  local gate = comments.inside(record.admin_comment, "gpu-slots")
  if not gate or not match(gate, "^gated ") or match(gate, "tp.=gres:") then
    return nil
  end
  local is_changed = match(gate, " changed=1") ~= nil
  local new = comments.inside(job.admin_comment, "gpu-slots")
  if new then
    return nil, is_changed and not match(new, " changed=1") and OUTDATED or nil
  elseif job.admin_comment or is_changed or not touched(job, RECORDED) then
    return nil
  end
  return comments.merged(record.admin_comment, "[gpu-slots: " .. gate .. " changed=1]")
end

-- pinned(job, record) -> the nodes that an update's own AdminComment pins the job to, or nil.
-- scontrol refuses ReqNodeList= for the first component of a heterogeneous job; set here,
-- Slurm takes it. Only the engine's own updates may be asked about: whoever else may write
-- AdminComment may have copied it from anywhere.
function M.pinned(job, record)
  if (record.het_job_id or 0) == 0 or record.het_job_offset ~= 0 or job.req_nodes then
    return nil
  end
  local inside = comments.inside(job.admin_comment, "gpu-slots")
  local nodes = inside and match(" " .. inside .. " ", " pin=(%S+) ")
  return nodes and codec.unescaped(nodes)
end

return M
