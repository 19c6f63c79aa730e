-- A submit in the slots mode: requests that are refused, the request rewritten without its GPU
-- model, and the keys that are added to `submit` (docs/protocol.md).
local codec = require("gputopo.codec")
local request = require("gputopo.request")
local slots = require("gputopo.slots")

local M = {}

local encode = codec.encode
local find, match = string.find, string.match

local NO_VAL, INFINITE = 4294967294, 4294967295
local NO_VAL_16 = 65534
-- Above this pn_min_memory is a mark or a figure per CPU, which a Lua number cannot hold.
local LARGEST_MEMORY_MB = 2 ^ 62
-- A list cut short would name other nodes: a job with longer ones is not asked about.
local LONGEST_TEXT = 4096
-- Of slurm.h: --gres-flags=enforce-binding, alone or as the site's default.
local GRES_ENFORCE_BIND = 16
-- Stands for "no limit", as a number that can be added to a time.
local TEN_YEARS_S = 315360000

-- In the order that decides the job's `form`, with the short key of each.
local FIELDS = {
  { name = "tres_per_node", form = "node", key = "tpn" },
  { name = "tres_per_job", form = "job", key = "tpj" },
  { name = "tres_per_task", form = "task", key = "tpt" },
  { name = "tres_per_socket", form = "socket", key = "tps" },
}

-- Variables that sbatch leaves in the job's environment, where srun reads them again.
local COUNT_VARIABLES = {
  "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
  "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_SOCKET", "SBATCH_GPUS_PER_TASK",
}
local TRES_VARIABLES = { "SLURM_TRES_PER_TASK", "SBATCH_TRES_PER_TASK", "SLURM_GRES", "SBATCH_GRES" }

local ONE_GPU = "gpu-topo: %s is one particular GPU, and the engine chooses those; ask for "
  .. "GPUs by number or model, such as --gres=gpu:2"
local SEVERAL = "gpu-topo: %s and %s in one job; a job gets GPUs of one model here, so name one, "
  .. "or submit a heterogeneous job"
local NOT_JOINED = "gpu-topo: the model %s is a node feature here and cannot be added to "
  .. "--constraint=%s; write it into the constraint and leave it out of the GPU request"
local NOT_BY_MODEL = "gpu-topo: srun and salloc cannot take the model %s here; leave it out of the "
  .. "GPU request and add --constraint=%s"
local BY_MODEL = "gpu-topo: srun and salloc take a model by --gres=gpu:%s:N only; or leave it "
  .. "out of the GPU request and add --constraint=%s"

-- Slurm 22.05, which writes "gres:gpu:2": a step there may not ask without a type for GPUs of
-- several types, and typed steps find no model.
local function is_old(asked)
  for _, field in ipairs(FIELDS) do
    if find(asked[field.form] or "", "^gres:") then
      return true
    end
  end
  return false
end

-- Has the job a script? On 22.05 only the first component of a heterogeneous one has it; the
-- others have sbatch's input file, which srun and salloc do not send.
local function has_script(job, asked)
  if job.script ~= nil then
    return true
  end
  local offset = job.het_job_offset or NO_VAL
  return offset > 0 and offset < NO_VAL and is_old(asked) and job.std_in ~= nil
end

-- read(job) -> the job's requests {form -> text}, whether it has a script
function M.read(job)
  local asked = {}
  for _, field in ipairs(FIELDS) do
    asked[field.form] = job[field.name]
  end
  return asked, has_script(job, asked)
end

