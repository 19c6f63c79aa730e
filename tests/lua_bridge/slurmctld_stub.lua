-- Imitates slurmctld's job_submit/lua for the tests: loads the script named in the first
-- argument and runs one hook per command line on stdin. Values are percent-encoded:
--   submit s.FIELD=text n.FIELD=number e.NAME=text p.PARTITION=0|1 uid=N
--   o.N=text is the N-th variable SPANK options left
--   modify, the same, with rs.FIELD and rn.FIELD for the job record
--   eval LUA
-- Replies are key=value lines and a final "." line.

local function decode(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end
local function encode(text)
  return (tostring(text):gsub("[^%w]", function(c) return string.format("%%%02X", c:byte()) end))
end
local function say(key, value) io.write(key, "=", encode(value), "\n") end

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

local function run_hook(command, words)
  logged, told, reads, writes = {}, {}, {}, {}
  local values, environment, record, partitions, options = {}, {}, {}, {}, { uid = "1000" }
  for _, word in ipairs(words) do
    local key, value = word:match("^([^=]+)=(.*)$")
    value = decode(value)
    local kind, field = key:match("^(%a+)%.(.*)$")
    if kind == "s" then values[field] = value
    elseif kind == "o" then
      values.spank_job_env = values.spank_job_env or {}
      values.spank_job_env[tonumber(field)] = value
    elseif kind == "n" then values[field] = tonumber(value)
    elseif kind == "e" then environment[field] = value
    elseif kind == "p" then partitions[field] = { flag_default = tonumber(value) }
    elseif kind == "ro" then
      record.spank_job_env = record.spank_job_env or {}
      record.spank_job_env[tonumber(field)] = value
    elseif kind == "rs" then record[field] = value
    elseif kind == "rn" then record[field] = tonumber(value)
    else options[key] = value end
  end
  -- A submit has at least one CPU; an update that names none has none.
  UNSET.min_cpus = command == "submit" and 1 or 4294967294
  local job = job_desc(values, environment, options.poisoned)
  local gettime = require("socket").gettime
  local start = gettime()
  local rc
  if command == "submit" then
    rc = slurm_job_submit(job, partitions, tonumber(options.uid))
  else
    rc = slurm_job_modify(job, record, partitions, tonumber(options.uid))
  end
  say("elapsed_s", gettime() - start)
  say("rc", rc)
  say("reads", table.concat(reads, " "))
  say("writes", table.concat(writes, " "))
  values.spank_job_env = nil
  for field, value in pairs(values) do say("field." .. field, value) end
  for name, value in pairs(environment) do say("env." .. name, value) end
end

local loaded, failure = pcall(dofile, arg[1])
if not loaded then say("crash", failure) end

for line in io.lines() do
  local command, rest = line:match("^(%S+) ?(.*)$")
  if command == "eval" then
    logged, told = {}, {}
    local ok, result = pcall(assert(loadstring(decode(rest))))
    say(ok and "result" or "crash", result)
  else
    local words = {}
    for word in rest:gmatch("%S+") do words[#words + 1] = word end
    local ok, problem = pcall(run_hook, command, words)
    if not ok then say("crash", problem) end
  end
  for number, text in ipairs(logged) do say("log." .. number, text) end
  for number, text in ipairs(told) do say("user." .. number, text) end
  io.write(".\n")
  io.flush()
end
