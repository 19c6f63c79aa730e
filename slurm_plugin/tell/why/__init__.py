"""`gputopo why`: what a waiting job waits for, in one sentence and its evidence.

`read` asks Slurm as the user who asks, so nobody is told of a job that squeue hides from them;
its `WaitingState` is all that the rest goes by. `answer` finds the cause: our own waits first
(`our_waits`), then Slurm's reason (`limits`, `reasons`), then what is missing on the nodes
(`resources`) and who goes first (`site`). `estimate` plans when it starts, `sooner` what would
start it now. `text` prints it.
"""
