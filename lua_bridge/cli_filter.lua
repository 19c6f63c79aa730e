-- slurm-gputopo, optional: the script of CliFilterPlugins=lua, placed beside slurm.conf with
-- the folder gputopo/ on hosts where users call srun and salloc. With enforcement = slots
-- Slurm's GRES types are no GPU models. The bridge turns the model of a job's request into a
-- constraint; this script does the same for the steps that the client starts. Whatever fails here,
-- the command goes on as it was written.

local script = string.match(debug.getinfo(1, "S").source, "^@(.*)$") or ""
package.path = (string.match(script, "^(.*)/[^/]*$") or "/etc/slurm") .. "/?.lua;" .. package.path
local is_loaded, gres = pcall(require, "gputopo.gres")

local COUNTS = { "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket" }

-- Every request without its model, and the models: {option -> text}, {model -> true}.
local function without_model(options)
  local plain, models = {}, {}
  for _, name in ipairs(COUNTS) do
    local text = options[name]
    plain[name] = text and gres.untyped_count(text)
    for gpu_type in string.gmatch(plain[name] and text or "", "([^:,]+)[^,]*") do
      models[gpu_type] = true
    end
  end
  -- What gres cannot read (MIG, MPS, shards) stays as it is.
  local text = options["gres"]
  if text and gres.parse(text) then
    for _, gpu_type in ipairs(gres.types(text)) do
      models[gpu_type], plain["gres"] = true, gres.untyped(text)
    end
  end
  return plain, models
end

local function rewrite(options)
  local plain, models = without_model(options)
  local model = next(models)
  -- Several models and particular GPUs are refused by the bridge, with a line that says so.
  if not model or next(models, model) or gres.is_slot(model) then
    return
  end
  -- Inside a job the nodes are chosen already; with a constraint a step could wait for ever.
  if not os.getenv("SLURM_JOB_ID") then
    local features = gres.with_feature(options["constraint"], model)
    if not features then
      return
    end
    options["constraint"] = features
  end
  for name, text in pairs(plain) do
    options[name] = text
  end
end

function slurm_cli_setup_defaults(options, early_pass)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
  if is_loaded then
    pcall(rewrite, options)
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(pack_offset, job_id, step_id)
  return slurm.SUCCESS
end
