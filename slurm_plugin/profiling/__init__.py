"""The lightweight profiler (GENIE, section 5.1.5): B + N + G short runs as Slurm jobs."""
