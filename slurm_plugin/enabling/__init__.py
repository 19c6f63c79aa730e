"""`gputopo enable` and `gputopo disable`: slurm.conf and the link to job_submit.lua.

`edits` is what is put in and taken out again, `checks` is what must hold before, `apply` writes.
Nothing here starts or stops a daemon.
"""
