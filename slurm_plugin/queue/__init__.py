"""Slurm's queue: what nodes have free, what jobs hold and need, which GPUs would do."""
