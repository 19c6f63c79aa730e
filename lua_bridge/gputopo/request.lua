-- Turns a job description into one request line of the engine's protocol. The line is the
-- same whether the user wrote --gres, --gpus, --gpus-per-node or --gpus-per-task.
--
-- Every read of a job_desc field crosses into slurmctld, so a field is read once and only
-- when it is needed. Not read on purpose: user_name, which may ask the directory service
-- (LDAP) while slurmctld holds its locks, and script, which copies the whole script.
local codec = require("gputopo.codec")
local gres = require("gputopo.gres")

local M = {}

local encode = codec.encode
local parse_gres = gres.parse
local ceil, find, floor, match, sub = math.ceil, string.find, math.floor, string.match, string.sub

local LONGEST_NAME = 256
-- NO_VAL and INFINITE of 32 bits end at 0xfffffffd, those of 16 bits are 0xfffe and 0xffff.
local FIRST_SPECIAL_32, FIRST_SPECIAL_16 = 4294967293, 65534

-- A count the user gave, or nil (unset, zero, or one of Slurm's marks for "no value").
local function count32(value)
  return value and value > 0 and value < FIRST_SPECIAL_32 and value or nil
end

local function count16(value)
  return value and value > 0 and value < FIRST_SPECIAL_16 and value or nil
end
M.count32, M.count16 = count32, count16

-- Adds what one TRES field asks for. ask.foreign marks GPUs that are not ours to place.
local function take(ask, key, spec)
  if not spec or not (find(spec, "gpu", 1, true) or find(spec, "mps", 1, true)
      or find(spec, "shard", 1, true)) then
    return
  end
  local count, gpu_type = parse_gres(spec)
  if not count then
    ask.foreign = true
  elseif count > 0 then
    ask[key] = count
    ask.any = true
    if ask.type and ask.type ~= gpu_type then
      gpu_type = ""
    end
    ask.type = gpu_type
  end
end

-- asked(job) -> what GPUs a job description asks for, or nil when it asks for none.
-- job_desc.gres is only another name for tres_per_node (18.08 and later), so not read.
function M.asked(job)
  local per_node, per_job = job.tres_per_node, job.tres_per_job
  local per_task, per_socket = job.tres_per_task, job.tres_per_socket
  if not (per_node or per_job or per_task or per_socket) then
    return nil
  end
  local ask = {}
  take(ask, "per_node", per_node)
  take(ask, "per_job", per_job)
  take(ask, "per_task", per_task)
  take(ask, "per_socket", per_socket)
  return (ask.any or ask.foreign) and ask or nil
end

-- --ntasks-per-gpu with a task count and no GPU request: Slurm derives the GPUs.
function M.asked_by_tasks(job)
  local tasks_per_gpu = count16(job.ntasks_per_gpu)
  local tasks = tasks_per_gpu and count32(job.num_tasks)
  if tasks then
    return { per_job = floor(tasks / tasks_per_gpu), any = true, type = "" }
  end
end

local function node_range(job, ask)
  local least, most = count32(job.min_nodes), count32(job.max_nodes)
  if not least then
    least = ask.per_job and ask.per_node and ceil(ask.per_job / ask.per_node) or 1
  end
  return least, most and math.max(most, least)
end

local function task_count(job, ask, nodes)
  local tasks_per_gpu = count16(job.ntasks_per_gpu)
  local gpus = ask.per_job or (ask.per_node and ask.per_node * nodes)
  if tasks_per_gpu and gpus then
    return gpus * tasks_per_gpu
  end
  local tasks = count32(job.num_tasks)
  if tasks then
    return tasks
  end
  local per_node = count16(job.ntasks_per_node)
  if per_node then
    return nodes * per_node
  elseif ask.per_job and ask.per_task then
    return floor(ask.per_job / ask.per_task)
  end
  return nodes
end

local function per_node_from_sockets(job, ask)
  local sockets = ask.per_socket and count16(job.sockets_per_node)
  return sockets and ask.per_socket * sockets
end

-- shape(job, ask) -> gpus, per_node, nodes, max_nodes, tasks
--   gpus and per_node are 0 where they cannot be known before the job starts. They hold
--   for the least number of nodes the user allowed (1 where none was given). max_nodes is 0 where
--   the user gave no bound.
function M.shape(job, ask)
  local nodes, max_nodes = node_range(job, ask)
  local tasks = task_count(job, ask, nodes)
  local per_node = ask.per_node or per_node_from_sockets(job, ask)
  local gpus = ask.per_job or (ask.per_task and ask.per_task * tasks)
  if nodes == (max_nodes or nodes) then
    gpus = gpus or (per_node and per_node * nodes)
    if not per_node and gpus and gpus % nodes == 0 then
      per_node = gpus / nodes
    end
  end
  return gpus or 0, per_node or 0, nodes, max_nodes or 0, tasks
end

-- The partition the job goes to when the user named none.
local default_partition
local function partition_of(job, part_list)
  local name = job.partition
  if name or not part_list then
    return name
  end
  local known = default_partition and part_list[default_partition]
  if known and known.flag_default == 1 then
    return default_partition
  end
  default_partition = nil
  for candidate, partition in pairs(part_list) do
    if partition.flag_default == 1 then
      default_partition = candidate
      break
    end
  end
  return default_partition
end

-- " key=value" with the text bounded before it is encoded; "" when there is none.
local function field(key, text)
  if text == nil or text == "" then
    return ""
  end
  if #text > LONGEST_NAME then
    text = sub(text, 1, LONGEST_NAME)
  end
  return key .. encode(text)
end

-- A list of partitions cut inside a name would name another one: cut at a comma.
local function whole_names(list)
  if list and #list > LONGEST_NAME then
    return match(sub(list, 1, LONGEST_NAME), "^(.*),") or ""
  end
  return list
end

local function who_and_where(job, part_list)
  return " uid=" .. job.user_id
    .. field(" account=", job.account or job.default_account)
    .. field(" partition=", whole_names(partition_of(job, part_list)))
end

-- line(job, part_list, ask, hint) -> the request without its "submit id=N" and line feed; nil
-- for a job of more GPUs or tasks than the protocol's numbers allow.
function M.line(job, part_list, ask, hint)
  local gpus, per_node, nodes, max_nodes, tasks = M.shape(job, ask)
  local counts = { { "nodes", nodes }, { "per_node", per_node }, { "tasks", tasks } }
  if max_nodes > 0 then
    table.insert(counts, 2, { "max_nodes", max_nodes })
  end
  local in_all, each = codec.numbers({ { "gpus", gpus } }), codec.numbers(counts)
  return in_all and each and who_and_where(job, part_list)
    .. in_all
    .. field(" type=", ask.type)
    .. each
    .. ((hint and hint ~= "") and " hint=" .. encode(hint) or "")
end

-- left_open(job) -> nodes, max_nodes, tasks, tasks_per_node of a job that asks for no GPUs; 0 where
-- the user left it open.
function M.left_open(job)
  return count32(job.min_nodes) or 0, count32(job.max_nodes) or 0, count32(job.num_tasks) or 0,
    count16(job.ntasks_per_node) or 0
end

-- shape_line(job, part_list, hint) -> the same for a job whose shape is to be chosen.
function M.shape_line(job, part_list, hint)
  local nodes, max_nodes, tasks, tasks_per_node = M.left_open(job)
  return who_and_where(job, part_list)
    .. codec.numbers({
      { "gpus", 0 }, { "nodes", nodes }, { "max_nodes", max_nodes }, { "per_node", 0 },
      { "tasks", tasks },
    })
    .. " hint=" .. encode(hint) .. " shape=1 tasks_per_node=" .. tasks_per_node
end

return M
