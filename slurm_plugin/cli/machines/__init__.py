"""Commands about the hardware: topologies, and what Slurm and nodes are given of them."""
