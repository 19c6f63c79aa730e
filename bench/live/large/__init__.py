"""A large cluster: what slurmctld does under stock Slurm and under ours, measured from within."""
