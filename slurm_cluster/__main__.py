"""`python -m slurm_cluster up`: cluster.sh for the folder that one is in."""

import os
import sys
from pathlib import Path

from slurm_cluster.cluster import CLUSTER_SH

if __name__ == "__main__":
    environ = {
        "GPUTOPO_PYTHON": sys.executable,
        "GPUTOPO_CHECKOUT": str(Path.cwd().resolve()),
        **os.environ,
    }
    os.execvpe("bash", ["bash", str(CLUSTER_SH), *sys.argv[1:]], environ)
