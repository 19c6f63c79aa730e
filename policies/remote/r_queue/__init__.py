"""The R queue and its baseline, the G queue: one job at a time, GPUs of other nodes if need be.

P. Markthub, A. Nomura, S. Matsuoka, PDCAT 2014, section III. They are not among the
policies a job can ask for: the engine asks the R queue about jobs that fit on no node.
"""

from policies.remote.r_queue.auto import AutoRQueue, ExpectedRelease, local_start_s
from policies.remote.r_queue.model import JobWork, NetworkSpeeds, execution_s
from policies.remote.r_queue.queues import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NETWORK_AWARE,
    GQueue,
    RQueue,
)

__all__ = [
    "LEAST_OCCUPIED",
    "LOCAL_FIRST",
    "NETWORK_AWARE",
    "AutoRQueue",
    "ExpectedRelease",
    "GQueue",
    "JobWork",
    "NetworkSpeeds",
    "RQueue",
    "execution_s",
    "local_start_s",
]
