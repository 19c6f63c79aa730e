-- Imitates slurmctld's job_submit/lua for the tests: loads the script named in the first argument
-- and runs each line of stdin as Lua. The answer is key=value lines, percent-encoded, and a "." line.

local function say(key, value)
  local text = tostring(value):gsub("[^%w]", function(c) return ("%%%02X"):format(c:byte()) end)
  io.write(key, "=", text, "\n")
end

local logged, told = {}, {}
slurm = {
  SUCCESS = 0,
  ERROR = -1,
  log_info = function(...) logged[#logged + 1] = string.format(...) end,
  log_error = function(...) logged[#logged + 1] = "error: " .. string.format(...) end,
  log_user = function(...) told[#told + 1] = string.format(...) end,
}

local STRINGS = {}
for name in ([[account admin_comment array_inx comment cpus_per_tres dependency exc_nodes features
    mem_per_tres name partition req_nodes reservation script tres_bind tres_per_job tres_per_node
    tres_per_socket tres_per_task user_name]]):gmatch("%S+") do
  STRINGS[name] = true
end

-- What an unset number reads as in a submit.
local UNSET = {
  min_nodes = 4294967294, max_nodes = 4294967294, num_tasks = 4294967294,
  ntasks_per_node = 65534, ntasks_per_gpu = 65534, sockets_per_node = 65534,
  het_job_offset = 4294967294, user_id = 1000, begin_time = 0, time_limit = 4294967294,
  min_cpus = 1, cpus_per_task = 65534, pn_min_cpus = 65534, shared = 65534,
  priority = 4294967294,
}

local reads, writes
local function job_desc(values, environment, poisoned)
  local env = setmetatable({}, {
    __index = function(_, name) return environment[name] end,
    __newindex = function(_, name, value)
      if values.script == nil then
        logged[#logged + 1] = "environment only accessible for batch jobs"
      else
        environment[name] = value
      end
    end,
  })
  return setmetatable({}, {
    __index = function(_, field)
      reads[#reads + 1] = field
      if field == "environment" then return env end
      if field == "gres" then field = "tres_per_node" end
      if values[field] == nil then return UNSET[field] end
      return values[field]
    end,
    __newindex = function(_, field, value)
      if field == poisoned or (STRINGS[field] and type(value) ~= "string") then
        error("bad argument #3 to '?' (" .. field .. ")")
      end
      writes[#writes + 1] = field
      values[field] = value ~= "" and value or nil
    end,
  })
end

-- Runs a hook ("submit" or "modify") and says what it did.
function hook(name, values, record, environment, defaults, uid, poisoned)
  local partitions, gettime, rc = {}, require("socket").gettime, nil
  for partition, flag in pairs(defaults) do partitions[partition] = { flag_default = flag } end
  -- A submit has at least one CPU; an update that names none has none.
  UNSET.min_cpus = name == "submit" and 1 or 4294967294
  reads, writes = {}, {}
  local job = job_desc(values, environment, poisoned)
  local start = gettime()
  if name == "submit" then
    rc = slurm_job_submit(job, partitions, uid)
  else
    rc = slurm_job_modify(job, record, partitions, uid)
  end
  say("elapsed_s", gettime() - start)
  say("rc", rc)
  say("reads", table.concat(reads, " "))
  say("writes", table.concat(writes, " "))
  values.spank_job_env = nil
  for field, value in pairs(values) do say("field." .. field, value) end
  for variable, value in pairs(environment) do say("env." .. variable, value) end
end

local loaded, failure = pcall(dofile, arg[1])
if not loaded then say("crash", failure) end

for line in io.lines() do
  logged, told = {}, {}
  local ok, result = pcall(function() return assert(loadstring(line))() end)
  say(ok and "result" or "crash", result)
  for number, text in ipairs(logged) do say("log." .. number, text) end
  for number, text in ipairs(told) do say("user." .. number, text) end
  io.write(".\n")
  io.flush()
end
