"""`gputopo topology collect`: read the nodes' hardware through Slurm, and remember it."""
