"""One line of the decision log, assembled after the reply has gone out.

GPU indices are Slurm's, in rank order, as `scontrol show job -d` and users count them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from policies import Candidate, Placement, Request
from slurm_plugin.decide.preferences import Preferences
from slurm_plugin.protocol import Notice, Pass, PlaceReply, Use, WaitFor
from slurm_plugin.question import PlacementQuestion

#: Makes a line of the decision log, once the answer is out.
Build = Callable[[], dict[str, Any]]

MAX_CANDIDATES = 16
MAX_EXCLUDED = 16

ToSlurm = Callable[[str, tuple[int, ...]], tuple[int, ...]]
PcieHops = Callable[[str, tuple[int, ...]], int]
Scored = Callable[[], Placement | None]


class DecisionRecord:
    """Collects references while deciding; `build` does the work later."""

    def __init__(
        self, asked: PlacementQuestion, mode: str, to_slurm: ToSlurm, pcie_hops: PcieHops
    ) -> None:
        self._asked = asked
        self._mode = mode
        self._to_slurm = to_slurm
        self._pcie_hops = pcie_hops
        self._preferences: Preferences | None = None
        self._request: Request | None = None
        self._excluded: Mapping[str, str] = {}
        self._placement: Scored = lambda: None
        self._own: Scored = lambda: None
        self._reply: PlaceReply = Pass()
        self._reason = ""

    def prepared(
        self, preferences: Preferences, request: Request, excluded: Mapping[str, str]
    ) -> None:
        """The question as the policy got it, and the nodes it did not get."""
        self._preferences, self._request, self._excluded = preferences, request, excluded

    def chosen(self, placement: Scored, own: Scored) -> None:
        """The policy's choice (of a wait: what the job would have got) and Slurm's own.

        Both are called when the line is built, after the reply.
        """
        self._placement, self._own = placement, own

    def answered(self, reply: PlaceReply, reason: str) -> None:
        """What the decision came to (in observe mode: would have)."""
        self._reply, self._reason = reply, reason

    def build(self) -> dict[str, Any]:
        """The line's keys and values."""
        reply = self._reply
        line = first_keys(self._asked, self._mode, reply, self._reason)
        if isinstance(reply, Use) and reply.alt:
            line["alt"] = {name: _bits(mask) for name, mask in reply.alt.items()}
        if self._preferences is not None and self._request is not None:
            line["policy"] = self._preferences.policy
            line["pattern"] = self._request.pattern
            line["gpus_per_node"] = self._request.gpus_per_node
        if self._excluded:
            line["excluded_nodes"] = dict(list(self._excluded.items())[:MAX_EXCLUDED])
        line["slurm"] = self._slurm()
        placement = self._placement()
        if placement is not None:
            line["chosen"] = self._scored(placement) | {"pcie_hops": self._hops(placement)}
            line["reason"] = placement.reason
            candidates = placement.candidates[:MAX_CANDIDATES]
            line["candidates"] = [self._scored(candidate) for candidate in candidates]
        return line

    def _slurm(self) -> dict[str, Any]:
        """Slurm's own choice, with its scores where the policy could judge it."""
        gpus = {node.name: _bits(node.own) for node in self._asked.candidates if node.own}
        own = self._own()
        if own is None:
            return {"gpus": gpus}
        # Judged in the best order there is for that set: Slurm gives none.
        return self._scored(own) | {"gpus": gpus, "pcie_hops": self._hops(own)}

    def _hops(self, placement: Placement) -> int:
        """Steps of the rings, all nodes together, that leave the GPUs' own links."""
        return sum(self._pcie_hops(name, gpus) for name, gpus in placement.gpus.items())

    def _scored(self, choice: Placement | Candidate) -> dict[str, Any]:
        scored: dict[str, Any] = {
            "gpus": {name: self._to_slurm(name, gpus) for name, gpus in choice.gpus.items()},
            "score": choice.score,
        }
        if choice.terms:
            scored |= {"terms": dict(choice.terms)}
        # A policy of terms judges no links of what it did not choose.
        if isinstance(choice, Placement) or not choice.terms:
            scored |= {
                "effbw_gbps": choice.effbw_gbps,
                "agg_gbps": choice.agg_gbps,
                "preserved_gbps": choice.preserved_gbps,
            }
        return scored


def first_keys(
    asked: PlacementQuestion, mode: str, reply: PlaceReply, reason: str
) -> dict[str, Any]:
    """How a decision's line begins: the job, and what it was answered."""
    line = {
        "job": asked.job,
        "array": asked.array,
        "uid": asked.uid,
        "account": asked.account,
        "partition": asked.partition,
        "hint": asked.hint,
        "mode": mode,
        "decision": _WORDS[type(reply)],
        "applied": mode == "enforce",
        "why": reason,
        "note": reply.note,
        "postponed": asked.postponed,
        "waited_s": asked.waited_s,
        "candidate_nodes": len(asked.candidates),
    }
    return line | {"wait_s": reply.seconds} if isinstance(reply, WaitFor) else line


def started(notice: Notice) -> dict[str, Any]:
    """The line that says where a job really started."""
    return {
        "job": notice.job,
        "array": notice.array,
        "decision": "started",
        "gpus": {name: _bits(mask) for name, mask in notice.gpus.items()},
    }


_WORDS: dict[type[PlaceReply], str] = {Use: "use", WaitFor: "wait", Pass: "pass"}


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
