-- A submit in the slots mode: requests that are refused, the request rewritten without its GPU
-- model, and the keys that are added to `submit` (docs/protocol.md).
local codec = require("gputopo.codec")
local gres = require("gputopo.gres")
local request = require("gputopo.request")

local M = {}

local encode, count32, count16 = codec.encode, request.count32, request.count16
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

-- The job's `form` is that of the first field of gres.FIELDS that asks for GPUs.
local FORM = {
  tres_per_node = "node", tres_per_job = "job", tres_per_task = "task", tres_per_socket = "socket",
}
-- The key that sends a field's text.
local KEY = {
  tres_per_node = "tpn", tres_per_job = "tpj", tres_per_task = "tpt", tres_per_socket = "tps",
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

-- Is this Slurm 22.05? It writes "gres:gpu:2". Its steps must name a type in a job with GPUs of
-- several types, and a step that names a model finds no such type.
local function is_old(asked)
  for _, text in pairs(asked) do
    if find(text, "^gres:") then
      return true
    end
  end
  return false
end

-- Has the job a script? On 22.05 only the first component of a heterogeneous job has it. The other
-- components of sbatch are known by an input file, which srun and salloc do not send.
local function has_script(job, asked)
  if job.script ~= nil then
    return true
  end
  local offset = job.het_job_offset or NO_VAL
  return offset > 0 and offset < NO_VAL and is_old(asked) and job.std_in ~= nil
end

-- read(job) -> the job's requests {field -> text}, whether it has a script
function M.read(job)
  local asked = {}
  for _, field in ipairs(gres.FIELDS) do
    asked[field] = job[field]
  end
  return asked, has_script(job, asked)
end

local function shortened(text)
  return codec.one_line(text, 120)
end

-- normalised(job, asked, is_batch) -> {field -> text} to set | nil, refusal
--   Changes `asked` to the texts without a model.
function M.normalised(job, asked, is_batch)
  local slot = gres.slot_of(asked)
  if slot then
    return nil, string.format(ONE_GPU, shortened(slot))
  end
  local types, set = gres.types_of(asked), {}
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
  for field, text in pairs(asked) do
    local plain = gres.untyped(text)
    if plain ~= text then
      if not is_batch and field ~= "tres_per_node" then
        return nil, string.format(BY_MODEL, shortened(model), shortened(model))
      end
      asked[field], set[field] = plain, plain
    end
  end
  local old = job.features
  set.features = gres.with_feature(old, model)
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
    changed[name] = text and gres.untyped_count(text)
  end
  for _, name in ipairs(TRES_VARIABLES) do
    local text = environment[name]
    local plain = text and gres.untyped(text)
    changed[name] = plain ~= text and plain or nil
  end
  if is_old(asked) and environment.SLURM_GPUS_PER_NODE then
    -- Left empty, a step takes all of the job's GPUs.
    changed.SLURM_GPUS_PER_NODE = ""
  end
  return next(changed) and changed or nil
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
  local each = count16(job.ntasks_per_gpu)
  if not each then
    return {}
  end
  local gpus, _, _, _, tasks = request.shape(job, ask)
  -- srun counts the tasks again by itself, and refuses several tasks per GPU with --gres.
  if gpus == 0 or (not is_batch and each > 1 and not ask.per_job) then
    return nil
  end
  local cpus = tasks * (count16(job.cpus_per_task) or 1)
  return {
    ntasks_per_gpu = NO_VAL_16, num_tasks = tasks,
    min_cpus = math.max(cpus, count32(job.min_cpus) or 0),
  }
end

local function time_s(minutes)
  if minutes == INFINITE then
    return TEN_YEARS_S
  end
  return 60 * (count32(minutes) or 0)
end

local function flag(is_set)
  return is_set and 1 or 0
end

-- A job description does not say --overcommit; sbatch makes fewer CPUs than tasks of it. With both
-- --gpus and --gpus-per-task the tasks get their CPUs later.
local function is_overcommitted(job, asked)
  if asked.tres_per_job and asked.tres_per_task then
    return false
  end
  local cpus = count32(job.min_cpus)
  return cpus and cpus < (count32(job.num_tasks) or 0)
end

-- A job description does not say --deadline; the script says what stands in it.
local function has_deadline(script)
  if not script or not find(script, "--deadline", 1, true) then
    return false
  end
  return find("\n" .. script, "\n#SBATCH[^\n]*[ \t]%-%-deadline") ~= nil
end

local function texts(job, asked, features)
  local items = {
    { "features", features }, { "req_nodes", job.req_nodes }, { "exc_nodes", job.exc_nodes },
    { "reservation", job.reservation },
  }
  for _, field in ipairs(gres.FIELDS) do
    items[#items + 1] = { KEY[field], asked[field] }
  end
  local line = ""
  for _, pair in ipairs(items) do
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
  for _, field in ipairs(gres.FIELDS) do
    if asked[field] and find(asked[field], "gpu", 1, true) then
      return FORM[field]
    end
  end
end

-- is_asked(number) -> whether a user gave it; slurmctld has numbers of its own for what is not set
local function is_asked(number)
  return number ~= nil and number > 0 and number < 65533
end

-- is_by_core(job, form) -> whether its tasks are bound to sockets or cores by number
local function is_by_core(job, form)
  return is_asked(job.cores_per_socket)
    or is_asked(job.ntasks_per_socket)
    or (form ~= "socket" and is_asked(job.sockets_per_node))
end

-- is_together(job) -> whether its nodes are to be neighbours in some way
local function is_together(job)
  return is_asked(job.req_switch) or is_asked(job.segment_size) or job.contiguous == 1
end

-- keys(job, asked, is_batch, set) -> " slots=1 ..." | nil where a text is too long to send, a
-- number too large, or no slots could be used
--   asked and set are those of normalised(); form is given for a job that asks for no GPUs yet
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
    { "cpus", count32(job.min_cpus) or 0 },
    { "cpus_per_task", count16(job.cpus_per_task) or 0 },
    { "cpus_per_gpu", per_gpu(job.cpus_per_tres) },
    { "mem_node_mb", memory_mb(job.min_mem_per_node) },
    { "mem_all", flag(job.min_mem_per_node == 0) },
    { "mem_cpu_mb", memory_mb(job.min_mem_per_cpu) },
    { "mem_gpu_mb", per_gpu(job.mem_per_tres) },
    -- 1 is --oversubscribe; 2 and 3 are --exclusive=user and =mcs.
    { "exclusive", flag(shared == 0) },
    { "depends", flag(job.dependency ~= nil and job.dependency ~= "") },
    { "held", flag(job.priority == 0) },
    { "enforce_binding", flag(math.floor((job.bitflags or 0) / GRES_ENFORCE_BIND) % 2 == 1) },
    { "overcommit", flag(is_overcommitted(job, asked)) },
    { "closes", flag(shared == 2 or shared == 3) },
    { "prefers", flag(job.prefer ~= nil and job.prefer ~= "") },
    { "immediate", flag((job.immediate or 0) ~= 0) },
    { "deadline", flag(has_deadline(job.script)) },
    { "by_core", flag(is_by_core(job, form)) },
    { "by_thread", flag(is_asked(job.threads_per_core) or is_asked(job.ntasks_per_core)) },
    { "together", flag(is_together(job)) },
  })
  return numbers and " slots=1 form=" .. form .. numbers .. some
end

return M
