"""Everything the engine works with, built from one configuration and swapped as a whole."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from gres_topology import NodeTopology, TopologyError
from gres_topology.slurm_files import networks
from gres_topology.slurm_files.network import FLAT, Networks
from policies import Cluster, LooksAt, NodeState, Policy, Request
from policies.contract.bits import EXACT_GPUS
from policies.contract.hint_keys import BATCH, PATTERN, SENSITIVE
from policies.contract.interference import MEDIUM, SMALL, TINY
from policies.contract.nodes import Candidates, NodeTable, runs_of
from policies.horizon.usual import UsualCommunication
from policies.patterns.pattern import TABULATED
from slurm_plugin.act.enforcement import Enforcement, Select, Slots
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.genie.shaping import SCHEDULERS, Shaping
from slurm_plugin.act.genie.site import site_of
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.act.order.learned_durations import LearnedDurations
from slurm_plugin.base.job_notes.brackets import LOAN, SLOTS
from slurm_plugin.base.telemetry import Telemetry
from slurm_plugin.config import settings as configuration
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.learning import Teacher
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import Machines
from slurm_plugin.decide.neighbours import Neighbours, Sharing
from slurm_plugin.decide.networks import NetworksInForce
from slurm_plugin.decide.rules import Rules
from slurm_plugin.decide.site_policies import SitePolicies
from slurm_plugin.errors import ConfigError, SlurmError
from slurm_plugin.learn.job_profiles import Learned
from slurm_plugin.learn.part_marks import marks as part_marks
from slurm_plugin.learn.part_marks.marks import MarksInForce
from slurm_plugin.queue.coming import Coming
from slurm_plugin.queue.snapshot import Detail, read_snapshot
from slurm_plugin.queue.watcher import Watcher
from slurm_plugin.slurm import choose
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.job_entries.client import EntryClient, EntryKeeper
from slurm_plugin.slurm.job_entries.saved import NAME as JOB_ENTRIES

logger = logging.getLogger(__name__)

#: What finished jobs taught, in the state directory.
LEARNED = "learned-profiles.json"
#: How long a start waits for Slurm to say what runs.
FIRST_READING_S = 2.0
#: How long a new table of nodes is looked over before questions may go by it; and afterwards.
LOOK_OVER_S, LOOK_ON_S = 0.3, 5.0
#: The pattern of a job that names none.
USUAL = "ring"
_OTHER_PATTERNS = tuple(one for one in TABULATED if one != USUAL)
#: Job sizes per node whose tables are computed before the first question.
WARM_GPUS = 8
#: Larger nodes are computed ahead where their GPUs can have no more free sets that differ.
WARM_MASKS = 600


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration, ready to answer."""

    config: Config
    decider: Decider
    #: Answers submits and placements; shaping, where there is any, around the way chosen.
    enforcement: Enforcement | Shaping
    neighbours: Neighbours
    #: Changes Slurm; the queue is read by the watcher alone.
    client: SlurmClient
    watcher: Watcher
    #: What the engine knows of its entries in AdminComment.
    keeper: EntryKeeper
    telemetry: Telemetry
    #: Parts that the site marked broken or slow.
    marks: MarksInForce
    durations: LearnedDurations
    #: What submits are answered from; None in the select mode.
    cache: CapacityCache | None = None
    #: GPUs that are kept for loans; None in the slots mode.
    reserved: LoanReservations | None = None
    #: None where no partition is shaped.
    shaping: Shaping | None = None

    @property
    def machines(self) -> Machines:
        """The declared nodes."""
        return self.decider.machines

    def looks_at(self, *what: LooksAt) -> bool:
        """Does a policy of the rules go by one of these?"""
        return any(policy.looks_at.intersection(what) for policy in self.policies())

    def policies(self) -> list[Policy]:
        """The policies that rules name, each once."""
        personal = (*self.config.accounts.values(), *self.config.users.values())
        is_off = {"off"} if all(one.mode in (None, "off") for one in personal) else set()
        rules = self.config.partitions.values()
        names = {rule.policy for rule in rules if rule.mode not in is_off}
        names |= {rule.policy for rule in personal if rule.policy}
        return [self.decider.get_policy(name) for name in sorted(names)]

    def tables_bytes(self) -> int | None:
        """Memory of the policies' tables, those they share once; None where they have none."""
        tables = {policy.tables for policy in self.policies() if policy.tables is not None}
        return sum(one.size_bytes() for one in tables) if tables else None


