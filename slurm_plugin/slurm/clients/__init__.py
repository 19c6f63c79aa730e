"""Three clients of Slurm: its commands, slurmrestd, PySlurm.

`command_line` is the whole of SlurmClient. `rest` and `pyslurm_client` are the same client with
some questions asked another way; what their Slurm does not answer is still asked by command.
`rows` and `queue_reader` turn JSON into the nouns of `interface`, `squeue_table` reads squeue's
columns, `update_text` writes a JobUpdate in scontrol's words.
"""
