"""A real Slurm in containers, with fake GPUs of any machine of the catalog, to test against."""