def load(
    path: Path,
    cache: CapacityCache | None = None,
    reserved: LoanReservations | None = None,
    keeper: EntryKeeper | None = None,
    telemetry: Telemetry | None = None,
    marks: MarksInForce | None = None,
    durations: LearnedDurations | None = None,
    usual: UsualCommunication | None = None,
    config: Config | None = None,
    *,
    in_haste: bool = False,
) -> Setup:
    """Read, build and warm up; with `config` what stands in force is read anew beside the file.

    `in_haste`: only what all jobs need is warm, because nobody answers yet.

    `cache`, `reserved`, `keeper`, `telemetry`, `marks`, `durations` and `usual` live on from one
    configuration to the next.

    Raises ConfigError naming file, line and key, SlurmError where the chosen Slurm client cannot
    work on this host.
    """
    config = config or configuration.load(path)
    choose.check(config.slurm)
    marks = marks or MarksInForce()
    decider, neighbours = _deciding(config, marks)
    is_slots = config.enforcement == "slots"
    cache = (cache or CapacityCache()) if is_slots else None
    reserved = None if is_slots else reserved or LoanReservations()
    inner = _enforcing(config, decider, cache, reserved)
    shaping = None
    if config.genie is not None:
        site = site_of(config.genie, decider.machines, str(config.path))
        scheduler = SCHEDULERS[config.genie.algorithm]
        shaping = Shaping(inner, site, decider.rule, scheduler=scheduler)
    keeper = _keeping(config, keeper or EntryKeeper())
    client, reader = (EntryClient(choose.client(config.slurm), keeper) for _ in range(2))
    telemetry = telemetry or Telemetry()
    durations = durations or LearnedDurations()
    durations.open(config.state_dir)
    neighbours.took_s = durations.took_s
    neighbours.usual = usual or neighbours.usual
    setup = Setup(
        config,
        decider,
        enforcement=shaping or inner,
        neighbours=neighbours,
        client=client,
        watcher=Watcher(reader, telemetry=telemetry, look=durations.look),
        keeper=keeper,
        telemetry=telemetry,
        marks=marks,
        durations=durations,
        cache=cache,
        reserved=reserved,
        shaping=shaping,
    )
    warm_up(setup)
    if not in_haste:
        warm_patterns(setup, lambda: True)
        _settle()
    neighbours.is_wanted = setup.looks_at(LooksAt.RUNNING_JOBS, LooksAt.QUEUE)
    if setup.looks_at(LooksAt.RUNNING_JOBS):
        # Who looks at the queue alone decides well enough until that has been read.
        _first_reading(setup)
    configuration.keep(config)
    return setup


def _deciding(config: Config, marks: MarksInForce) -> tuple[Decider, Neighbours]:
    """Who decides on the nodes as they are marked, and what is known of the jobs that run."""
    machines = load_machines(config, marks.update(part_marks.path_in(config.state_dir)))
    learned = Learned(config.state_dir / LEARNED)
    chosen = SitePolicies(config, learned)
    teacher = Teacher(learned, machines, chosen.update)
    neighbours = Neighbours(machines, config.topo_aware.max_age_s, teacher, Coming())
    decider = Decider(
        machines,
        rule=Rules(config),
        waiting=config.waiting,
        get_policy=chosen,
        neighbours=neighbours.jobs,
        networks=NetworksInForce(networks_of(config)),
        ahead=neighbours.ahead,
        sharing=Sharing(neighbours, chosen.interference),
    )
    return decider, neighbours


def _enforcing(
    config: Config,
    decider: Decider,
    cache: CapacityCache | None,
    reserved: LoanReservations | None,
) -> Enforcement:
    """The site's way of enforcing; one of `cache` and `reserved` is there, by the way."""
    if cache is not None:
        at_once = config.notes == "admin-comment"
        return Slots(decider, cache, config.slots.lease_s, at_once=at_once)
    assert reserved is not None
    return Select(decider, reserved)


def _keeping(config: Config, keeper: EntryKeeper) -> EntryKeeper:
    """The keeper of our entries about jobs, as this configuration wants them kept."""
    foreign = LOAN if config.enforcement == "slots" else SLOTS
    keeper.store.open(config.state_dir / JOB_ENTRIES, foreign=foreign)
    keeper.store.show_notes(config.notes == "admin-comment")
    keeper.store.notes_by_plugin = config.enforcement == "select"
    keeper.may_write = lambda: not config.kill_switch.exists()
    return keeper


def _first_reading(setup: Setup) -> None:
    """Learn who runs beside whom before the first question; a Slurm that is down is not awaited."""
    patience_s = min(FIRST_READING_S, setup.config.slurm.timeout_s)
    client = choose.client(replace(setup.config.slurm, timeout_s=patience_s))
    try:
        snapshot = read_snapshot(client, Detail.JOBS)
        running = setup.neighbours.running_in(snapshot.jobs)
        setup.neighbours.take(running, snapshot.began, Coming(snapshot.jobs, snapshot.at))
    except SlurmError as error:
        logger.warning("who runs beside whom is not known yet: %s", error)


def networks_of(config: Config) -> Networks | None:
    """What topology.conf or topology.yaml says; ConfigError where it cannot be read."""
    if config.topology_conf is None:
        return None
    try:
        found = networks.read(config.topology_conf)
    except TopologyError as error:
        raise ConfigError(f"topology_conf: {error}") from error
    joined = {n for net in found.by_name.values() for domain in net.domains for n in domain.nodes}
    alone = sorted(name for item in config.nodes for name in item.nodes if name not in joined)
    if alone and found.default.kind != FLAT:
        listed = ", ".join(alone[:5]) + (", ..." if len(alone) > 5 else "")
        source = found.default.source
        logger.warning("%s: %d nodes are below no switch: %s", source, len(alone), listed)
    return found


