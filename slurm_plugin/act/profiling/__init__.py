"""Runs a job's script a few times to learn its speed (GENIE, section 5.1.5): B + N + G short runs.

`plan` begins a profile or goes on with it, `loop` makes its runs and gives way to other jobs
(`idle`), `submission` and `options` make the sbatch command of a run, `measure` reads what a run
took, `progress` keeps it all in one folder. `speed_models` fits the runs.
"""
