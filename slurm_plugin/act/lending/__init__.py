"""GPUs of other nodes for jobs that fit on no node.

`admission` takes these jobs in Slurm's order, `matcher` and `choice` find donors for each of them.
`donors` makes the loan in Slurm, looks after it while it lasts (`standing`), and ends it. Each way
of enforcing has its own `LoanUpdates`: the select mode in `at_start`, the slots mode in the room
`gates`. `acting` is the process that submits donors as users.
"""
