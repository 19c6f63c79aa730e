"""`python -m slurm_cluster up`: cluster.sh for the folder that one is in."""

import os
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("cluster.sh")

if __name__ == "__main__":
    environ = {
        "GPUTOPO_PYTHON": sys.executable,
        "GPUTOPO_CHECKOUT": str(Path.cwd().resolve()),
        **os.environ,
    }
    os.execvpe("bash", ["bash", str(SCRIPT), *sys.argv[1:]], environ)
