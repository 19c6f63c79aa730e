"""`enforcement: slots`: a job that finds no GPUs at submit waits behind a gate, its begin time.

One round of `reconciler` makes a plan from a snapshot of the queue (`planning`, pure, with
`admission`, `released` and `slot_loans`), shows submits what is free from then on
(`capacity_cache`), and tells Slurm with the updates of `change`; `released` sees what becomes of
the jobs.
"""
