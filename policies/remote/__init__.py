"""Jobs whose GPUs may be on other nodes: what they ask and get, and what nodes have left.

`r_queue` answers for one job at a time, `drmaestro` for all waiting jobs at once. No job asks
for them by name: the engine asks them about jobs that fit on no node.
"""

from policies.remote.capacity import NodeCapacity
from policies.remote.jobs import RemoteJob, RemotePlacement, RemoteTask

__all__ = ["NodeCapacity", "RemoteJob", "RemotePlacement", "RemoteTask"]
