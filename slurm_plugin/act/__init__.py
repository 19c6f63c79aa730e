"""Who changes anything in Slurm, each by rounds over its queue.

`gates` releases jobs, `lending` gives them GPUs of other nodes, `defrag` moves them, `order` raises
them, `genie` shapes them, `profiling` and `collect` submit jobs of their own. `enforcement` has the
two ways in which a decision reaches Slurm.
"""
