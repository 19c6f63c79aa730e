"""Commands that need no Slurm: a log replayed under other policies."""
