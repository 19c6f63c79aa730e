"""The picture of Slurm's queue, in plain nouns: nodes, GPUs, jobs.

What nodes have and what of it is free (`capacity`), what a job asks for and needs (`demand`),
where it could start (`candidates`), who goes first, and who may pass whom (`backfill`), how
scattered the free GPUs are (`fragmentation`).
Nothing here knows how GPUs are enforced. Pure, but for the watcher, which reads Slurm.
"""
