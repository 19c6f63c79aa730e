"""The simulators of placing policies, and the models of how long a job runs.

`placing`: whole nodes and GPUs; `slurm`: the same with what slurm.conf says, and its `backfill`;
`speed`: execution times.
"""
