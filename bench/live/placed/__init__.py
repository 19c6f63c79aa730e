"""What jobs get on the live cluster, stock Slurm and ours in the same run."""
