"""GPUs of other nodes for jobs that fit on no node.

`admission` asks in Slurm's order for each such job, `matcher` and `choice` find donors for it,
`donors` makes the loan in Slurm, ends it, and looks after it while it lasts (`standing`). What
Slurm is told depends on the way of enforcing (`updates`): `at_start` has that of the select mode,
the gates have that of the slots mode. `acting` is the process that submits donors as users.
"""
