-- slurm-gputopo: the script slurmctld loads (JobSubmitPlugins=lua), placed beside
-- slurm.conf with the folder gputopo/. It only finds and calls gputopo/bridge.lua.
--
-- An error while this file is loaded would keep slurmctld from starting, so nothing in it
-- may fail: without its modules every job passes as if the script were not there.

local here = string.match(debug.getinfo(1, "S").source, "^@(.*)/[^/]*$") or "/etc/slurm"
package.path = here .. "/?.lua;/usr/share/slurm-gputopo/lua/?.lua;"
  .. "/usr/local/share/slurm-gputopo/lua/?.lua;" .. package.path

local ok, bridge = pcall(function()
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
