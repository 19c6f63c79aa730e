"""The engine inside Slurm: socket server, Slurm clients, enforcement, command line."""
