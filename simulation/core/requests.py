"""What a policy is asked for a job of a trace: the same Request the live engine builds.

A trace's hints act as a site's defaults: a key without effect under the policy is left
out, so that one trace can be asked of every policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from policies import Policy, Request, RunningJob, WaitingJob
from policies.contract.hint_keys import communication_in
from policies.errors import HintError
from policies.hints import Hints, to_request, to_running
from policies.registry import Registry, registry
from simulation.core.jobs import SimJob
from simulation.errors import SimulationError


def hint_values(hint: str) -> dict[str, str]:
    """`key=value,flag` as a mapping; flags are yes."""
    values = {}
    for item in filter(None, (part.strip() for part in hint.split(","))):
        key, _, value = item.partition("=")
        values[key] = value or "yes"
    return values


def wrong_hint(hint: str) -> str:
    """What is wrong with a trace's hint, in a sentence; empty if nothing is."""
    for name, value in hint_values(hint).items():
        key = registry.keys.get(name)
        if key is None or key.read(value) is None:
            allowed = f"one of {', '.join(registry.keys)}" if key is None else key.allowed
            return f"hint {name}={value!r}; expected {allowed}"
    return ""


class RequestMaker:
    """Builds one policy's requests, remembering those of equal jobs."""

    def __init__(self, policy: Policy) -> None:
        kind = type(policy)
        self._policies = registry if kind.name in registry.names() else Registry((kind,))
        self._name = kind.name
        self._known: dict[tuple[str, tuple[int, ...]], Request] = {}

    def request(self, job: SimJob) -> Request:
        """The request of one job; SimulationError names a job whose hint is wrong."""
        key = (job.hint, job.gpus_per_node)
        request = self._known.get(key)
        if request is None:
            defaults = {**hint_values(job.hint), "policy": self._name}
            try:
                request = to_request(Hints(), job.gpus_per_node, defaults, policies=self._policies)
            except HintError as error:
                raise SimulationError(f"job {job.job_id}: hint {job.hint!r}: {error}") from None
            self._known[key] = request
        return replace(request, job_id=job.job_id)

    def waiting(self, job: SimJob, lasts_s: float, took_s: Sequence[float] = ()) -> WaitingJob:
        """The job as others see it that start before."""
        request = self.request(job)
        return WaitingJob(
            request.gpus_per_node,
            lasts_s,
            request.pattern,
            request.sensitive,
            communication_in(request.options),
            took_s=took_s,
        )

    def running(self, job: SimJob, masks: Mapping[str, int]) -> RunningJob:
        """The job as its later neighbours see it."""
        return to_running(hint_values(job.hint), job.job_id, masks)
