"""Measured figures beside their bars: `make bench`.

Those here need no Slurm, those in `live` the cluster. Each has `run()`, which yields the figures
that `measure` describes; `__main__` has the list of all.
"""
