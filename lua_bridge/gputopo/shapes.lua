-- Jobs without GPUs whose shape (nodes, GPUs per node) is to be chosen: how they are recognised,
-- and what is written into their AdminComment when no engine answers.
local request = require("gputopo.request")

local M = {}

local find, gsub = string.find, string.gsub

M.HELD = "gpu-topo: the engine that chooses this job's shape does not answer; the job is held until "
  .. "it does. Or cancel it and ask for GPUs yourself (--gpus, --gres)"
M.NOT_CHOSEN = "gpu-topo: the engine that chooses this job's shape does not answer; ask for GPUs "
  .. "yourself (--gpus, --gres), or submit again later"
local NOTE = "held until the engine chooses its shape"

-- Does a hint ask for a shape? It names the policy, or gives iterations, which no other policy
-- reads. The engine says what is wrong with it.
function M.are_asked_for(hint)
  local plain = "," .. gsub(hint, " ", "") .. ","
  return find(plain, ",policy=genie,", 1, true) ~= nil or find(plain, ",iterations=", 1, true) ~= nil
end

-- held(job, hint) -> what the AdminComment of a job says that waits for the engine
function M.held(job, hint)
  local nodes, max_nodes, tasks, tasks_per_node = request.left_open(job)
  local cpus = job.cpus_per_task
  local words = "none"
  local function add(key, number)
    if number and number > 0 and number < 65534 then
      words = words .. " " .. key .. "=" .. string.format("%d", number)
    end
  end
  add("nodes", nodes)
  add("max_nodes", max_nodes)
  add("tasks", tasks)
  add("tasks_per_node", tasks_per_node)
  add("cpus_per_task", cpus)
  if job.priority == 0 then
    words = words .. " held"
  end
  return "[gpu-topo: " .. hint .. " | " .. NOTE .. "] [gpu-shape: " .. words .. "]"
end

return M
