"""Benchmarks of what lies between a job and the server of a donor; without Slurm."""
