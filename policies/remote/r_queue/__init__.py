"""The R queue: one job at a time, GPUs of other nodes if need be.

P. Markthub, A. Nomura, S. Matsuoka, PDCAT 2014, section III. It is not among the policies
a job can ask for: the engine asks it about jobs that fit on no node.
"""

from policies.remote.r_queue.auto import ExpectedRelease, judged, local_start_s, predicted_s
from policies.remote.r_queue.model import JobWork, NetworkSpeeds, execution_s
from policies.remote.r_queue.queues import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NETWORK_AWARE,
    RQueue,
)

__all__ = [
    "LEAST_OCCUPIED",
    "LOCAL_FIRST",
    "NETWORK_AWARE",
    "ExpectedRelease",
    "JobWork",
    "NetworkSpeeds",
    "RQueue",
    "execution_s",
    "judged",
    "local_start_s",
    "predicted_s",
]
