-- An update in the slots mode. A job the engine looks after says so in its AdminComment
-- ("[gpu-slots: gated ...]"); its user may not open the gate nor pick its GPUs or nodes.
local slots = require("gputopo.slots")

local M = {}

local find, gsub, match = string.find, string.gsub, string.match

local NO_VAL = 4294967294
local MARK = "[gpu-slots:"
local CLOSED = "gpu-topo: this job waits for its GPUs; its %s cannot be changed by users. "
  .. "Hold, release, time limit, name and cancelling work; or cancel it and submit it again"

-- Fields by what a user calls them; a text counts as soon as it is given.
local TEXTS = {
  { "tres_per_node", "GPU request" }, { "tres_per_job", "GPU request" },
  { "tres_per_task", "GPU request" }, { "tres_per_socket", "GPU request" },
  { "req_nodes", "nodes" }, { "exc_nodes", "nodes" }, { "features", "constraint" },
}
local REQUESTS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local COUNTS = { "min_nodes", "max_nodes" }

local function is_pending(record)
  return (record.job_state or 0) % 256 == 0
end

local ONE_GPU = "gpu-topo: %s is one particular GPU, and the engine chooses those"

local function named_slot(job)
  for _, field in ipairs(REQUESTS) do
    for _, gpu_type in ipairs(job[field] and slots.types(job[field]) or {}) do
      if slots.is_slot(gpu_type) then
        return gpu_type
      end
    end
  end
end

-- refusal(job, record) -> the line for a user whose update names particular GPUs or touches
-- what is the engine's, or nil. The caller lets root and SlurmUser pass.
function M.refusal(job, record)
  local slot = named_slot(job)
  if slot then
    return string.format(ONE_GPU, string.sub(slot, 1, 120))
  elseif not find(record.admin_comment or "", MARK, 1, true) or not is_pending(record) then
    return nil
  elseif (job.begin_time or 0) > 0 then
    return string.format(CLOSED, "start time")
  end
  for _, field in ipairs(TEXTS) do
    if job[field[1]] ~= nil then
      return string.format(CLOSED, field[2])
    end
  end
  for _, name in ipairs(COUNTS) do
    if (job[name] or NO_VAL) < NO_VAL then
      return string.format(CLOSED, "number of nodes")
    end
  end
end

-- pinned(job) -> the nodes that an update's own AdminComment pins the job to, or nil.
-- scontrol refuses ReqNodeList= for the first component of a heterogeneous job; set here,
-- Slurm takes it.
function M.pinned(job)
  local comment = job.admin_comment
  if not comment or job.req_nodes then
    return nil
  end
  local inside = match(comment, "%[gpu%-slots:([^%]]*)%]")
  local nodes = inside and match(inside .. " ", " pin=(%S+) ")
  return nodes and gsub(nodes, "%%(%x%x)", function(hex)
    return string.char(tonumber(hex, 16))
  end) or nil
end

return M
