"""horizon: the set of GPUs that serves this job and those that wait best, by simulated futures."""

from policies.horizon.policy import Horizon

__all__ = ["Horizon"]
