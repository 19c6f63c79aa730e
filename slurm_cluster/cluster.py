"""The cluster as this project's tests, demo and benchmarks use it: variants, engine, resets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Self

from slurm_cluster import description
from slurm_cluster.description import DEFAULT, Description
from slurm_cluster.faults import Faults
from slurm_cluster.hosts import ClusterError, NoEngineError, until
from slurm_cluster.slurm import STATE
from slurm_plugin.base.wire import split, unquote

CLUSTER_SH = Path(__file__).parent / "cluster.sh"
NO_ENGINE_EXIT = 3
#: The engine may rightly miss its 50 ms on a busy machine, and a job then gets Slurm's own choice.
PATIENT_MS = 1000
ENGINE_SOCKET = "/run/gputopo/engine.sock"
#: Slurm's release -> the Debian release that has it.
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "forky"}
#: The way of enforcing -> the variant that a reset leads to; None: Slurm alone.
VARIANTS = {"select": "gputopo", "slots": "gputopo-slots", None: "stock"}


class Cluster(Faults):
    """A running cluster of one compose project."""

    def __init__(
        self, project: str, described: Description | None = None, enforcement: str | None = "select"
    ) -> None:
        """Of a project that runs; `enforcement` is where a reset leads to."""
        super().__init__(project)
        self.description = described or description.read(DEFAULT)
        #: select, slots, or None for Slurm alone.
        self.enforcement = enforcement
        self._home: dict[str, str] = {}
        self._expected = ""

    # -- life ---------------------------------------------------------------

    @classmethod
    def up(
        cls,
        project: str | None = None,
        suite: str | None = None,
        described: Description | None = None,
        folder: Path | None = None,
    ) -> Self:
        """Starts or reuses a cluster.

        `suite` is the Debian release ($SUITE, or trixie), `folder` what it is named after and
        keeps its files in (the checkout). NoEngineError where no engine can run; ClusterError
        with the last lines of a failed build.
        """
        project = project or default_project()
        described = described or description.read(DEFAULT)
        with NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(description.text_of(described))
            file.flush()
            environ = {"GPUTOPO_CLUSTER": file.name}
            done = cluster_sh("up", project=project, suite=suite, folder=folder, environ=environ)
        if done.returncode == NO_ENGINE_EXIT:
            raise NoEngineError(done.stderr.strip().splitlines()[-1])
        if done.returncode:
            raise ClusterError(f"cluster.sh up failed:\n{done.stdout}{done.stderr}")
        return cls(project, described)

    def again(self) -> Cluster:
        """The same cluster with connections of its own, for another thread."""
        return Cluster(self.project, self.description, self.enforcement)

    @property
    def gpus(self) -> dict[str, int]:
        """Node -> how many GPUs it has."""
        return self.description.gpus

    @cached_property
    def has_select_plugin(self) -> bool:
        """Whether the image could build it: not without this Slurm's source."""
        return not self.run("ctl", "test -e /usr/local/lib/select_cons_tres.so", check=False).code

    def down(self) -> None:
        """Removes containers, network and volumes; images stay."""
        self.cluster_sh("down")

    @property
    def suite(self) -> str:
        """The Debian release."""
        tag = str(self.container("ctl").attrs["Config"]["Image"].rpartition(":")[2])
        return tag.partition("-")[0]

    @cached_property
    def origin(self) -> str:
        """Where its Slurm is from: a Debian release, or the hash of a source of its own."""
        return self.run("ctl", "cat /usr/local/share/cluster/slurm-origin").out.strip()

    def cluster_sh(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs cluster.sh for this cluster."""
        folder = Path(self.container("ctl").labels["gputopo.checkout"])
        return cluster_sh(*args, project=self.project, suite=self.suite, folder=folder)

    @contextmanager
    def backup_host(self, *, engine: bool = False) -> Iterator[None]:
        """A block with a second controller host, its slurmctld on standby, known to the nodes.

        `engine`: with an engine, too, configured as the one of ctl is.
        """
        if self.cluster_sh("backup", "up").returncode:
            raise ClusterError("cluster.sh backup up failed")
        try:
            self.switch(self.variant(), backup=True)
            self.reconfigure()
            if engine:
                # Before slurmctld reads them: how long it waits for the engine stands there.
                for path in self.run("ctl", "ls /etc/slurm/gputopo*").out.split():
                    self.put("ctl2", path, self.read("ctl", path))
            self.slurmctld("start", host="ctl2")
            if engine:
                self.run("ctl2", "clusterctl donors start; clusterctl engine start")
            yield
        finally:
            self.slurmctld("stop", host="ctl2")
            self.switch(self.variant())
            self.reconfigure()
            self.cluster_sh("backup", "down")
            self._containers.pop("ctl2", None)

    def reset(self) -> None:
        """No jobs, nodes idle, no GPU in use, our variant, the engine running as configured.

        ClusterError where a daemon had ended by itself or a log tells of a crash.
        """
        usual = {"GPUTOPO_VARIANT": VARIANTS[self.enforcement]}
        if not self.enforcement:
            usual["GPUTOPO_WITHOUT_ENGINE"] = "yes"
        how = {**usual, **self._home, "GPUTOPO_EXPECTED": self._expected}
        self._expected = ""
        done = self.run("ctl", ["clusterctl", "reset"], timeout_s=150, env=how)
        if "restarted" in done.out:
            self.wait_accepted()
        self.wait_reconciled()
        self.is_fresh = True

    @contextmanager
    def clean(self) -> Iterator[Self]:
        """A block that finds the cluster reset, and leaves it so."""
        if not self.is_fresh:
            self.reset()
        yield self
        self.reset()

    @contextmanager
    def at_home(
        self,
        *,
        variant: str = "",
        yaml: str = "",
        slurm_conf: str = "",
        engine: bool = True,
        deadline_ms: int | None = PATIENT_MS,
    ) -> Iterator[None]:
        """A block with another state to reset to: another variant, more lines in the two files.

        engine=False: the tests start an engine of their own. deadline_ms is how long plugin and
        bridge wait for it; None: the tests write the bridge's and the plugin's files themselves.
        """
        former = self._home
        self._home = {
            "GPUTOPO_YAML": yaml,
            "GPUTOPO_SLURM_CONF": slurm_conf,
            "GPUTOPO_DEADLINE_MS": "" if deadline_ms is None else str(deadline_ms),
            **({} if engine else {"GPUTOPO_WITHOUT_ENGINE": "yes"}),
            **({"GPUTOPO_VARIANT": variant} if variant else {}),
        }
        try:
            self.reset()
            if slurm_conf:
                self.wait_registered()
            yield
        finally:
            self._home = former
            self.reset()

    def expects(self, crash: str) -> None:
        """Log lines that match this expression are no fault at the next reset."""
        self._expected = "|".join(filter(None, (self._expected, crash)))

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """slurmctld is killed at the end of the block, and nothing of the block was saved."""
        self.saved()
        self.run("ctl", f"rm -rf /tmp/saved && cp -a {STATE} /tmp/saved")
        yield
        self.slurmctld("kill")
        self.run("ctl", f"cp -a /tmp/saved/. {STATE}/")
        self.slurmctld("start")
        self.wait_reconciled()

    def occupy(self, node: str, gpus: Iterable[int], *, user: str = "bob") -> list[int]:
        """Leaves exactly `gpus` of an idle node in use by one-GPU jobs; their ids, by GPU.

        Works in any variant without asking for particular GPUs: fills the node, then
        cancels what holds the others.
        """
        return self.occupy_nodes({node: gpus}, user=user)[node]

    def occupy_nodes(
        self, busy: Mapping[str, Iterable[int]], *, user: str = "bob"
    ) -> dict[str, list[int]]:
        """The same on several nodes at once."""
        wanted = {node: sorted(set(gpus)) for node, gpus in busy.items()}
        one = "sbatch --parsable -o /dev/null -p off --gres=gpu:1 --wrap 'sleep 3600'"
        lines = [f"{one} -w {node}" for node in wanted for _ in range(self.gpus[node])]
        ids = set(map(int, self.run("ctl", " && ".join(lines), user=user).out.split()))
        until(lambda: ids == self._holders(ids).keys(), f"all of {', '.join(wanted)} is in use", 30)
        holders = {place: jobid for jobid, place in self._holders(ids).items()}
        kept = {(node, gpu) for node, gpus in wanted.items() for gpu in gpus}
        self.cancel(*(jobid for place, jobid in holders.items() if place not in kept))

        def is_so() -> bool:
            used = self.gres_used()
            is_used = all(used[node] == tuple(gpus) for node, gpus in wanted.items())
            # Slurm frees GPUs first, and starts nothing on a node while a job's end is not over.
            return is_used and not self.run("ctl", "squeue -h -t completing").out.strip()

        until(is_so, f"in use is exactly {wanted}")
        self.wait_reconciled()
        return {node: [holders[node, gpu] for gpu in gpus] for node, gpus in wanted.items()}

    def uses_exactly(self, busy: Mapping[str, Iterable[int]]) -> bool:
        """Whether these GPUs (node -> indices) are in use and no others."""
        return self.gres_used() == {node: tuple(sorted(busy.get(node, ()))) for node in self.gpus}

    def end(self, jobids: Iterable[int], left: Mapping[str, Iterable[int]] | None = None) -> None:
        """Cancels jobs and waits until the GPUs in `left`, or none, are in use and no others."""
        self.cancel(*jobids)
        until(lambda: self.uses_exactly(left or {}), f"only {left or 'nothing'} in use", 60)
        self.wait_reconciled()

    def _holders(self, ids: set[int]) -> dict[int, tuple[str, int]]:
        """The node and the GPU of each of these jobs of one GPU that runs."""
        held = {job.id: job.gpus for job in self.jobs() if job.id in ids and job.gpus}
        return {jobid: (node, gpus[0]) for jobid, has in held.items() for node, gpus in has.items()}

    # -- the variants -------------------------------------------------------

    def switch(self, variant: str, *, backup: bool = False) -> None:
        """Writes slurm.conf for stock, noop or gputopo and restarts slurmctld only."""
        self.run("ctl", ["clusterctl", "switch", variant, *(["backup"] if backup else [])])

    def variant(self) -> str:
        """The variant in force."""
        return self.run("ctl", ["clusterctl", "variant"]).out.strip()

    @contextmanager
    def variant_as(self, variant: str) -> Iterator[None]:
        """The variant for the length of a block; the former one afterwards."""
        former = self.variant()
        self.switch(variant)
        try:
            yield
        finally:
            self.switch(former)

    def configure_extra(self, lines: str) -> None:
        """Adds lines to slurm.conf until the next reset, and restarts slurmctld."""
        self.put("ctl", "/cluster/extra.conf", f"{lines}\n")
        self.switch(self.variant())
        self.wait_registered()

    def wait_accepted(self) -> None:
        """With a GRES type per GPU slurmctld refuses GPUs of no type until nodes register."""
        if not self.variant().startswith("gputopo-slots") or not any(self.gpus.values()):
            return
        # A node that slurmctld knows nothing of yet ("unknown") is waited for, too.
        named = ",".join(node for node, gpus in self.gpus.items() if gpus)
        listed = f"sinfo -h -N -p off -n '{named}' -o '%N %T'"
        names = f"{listed} | grep -Ev ' (down|drain|fail)' | cut -d' ' -f1"
        one = "sbatch --test-only -p off -w $node --gres=gpu:1 --wrap true"
        probe = f'up=$({names}); [ -n "$up" ] && for node in $up; do {one} || exit 1; done'
        until(lambda: not self.run("ctl", probe, check=False).code, "nodes have their GPUs", 30)

    def wait_registered(self) -> None:
        """The same, and in the slots mode the engine has read what Slurm is now."""
        if not self.variant().startswith("gputopo-slots"):
            return
        self.wait_accepted()
        if self.engine_pid() is None:  # a test that brings a scripted one, or wants none
            return
        self.engine("restart")  # it reads partitions and Slurm's settings now and then only
        self.wait_reconciled()

    # -- the engine ---------------------------------------------------------

    def engine_pid(self) -> int | None:
        """The engine's process id in ctl; None when it does not run."""
        result = self.run("ctl", ["clusterctl", "engine", "pid"], check=False)
        return int(result.out) if not result.code else None

    def engine(self, action: str, *, host: str = "ctl") -> None:
        """start, stop, kill, restart, pause (SIGSTOP) or resume (SIGCONT)."""
        self.run(host, ["clusterctl", "engine", action])

    def wait_reconciled(self) -> None:
        """In the slots mode waits until the reconciler has acted on the queue as it is now.

        It does so by itself soon after a job ended, but later than a test that asks at once.
        """
        if not self.variant().startswith("gputopo-slots") or self.engine_pid() is None:
            return
        asked = time.monotonic()
        notice = f"echo ended job=0 array=0 | socat - UNIX-CONNECT:{ENGINE_SOCKET}"
        self.run("ctl", notice)

        def has_read() -> bool:
            passed = time.monotonic() - asked
            slots = self.status().get("slots", {})  # It listens before it acts.
            age = slots.get("looked_s_ago")
            # A job that ended before it was seen leaves its promised GPUs behind for a moment, and
            # a look that had begun before our notice came knows nothing of it.
            is_settled = not slots.get("promised") and not slots.get("ends_unseen")
            return age is not None and age < passed and is_settled

        until(has_read, "the engine has read the queue")

    def status(self, host: str = "ctl") -> dict[str, Any]:
        """What `gputopo status --json` tells, asked without the command: it is asked often."""
        asked = f"echo status id=1 | socat -t5 - UNIX-CONNECT:{ENGINE_SOCKET}"
        verb, pairs = split(self.run(host, asked).out.encode() or b"nothing")
        values = {key: unquote(value) for key, value in pairs}
        if verb != "ok":
            raise ClusterError(f"the engine was asked for its status and said {verb} {values}")
        numbers: dict[str, Any] = json.loads(values["json"])
        return numbers

    def engine_log(self, lines: int = 200) -> str:
        """The last lines the engine printed."""
        return self.run(
            "ctl", ["tail", "-n", str(lines), "/var/log/gputopo/engine.log"], check=False
        ).out

    # -- fake tools ---------------------------------------------------------

    @contextmanager
    def fake_tools_of(self, node: str) -> Iterator[str]:
        """A block in which the files behind a node's fake tools may be edited; their folder."""
        keep = "rm -rf /etc/fakegpu.kept && cp -r /etc/fakegpu /etc/fakegpu.kept"
        restore = "rm -rf /etc/fakegpu && mv /etc/fakegpu.kept /etc/fakegpu"
        with self.temporarily(keep, restore, host=node):
            yield "/etc/fakegpu"


def default_project(purpose: str = "", folder: Path | None = None) -> str:
    """GPUTOPO_PROJECT, or the folder's own name with what the cluster is for behind it."""
    named = os.environ.get("GPUTOPO_PROJECT")
    return named or cluster_sh("project", folder=folder).stdout.strip() + purpose


def image(name: str, suite: str) -> str:
    """This checkout's image of that name (builder, ...) for a release."""
    return cluster_sh("image", name, suite=suite).stdout.strip()


def has_image(name: str, suite: str | None, folder: Path) -> bool:
    """Whether that image of this folder's was built for the release."""
    named = cluster_sh("image", name, suite=suite, folder=folder).stdout.strip()
    try:
        subprocess.run(["docker", "image", "inspect", named], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def cluster_sh(
    *args: str,
    project: str = "",
    suite: str | None = None,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs cluster.sh with this Python; `folder` as for `Cluster.up`."""
    own = {"GPUTOPO_PYTHON": sys.executable, "GPUTOPO_PROJECT": project, "SUITE": suite or ""}
    if folder:
        own["GPUTOPO_CHECKOUT"] = str(folder)
    given = {key: value for key, value in {**own, **(environ or {})}.items() if value}
    return subprocess.run(
        ["bash", CLUSTER_SH, *args],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
