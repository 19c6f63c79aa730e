"""Slurm's queue and nodes, whatever the way of enforcing.

What nodes have and what of it is free (`capacity`), what a job asks for and needs (`demand`),
where it could start (`candidates`), who goes first, and who may pass whom (`backfill`), how
scattered the free GPUs are (`fragmentation`), and were (`free_history`).
Pure, but for `watcher`, which reads Slurm, and `free_history`, which is a file.
"""
