"""GENIE live: jobs get their shape at submit, and run in an order in which deadlines are met.

`shaping` answers submits and starts, with `site` and `models` for what a hint means and `reply` for
Slurm's fields. The loop in `serve` takes a `domain_snapshot`, plans, and changes waiting jobs
(`changes`). `record` makes the lines of the decision log.
"""
