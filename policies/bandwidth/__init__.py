"""What a collective is predicted to reach on a set of GPUs, in GB/s."""
