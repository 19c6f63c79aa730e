"""Why a job got its GPUs: found in the decision log, asked of the engine, or told by Slurm."""
