"""What the page is made of: Slurm, the engine and the decision log, each read for all viewers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gres_topology import Network, TopologyError
from gres_topology.slurm_files import networks
from slurm_plugin.base import client, whole_file
from slurm_plugin.base.log_lines import Line, LineReader
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.config.settings import Config
from slurm_plugin.decide import decision_log
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import Machine, Machines
from slurm_plugin.errors import EngineDown, PluginError
from slurm_plugin.learn import by_feature
from slurm_plugin.learn.part_marks import marks
from slurm_plugin.queue.free_history import FreeHistory, FreeReading
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.queue.watcher import Watcher
from slurm_plugin.slurm import choose
from slurm_plugin.slurm.job_entries.saved import NAME, readable
from slurm_plugin.slurm.runner import ProcessRunner
from slurm_plugin.tell.explain import search, slurm_says
from slurm_plugin.tell.web.decisions import DecisionTail
from slurm_plugin.tell.web.identity import name_of
from slurm_plugin.tell.why.reading import ExtrasReader
from slurm_plugin.tell.why.state import Extras

logger = logging.getLogger(__name__)

NO_CONFIG = "This host has no gputopo.yaml: the engine and its log are not known."
#: Seconds until machines that could not be read are read again.
AGAIN_S = 5.0
#: Seconds that the engine has to say how it is.
ENGINE_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineState:
    """Whether the engine runs, and how fast it answers."""

    is_up: bool
    #: What is wrong; '' where nothing is.
    problem: str = ""
    #: Verb -> p50, p99 and max in milliseconds.
    answer_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that is read; each function blocks and is to be called in a thread."""

    watcher: Watcher
    extras: Callable[[Snapshot], Extras]
    engine: Callable[[], EngineState]
    decisions: DecisionTail
    machines: Machines = field(default_factory=dict)
    #: The network that gputopo.yaml names, where slurmctld does not say which it has in force.
    network: Network | None = None
    #: A job's lines of the decision log, as `LogIndex.find`, and the whole log; they raise OSError.
    records_of: Callable[[int, LineReader, Callable[[], bool]], list[Line]] = (
        lambda job, reader, is_over: []
    )
    #: Keeps up with the log, so that nobody who asks has to wait for that.
    follow: Callable[[], None] = lambda: None
    all_records: Callable[[], Iterable[Line]] = lambda: ()
    #: What the engine noted of free GPUs since an epoch, as `FreeHistory.checked`.
    free_readings: Callable[[float], list[FreeReading]] = lambda first: []
    #: A uid's login name, or its digits.
    name_of: Callable[[int], str] = name_of
    #: The site's lending, where it is known.
    lending: RemoteConfig | None = None
    #: Uids that may see every job.
    operators: frozenset[int] = frozenset((0,))
    #: Said on the page as it is: a recorded day, jobs that Slurm hides.
    notices: tuple[str, ...] = ()


class MachinesInForce(Mapping[str, Machine]):
    """A site's machines: read again where marks changed, or nodes that features declare."""

    def __init__(self, config: Config) -> None:
        self._config, self._path = config, marks.path_in(config.state_dir)
        self._marks = marks.MarksInForce()
        self._found = config.state_dir / by_feature.NAME
        self._machines = self._read()

    def _read(self) -> Machines:
        self._found_at, self._again_at = whole_file.stamp(self._found), float("inf")
        return load_machines(self._config, self._marks.update(self._path))

    def _now(self) -> Machines:
        is_found = self._found_at == whole_file.stamp(self._found)
        is_due = time.monotonic() >= self._again_at
        if not is_found or is_due or self._marks.is_outdated(self._path):
            try:
                self._machines = self._read()
            except PluginError as error:
                # A topology's file, say, is being written.
                logger.error("%s; nodes are drawn as before", error)
                self._again_at = time.monotonic() + AGAIN_S
        return self._machines

    def __getitem__(self, name: str) -> Machine:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


def _entries(config: Config) -> dict[int, str]:
    """Our entries about jobs, where the engine keeps them to itself."""
    if config.notes != "engine":
        return {}
    kept = readable(config.state_dir / NAME)
    return {job: one.text() for job, one in kept.items()}


def engine_state(config: Config) -> EngineState:
    """What the engine says on its socket."""
    try:
        numbers = client.status(config.socket, ENGINE_S)
    except (EngineDown, ValueError) as error:
        return EngineState(False, str(error))
    return EngineState(True, "", numbers.get("answer_ms", {}))


def of_site(config: Config | None, operators: frozenset[int]) -> Sources:
    """The sources of the site that this host belongs to. Raises PluginError.

    Without a configuration (a login node, say) there is no engine and no log to tell of.
    """
    settings = config.slurm if config else SlurmConfig()
    choose.check(settings)
    run = ProcessRunner(settings.bin_dir, settings.timeout_s)
    operators |= slurm_says.operators(run)
    sources = Sources(
        Watcher(choose.client(settings)),
        ExtrasReader(run, lambda: {} if config is None else _entries(config)),
        (lambda: EngineState(False)) if config is None else lambda: engine_state(config),
        DecisionTail(config.decision_log if config else None),
        operators=operators,
        notices=() if config else (NO_CONFIG,),
    )
    if config is None:
        return sources
    index = search.LogIndex(config.decision_log)
    return replace(
        sources,
        machines=MachinesInForce(config),
        network=_network(config),
        records_of=index.find,
        follow=index.follow,
        all_records=lambda: decision_log.read(config.decision_log),
        free_readings=FreeHistory(config.decision_log).checked,
        lending=config.remote,
    )


def _network(config: Config) -> Network | None:
    if config.topology_conf is None:
        return None
    try:
        return networks.read(config.topology_conf).default
    except TopologyError as error:
        raise PluginError(str(error)) from error
