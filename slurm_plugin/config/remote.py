"""The section `remote` of gputopo.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from slurm_plugin.base.preset import Preset
from slurm_plugin.config import presets
from slurm_plugin.config.key import computed, setting

if TYPE_CHECKING:
    from policies.remote.r_queue import NetworkSpeeds


class MeasuredSides(Protocol):
    """`policies.remote.r_queue.measured.Measured`: what submits donors imports no policies."""

    @property
    def preset(self) -> str:
        """The name of the network's preset."""

    def speeds(self, wires: NetworkSpeeds) -> NetworkSpeeds:
        """The model's figures with those measured."""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """GPUs of other nodes: whether, by which middleware, and on whose terms."""

    preset: Preset = computed(
        partial(presets.load, "echo"),
        "The middleware: a preset of `gputopo remote presets`, or a site's own file NAME.yaml.",
        kind="preset",
        shown="echo",
    )
    allow: bool = setting(False, "`yes`: jobs may borrow GPUs of other nodes.")
    trust_network: bool = setting(
        False, "`yes`: whoever can reach a node's ports may use the servers there; no relay."
    )
    #: The lowest and the highest.
    ports: tuple[int, int] = setting(
        (50000, 50999),
        "Where donors listen; each needs two of them on its node.",
        kind="ports",
        shown="50000-50999",
    )
    r_queues: tuple[str, ...] = setting(
        (),
        "Partitions whose jobs may borrow without asking for it: `[rq, long]`.",
        example="[rq, long]",
    )
    equal_models: tuple[str, ...] = setting(
        (),
        "GPU models that lend to each other, each group as `v100/v100s`; others lend to their own"
        " model alone.",
        example="[v100/v100s, a100/a100-80gb]",
    )
    unservable: Literal["wait", "refuse"] = setting(
        "wait",
        "What becomes of a job whose donors cannot serve: `wait` for local GPUs, or `refuse`:"
        " it is cancelled, and AdminComment says why.",
    )
    take_back: Literal["no", "requeue"] = setting(
        "no",
        "Whether lent GPUs are taken back for the first job that waits for local ones: `requeue`"
        " puts the borrower back into the queue, once, if its hint says `movable`.",
    )
    take_back_s: int = setting(
        300,
        "That job has waited for so many seconds by then.",
        low=0,
        high=1 << 20,
    )
    donors: Literal["local-first", "least-occupied"] = setting(
        "local-first", "Who lends: `local-first` (ours), or `least-occupied` (the R queue's paper)."
    )
    decider: Literal["r-queue", "drmaestro"] = setting(
        "r-queue",
        "Who chooses the jobs that borrow: `r-queue`, one waiting job after the other, or"
        " `drmaestro`, all of them at once.",
    )
    solve_s: float = setting(
        2.0,
        "Longest one answer of DRMaestro may take; then the R queue decides.",
        low=0.05,
        high=30,
    )
    max_slowdown: float = setting(
        1.5,
        "DRMaestro lets a job wait for a calmer network where remote GPUs would make it take more"
        " than so many times as long; a profile may say its own.",
        low=1,
        high=1000,
    )
    network_gb_s: float = setting(
        7.0,
        "A node's network in GB/s, for the predictions of `remote=auto`.",
        low=0.01,
        high=10_000,
    )
    measured: MeasuredSides | None = setting(
        None,
        "The file that `gputopo remote measure` wrote: what calls and bytes of own and lent GPUs"
        " take, for the predictions of `remote=auto`.",
        kind="measured",
        shown="none",
    )
    donor_cpus: int = setting(1, "CPUs that a donor takes for each GPU.", low=1, high=64)
    donor_memory_mb: int = setting(
        512, "Memory that a donor takes for each GPU, in MB.", low=16, high=1 << 20
    )
    program: Path = setting(
        Path("/usr/local/bin/gputopo-node"),
        "What `gputopo remote program` wrote, by its path on the nodes.",
    )
    ready_s: int = setting(
        60,
        "Donors whose servers are not ready after so many seconds are given up.",
        low=5,
        high=600,
    )
    submitter: Path = setting(
        Path("/run/gputopo-donors/socket"),
        "The Unix socket of `gputopo serve-donors`, which submits donors as their users.",
    )
    first_uid: int = setting(
        1000, "Jobs of users with a lower uid borrow nothing.", low=1, high=1 << 31
    )

    def like(self, model: str) -> frozenset[str]:
        """The models that lend to this one, itself included."""
        groups = (group.split("/") for group in self.equal_models)
        return frozenset(next((group for group in groups if model in group), (model,)))

    @property
    def wires(self) -> NetworkSpeeds:
        """The site's network in the R queue's model."""
        # Imported when asked for: what submits donors needs the section, and no policies.
        from policies.remote.r_queue import NetworkSpeeds

        wires = NetworkSpeeds(net_gb_s=self.network_gb_s)
        return wires if self.measured is None else self.measured.speeds(wires)

    def conflict(self) -> tuple[str, str] | None:
        """Models in two groups, another preset's figures, middleware for a trusted network."""
        named = [model for group in self.equal_models for model in group.split("/")]
        is_grouped = all("/" in group for group in self.equal_models)
        if not is_grouped or "" in named or len(set(named)) < len(named):
            shown = ", ".join(self.equal_models)
            return "equal_models", f"[{shown}]; expected groups as v100/v100s, each model once"
        if self.measured and self.measured.preset != self.preset.name:
            return "measured", f"of the preset {self.measured.preset}; expected {self.preset.name}"
        if not self.allow or self.trust_network or not self.preset.needs_trust():
            return None
        why = f"{self.preset.name}: {self.preset.needs_trust()}; expected trust_network: yes"
        return "preset", why
