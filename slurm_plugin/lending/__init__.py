"""GPUs of other nodes for jobs that fit on no node.

`admission` asks in Slurm's order for each such job, `matcher` and `choice` find donors for it,
`donors` makes the loan in Slurm, ends it, and looks after it while it lasts (`standing`). Each way
of enforcing has its own `LoanUpdates`: `at_start` those of the select mode, the gates those of the
slots mode. `acting` is the process that submits donors as users.
"""
