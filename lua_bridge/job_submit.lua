-- slurm-gputopo: the script slurmctld loads (JobSubmitPlugins=lua), placed beside
-- slurm.conf with the folder gputopo/. It only finds and calls gputopo/bridge.lua.
--
-- An error while this file is loaded would keep slurmctld from starting, so nothing in it
-- may fail: without its modules every job passes as if the script were not there.

local script = string.match(debug.getinfo(1, "S").source, "^@(.*)$") or ""
local here = string.match(script, "^(.*)/[^/]*$") or "/etc/slurm"

local function exists(path)
  local file = io.open(path, "r")
  return file and file:close()
end

-- The modules lie beside this script or, where it is a symbolic link, beside its target.
local function find_modules()
  if exists(here .. "/gputopo/bridge.lua") then
    return here
  end
  local pipe = io.popen("readlink -f -- '" .. string.gsub(script, "'", "'\\''") .. "'")
  local target = pipe:read("*l") or ""
  pipe:close()
  return string.match(target, "^(.*)/[^/]*$") or here
end

local ok, bridge = pcall(function()
  package.path = find_modules() .. "/?.lua;" .. package.path
  local loaded = require("gputopo.bridge")
  loaded.configure(here)
  return loaded
end)
if not ok then
  slurm.log_error("%s", "gputopo: the bridge is not loaded, jobs get Slurm's own choice of GPUs: "
    .. string.gsub(tostring(bridge), "%s+", " "))
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return ok and bridge.job_submit(job_desc, part_list, submit_uid) or slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, submit_uid)
  return ok and bridge.job_modify(job_desc, job_rec, part_list, submit_uid) or slurm.SUCCESS
end

return slurm.SUCCESS