local function the_types(asked)
  local found = {}
  for _, field in ipairs(FIELDS) do
    for _, gpu_type in ipairs(asked[field.form] and slots.types(asked[field.form]) or {}) do
      found[#found + 1] = gpu_type
    end
  end
  return found
end

-- Does the request name particular GPUs?
function M.names_slot(asked)
  for _, gpu_type in ipairs(the_types(asked)) do
    if slots.is_slot(gpu_type) then
      return gpu_type
    end
  end
end

local function shortened(text)
  return codec.one_line(text, 120)
end

-- normalised(job, asked, is_batch) -> {field -> text} to set | nil, refusal
--   Changes `asked` to the texts without a model.
function M.normalised(job, asked, is_batch)
  local slot = M.names_slot(asked)
  if slot then
    return nil, string.format(ONE_GPU, shortened(slot))
  end
  local types, set = the_types(asked), {}
  local model = types[1]
  if not model then
    return set
  elseif not is_batch and is_old(asked) then
    return nil, string.format(NOT_BY_MODEL, shortened(model), shortened(model))
  end
  for _, other in ipairs(types) do
    if other ~= model then
      return nil, string.format(SEVERAL, shortened(model), shortened(other))
    end
  end
  for _, field in ipairs(FIELDS) do
    local text = asked[field.form]
    local plain = text and slots.untyped(text)
    if plain ~= text then
      if not is_batch and field.form ~= "node" then
        return nil, string.format(BY_MODEL, shortened(model), shortened(model))
      end
      asked[field.form], set[field.name] = plain, plain
    end
  end
  local old = job.features
  set.features = slots.with_feature(old, model)
  if not set.features then
    return nil, string.format(NOT_JOINED, shortened(model), shortened(old))
  end
  return set
end

-- environment(environment, asked) -> {name -> text}: what a step inside the job must not
-- inherit; nil where nothing is to be changed.
function M.environment(environment, asked)
  local changed = {}
  for _, name in ipairs(COUNT_VARIABLES) do
    local text = environment[name]
    changed[name] = text and slots.untyped_count(text)
  end
  for _, name in ipairs(TRES_VARIABLES) do
    local text = environment[name]
    local plain = text and slots.untyped(text)
    changed[name] = plain ~= text and plain or nil
  end
  if is_old(asked) and environment.SLURM_GPUS_PER_NODE then
    -- Left empty, a step takes all of the job's GPUs.
    changed.SLURM_GPUS_PER_NODE = ""
  end
  return next(changed) and changed or nil
end

local function number32(value)
  return value and value > 0 and value < NO_VAL - 1 and value or 0
end

local function number16(value)
  return value and value > 0 and value < NO_VAL_16 and value or 0
end

local function memory_mb(value)
  return value and value > 0 and value < LARGEST_MEMORY_MB and value or 0
end

-- "gres/gpu:3" -> 3: the figure per GPU of --cpus-per-gpu and --mem-per-gpu.
local function per_gpu(text)
  return text and tonumber(match(text, "gpu[:=](%d+)$")) or 0
end

-- tasks_of_gpus(job, ask, is_batch) -> {field -> number} to set | nil where that cannot be
--   Slurm counts --ntasks-per-gpu for each type of GPU by itself, and a job with slots has as many
--   types as GPUs: the tasks are counted here instead, once the number of GPUs is known.
function M.tasks_of_gpus(job, ask, is_batch)
  local each = number16(job.ntasks_per_gpu)
  if each == 0 then
    return {}
  end
  local gpus, _, _, _, tasks = request.shape(job, ask)
  -- srun derives the tasks again by itself, and refuses several tasks per GPU with --gres.
  if gpus == 0 or (not is_batch and each > 1 and not ask.per_job) then
    return nil
  end
  local cpus = tasks * math.max(1, number16(job.cpus_per_task))
  return {
    ntasks_per_gpu = NO_VAL_16, num_tasks = tasks, min_cpus = math.max(cpus, number32(job.min_cpus)),
  }
end

local function time_s(minutes)
  if minutes == INFINITE then
    return TEN_YEARS_S
  end
  return 60 * number32(minutes)
end

local function flag(is_set)
  return is_set and 1 or 0
end

-- --overcommit itself is not to be read here, only what sbatch makes of it: fewer CPUs than
-- tasks. Tasks that it counts by --gpus and --gpus-per-task get theirs later.
local function is_overcommitted(job, asked)
  if asked.job and asked.task then
    return false
  end
  local cpus = number32(job.min_cpus)
  return cpus > 0 and cpus < number32(job.num_tasks)
end

local function texts(job, asked, features)
  local found = {
    { "features", features }, { "req_nodes", job.req_nodes }, { "exc_nodes", job.exc_nodes },
    { "reservation", job.reservation },
  }
  for _, field in ipairs(FIELDS) do
    found[#found + 1] = { field.key, asked[field.form] }
  end
  local line = ""
  for _, pair in ipairs(found) do
    local text = pair[2]
    if text and #text > LONGEST_TEXT then
      return nil
    elseif text and text ~= "" then
      line = line .. " " .. pair[1] .. "=" .. encode(text)
    end
  end
  return line
end

local function form_of(asked)
  for _, field in ipairs(FIELDS) do
    if asked[field.form] and find(asked[field.form], "gpu", 1, true) then
      return field.form
    end
  end
end

-- keys(job, asked, is_batch, set) -> " slots=1 ..." | nil where a text is too long to send, a
-- number too large, or no slots could be used
--   asked, set: what normalised left and found. form: of a job that asks for nothing yet.
function M.keys(job, asked, is_batch, set, form)
  local some = texts(job, asked, set.features or job.features)
  form = form or form_of(asked)
  if not some or not form or (not is_batch and is_old(asked)) then
    return nil
  end
  local shared = job.shared
  local numbers = codec.numbers({
    { "batch", flag(is_batch) },
    { "array", flag(job.array_inx ~= nil) },
    { "het", flag((job.het_job_offset or NO_VAL) < NO_VAL) },
    { "begin", job.begin_time or 0 },
    { "time_s", time_s(job.time_limit) },
    { "cpus", number32(job.min_cpus) },
    { "cpus_per_task", number16(job.cpus_per_task) },
    { "cpus_per_gpu", per_gpu(job.cpus_per_tres) },
    { "mem_node_mb", memory_mb(job.min_mem_per_node) },
    { "mem_cpu_mb", memory_mb(job.min_mem_per_cpu) },
    { "mem_gpu_mb", per_gpu(job.mem_per_tres) },
    -- 1 is --oversubscribe; --exclusive=user and =mcs want the node to themselves, too.
    { "exclusive", flag(shared == 0 or shared == 2 or shared == 3) },
    { "depends", flag(job.dependency ~= nil and job.dependency ~= "") },
    { "held", flag(job.priority == 0) },
    { "enforce_binding", flag(math.floor((job.bitflags or 0) / GRES_ENFORCE_BIND) % 2 == 1) },
    { "overcommit", flag(is_overcommitted(job, asked)) },
  })
  return numbers and " slots=1 form=" .. form .. numbers .. some
end

return M
