"""GPUs of other nodes: who borrows from whom, donors in Slurm, what becomes of a loan."""
