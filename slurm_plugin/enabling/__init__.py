"""`gputopo init`, `enable` and `disable`: gputopo.yaml, slurm.conf, the link to job_submit.lua.

`first_file` is the gputopo.yaml to begin with. `edits` is what is put into slurm.conf and taken out
again, `checks` is what must hold before, `apply` writes. Nothing here starts or stops a daemon.
"""
