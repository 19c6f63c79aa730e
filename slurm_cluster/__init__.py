"""A real Slurm in containers, with fake GPUs of any machine of the catalog, to test against.

`cluster.sh` builds and starts it. `Cluster` (cluster.py) is the whole of it for tests: hosts
(hosts.py), Slurm's commands (slurm.py) and faults (faults.py), each a class that adds to the one
before. `description` says which nodes there are; `pytest_plugin` is what other projects use
(docs/testing-with-slurm.md).
"""