def warm_up(setup: Setup) -> None:
    """Ask every policy once per machine kind and job size, so that tables are there.

    As jobs without a hint do: `warm_patterns` has the others, once the engine answers.
    """
    for policy in setup.policies():
        for topology in _kinds(setup):
            _warm(policy, USUAL, topology, (1 << topology.gpus) - 1)
    _settle()


def warm_patterns(setup: Setup, is_wanted: Callable[[], bool]) -> None:
    """The same for jobs that name another pattern; in a thread."""
    policies = [policy for policy in setup.policies() if PATTERN in policy.hints]
    if not policies:
        return
    site = (pattern.internal for pattern in setup.config.patterns.values())
    for pattern in (*_OTHER_PATTERNS, *site):
        for policy in policies:
            for topology in _kinds(setup):
                if not is_wanted():
                    return
                _warm(policy, pattern, topology, (1 << topology.gpus) - 1)


def _settle() -> None:
    """Keep what was just made out of every later collection: it lives long, and all would wait.

    The garbage that came with it is young, and collected before.
    """
    gc.collect(1)
    gc.freeze()


def warm_masks(setup: Setup, is_wanted: Callable[[], bool]) -> None:
    """Ask every policy about every set of free GPUs, where they are few; in a thread.

    So no first question of a kind is slow; until this is done it may be.
    """
    for policy in setup.policies():
        for topology in _kinds(setup):
            # Up to that size all sets of a pattern are tabulated in one go.
            is_searched = topology.gpus > EXACT_GPUS and PATTERN in policy.hints
            for pattern in (USUAL, *(_OTHER_PATTERNS if is_searched else ())):
                for free in _masks(topology):
                    if not is_wanted():
                        return
                    _warm(policy, pattern, topology, free)


def _masks(topology: NodeTopology) -> Iterable[int]:
    """All sets of free GPUs of a small node; of a larger one those that differ, if they are few."""
    if topology.gpus <= WARM_GPUS:
        return range(1, 1 << topology.gpus)
    return filter(None, runs_of(topology).each_least(topology.gpus, WARM_MASKS))


def look_over(
    setup: Setup,
    table: NodeTable,
    limit_s: float = LOOK_ON_S,
    may_go_on: Callable[[float], bool] = lambda end: True,
) -> bool:
    """Ask every policy about a job of each size on these nodes, which rank them once.

    So no first question is slow about a table that just came. Nobody else may use it yet. Whether
    all was asked within so many seconds; `may_go_on` may wait, until that end, before each.
    """
    is_done = _ask_about(setup, table, time.monotonic() + limit_s, may_go_on)
    _settle()
    return is_done


def _ask_about(
    setup: Setup, table: NodeTable, end: float, may_go_on: Callable[[float], bool]
) -> bool:
    room = max((state.free.bit_count() for state in table.alike.states()), default=0)
    everywhere = Candidates(table, (1 << len(table.names)) - 1, {})
    policies = setup.policies()
    running = setup.neighbours.jobs() if setup.looks_at(LooksAt.RUNNING_JOBS) else ()
    # In turns: what is left when the time is over is not all one policy's.
    usual = zip_longest(*(_usual(policy, min(WARM_GPUS, room)) for policy in policies))
    for policy, request in chain.from_iterable(zip(policies, turn, strict=True) for turn in usual):
        if time.monotonic() > end or not may_go_on(end):
            return False
        if request is not None:
            jobs = running if LooksAt.RUNNING_JOBS in policy.looks_at else ()
            _ask(policy, request, Cluster(everywhere, jobs))
    return True


def _usual(policy: Policy, most: int) -> Iterator[Request]:
    """What jobs ask for: one to `most` GPUs, and what their hints make of it."""
    sizes = range(1, most + 1)
    yield from (Request((gpus,)) for gpus in sizes)
    if SENSITIVE in policy.hints:
        yield from (Request((gpus,), sensitive=False) for gpus in sizes)
    if BATCH in policy.hints:
        for batch in (TINY, SMALL, MEDIUM, MEDIUM + 1):
            yield from (Request((gpus,), options={"batch": str(batch)}) for gpus in sizes)


def _kinds(setup: Setup) -> list[NodeTopology]:
    kinds = {m.topology.shape: m.topology for m in setup.machines.values() if m.topology}
    return list(kinds.values())


def _warm(policy: Policy, pattern: str, topology: NodeTopology, free: int) -> None:
    cluster = Cluster({topology.name: NodeState(topology.name, topology, free)})
    for gpus in range(1, min(WARM_GPUS, free.bit_count()) + 1):
        _ask(policy, Request((gpus,), pattern=pattern), cluster)


def _ask(policy: Policy, request: Request, cluster: Cluster) -> None:
    try:
        policy.place(request, cluster)
    except Exception:
        asked = f"{request.gpus_per_node[0]} GPUs in a {request.pattern}"
        logger.exception("%s fails for %s, asked ahead", policy.name, asked)
