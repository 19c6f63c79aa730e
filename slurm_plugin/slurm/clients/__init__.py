"""Three clients of Slurm: its commands, slurmrestd, PySlurm.

`command_line` has SlurmClient; `rest` and `pyslurm_client` ask some things otherwise, the rest by
command. `rows` and `queue_reader` turn JSON into the nouns of `interface`, `squeue_table` reads
squeue's columns, `update_text` writes a JobUpdate in scontrol's words.
"""
