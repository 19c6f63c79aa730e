-- The yardstick of the submit benchmark: what job_submit/lua costs without a bridge.
function slurm_job_submit(job_desc, part_list, submit_uid)
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, submit_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
