"""GPU utilisation and memory, where the site names a Prometheus that scrapes an exporter of them.

`prometheus` asks it, seldom and with bounds; `exporters` knows what each exporter calls a node and
a GPU, and which of Slurm's GPUs that is; `shown` tells each viewer of the GPUs of own jobs.
"""
