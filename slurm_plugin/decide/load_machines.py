"""From node sets to machines: topology, index mapping, and whether the hardware still fits.

A mistake in the configuration raises ConfigError with its line. A node that cannot be trusted (no
mapping, other hardware) is left to Slurm: the PluginError becomes its `problem`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from gres_topology import NodeTopology, TopologyError, catalog, difference, read, slices
from gres_topology.errors import did_you_mean
from gres_topology.impaired import impaired
from gres_topology.slurm_files import gres_file, mapping
from gres_topology.slurm_files.gres_file import NodeDevices
from gres_topology.topology import Impairment
from policies.bandwidth.calibrated import Calibration
from slurm_plugin.config.sections import COLLECTED, GRES_CONF, NodeSet
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.machines import Machine, Machines
from slurm_plugin.errors import ConfigError, Mistakes, PluginError
from slurm_plugin.learn import by_feature
from slurm_plugin.learn.collected import NodeRecord, Store
from slurm_plugin.learn.link_calibration import model_file
from slurm_plugin.learn.link_calibration.model_file import calibrated
from slurm_plugin.learn.part_marks import marks as part_marks
from slurm_plugin.learn.part_marks.marks import Marks, MarksInForce

logger = logging.getLogger(__name__)


def load_machines(config: Config, marks: Marks | None = None) -> Machines:
    """Every declared node's machine, with what is marked on it (by default as the site's file has).

    Raises ConfigError for a topology that cannot be read, a permutation that cannot fit, or a
    pattern with more ranks than any node has GPUs.
    """
    if marks is None:
        marks = MarksInForce().update(part_marks.path_in(config.state_dir))
    loader = _Loader(config, marks)
    machines = loader.load()
    # A set may have no nodes at the moment.
    known = [*loader.declared, *(m.topology for m in machines.values() if m.topology)]
    most = max((topology.gpus for topology in known), default=None)
    for name, pattern in config.patterns.items():
        if most is not None and pattern.ranks > most:
            raise ConfigError(
                f"{config.where(pattern.line)}: patterns.{name}: {pattern.ranks} ranks; the largest"
                f" declared node has {most} GPUs, so no job could be placed by it"
            )
    return machines


def node_sets(config: Config) -> tuple[NodeSet, ...]:
    """The sets of nodes, those by features with the nodes that were found last.

    A damaged file counts as none found, and costs a line in the log.
    """
    if not any(one.features for one in config.nodes):
        return config.nodes
    try:
        found = by_feature.read(config.state_dir)
    except PluginError as error:
        logger.error("%s; nodes declared by features are Slurm's own choice", error)
        found = {}
    sets, taken = [], {name for one in config.nodes for name in one.nodes}
    for one in config.nodes:
        names = [name for name in found.get(one.features, ()) if name not in taken]
        sets.append(replace(one, nodes=tuple(names)) if one.features else one)
        taken.update(names)
    return tuple(sets)


class _Loader:
    def __init__(self, config: Config, marks: Marks) -> None:
        self._config = config
        self._marks = marks
        self._store = Store(config.state_dir)
        self._records: dict[str, NodeRecord] = {}
        self._damage = ""
        self._domains: dict[str, str] = {}
        try:
            self._domains = self._store.domains()
        except PluginError as error:
            logger.error("%s; which nodes NVLink joins is not known", error)
        try:
            self._records = self._store.nodes()
        except PluginError as error:
            self._damage = str(error)
            logger.error("%s", error)
        #: The topologies that sets name.
        self.declared: list[NodeTopology] = []
        #: What each gres.conf says, or why it cannot be read.
        self._devices: dict[Path, NodeDevices | str] = {}
        self._stated: dict[tuple[str, mapping.SlurmIndex], mapping.SlurmIndex] = {}
        self._shared: dict[tuple[object, ...], Machine] = {}
        self._models: dict[Path, Calibration] = {}
        self._calibrated: dict[tuple[Path, str], NodeTopology] = {}

    def load(self) -> Machines:
        machines: dict[str, Machine] = {}
        mistakes = Mistakes()
        for i, node_set in enumerate(node_sets(self._config)):
            where = f"{self._config.where(node_set.line)}: nodes[{i}]"
            with mistakes.caught():
                declared = self._declared(node_set, where)
                self.declared += [declared] if declared else []
                self._read_model(node_set, declared, where)
                self._check_slices(node_set, declared, where)
                for name in node_set.nodes:
                    try:
                        machines[name] = self._machine(name, node_set, declared)
                    except (PluginError, TopologyError) as problem:
                        machines[name] = Machine(declared, problem=" ".join(str(problem).split()))
        mistakes.settle()
        return machines

    def _declared(self, node_set: NodeSet, where: str) -> NodeTopology | None:
        """The set's topology; None where every node has its own, collected one."""
        if node_set.topology == COLLECTED:
            return None
        try:
            if node_set.topology in catalog.names():
                topology = catalog.load(node_set.topology)
            else:
                path = self._config.path.parent / node_set.topology
                if not path.exists():
                    raise ConfigError(
                        f"{where}.topology: {node_set.topology!r} is neither a machine of the"
                        f" catalog ({', '.join(catalog.names())}), nor a file, nor {COLLECTED!r}"
                        f"{did_you_mean(node_set.topology, catalog.names())}"
                    )
                topology = read(path)
        except TopologyError as error:
            raise ConfigError(f"{where}.topology: {error}") from error
        if topology.gpus == 0:
            raise ConfigError(f"{where}.topology: {node_set.topology} has no GPUs")
        if isinstance(node_set.slurm_index, tuple):
            try:
                mapping.explicit(topology, node_set.slurm_index)
            except TopologyError as error:
                raise ConfigError(f"{where}.slurm_index: {error}") from error
        return topology

    def _read_model(self, node_set: NodeSet, declared: NodeTopology | None, where: str) -> None:
        """Raises ConfigError for a mistake in the file: it is not a problem of each node."""
        path = node_set.bandwidth_model
        if path is None:
            return
        try:
            self._models[path] = model_file.read_model(path)
            if declared is not None:
                calibrated(declared, self._models[path], path)
        except PluginError as error:
            raise ConfigError(f"{where}.bandwidth_model: {error}") from error

    def _check_slices(self, node_set: NodeSet, declared: NodeTopology | None, where: str) -> None:
        """Raises ConfigError for slices that these nodes cannot have."""
        if node_set.slices and self._config.enforcement != "select":
            raise ConfigError(f"{where}.slices: expected enforcement: select; slots are whole GPUs")
        try:
            if node_set.slices and declared is not None:
                slices.declared(replace(declared, model=None), node_set.slices)
        except TopologyError as error:
            raise ConfigError(f"{where}.slices: {error}") from error

    def _with_model(self, topology: NodeTopology, node_set: NodeSet) -> NodeTopology:
        """The topology with its set's bandwidth model; one object for all nodes of a shape."""
        path = node_set.bandwidth_model
        if path is None:
            return topology
        key = (path, topology.shape)
        if key not in self._calibrated:
            self._calibrated[key] = calibrated(topology, self._models[path], path)
        return self._calibrated[key]

    def _with_marks(self, name: str, topology: NodeTopology) -> NodeTopology:
        """The topology with what is marked on the node."""
        if name not in self._marks:
            return topology
        parts: list[Impairment] = []
        for mark in self._marks[name]:
            try:
                impaired(topology, [mark.impairment()])
                parts.append(mark.impairment())
            except TopologyError as error:
                logger.error("mark of %s is left out: %s", name, error)
        return impaired(topology, parts)

    def _machine(self, name: str, node_set: NodeSet, declared: NodeTopology | None) -> Machine:
        record = self._records.get(name)
        collected = None if record is None else self._store.topology(record.latest)
        topology = self._accepted(name, collected, node_set) if declared is None else declared
        if declared is not None and collected is not None:
            # A catalog machine says nothing about memory size, which the model names.
            self._same(name, replace(declared, model=None), collected, "declared")
        order = self._order(name, node_set, topology, collected)
        topology = self._with_marks(name, self._with_model(topology, node_set))
        # Parts that are marked alike may be so for other reasons.
        whys = tuple(one.why for one in topology.impairments)
        domain = self._domains.get(name)
        key = (topology.shape, order, node_set.slices, whys, domain)
        if key not in self._shared:
            model = None if declared is not None else topology.model
            made = _made(topology, order, node_set.slices, model)
            self._shared[key] = replace(made, domain=domain)
        return self._shared[key]

    def _accepted(
        self, name: str, collected: NodeTopology | None, node_set: NodeSet
    ) -> NodeTopology:
        if collected is None:
            missing = f"not collected yet; run gputopo topology collect {name}"
            raise PluginError(self._damage or missing)
        accepted = self._store.topology(self._records[name].accepted)
        if node_set.slurm_index == GRES_CONF:
            # The mapping is derived from the minors just read, so they may change.
            accepted = replace(accepted, minors=collected.minors)
        self._same(name, accepted, collected, "accepted")
        # A mark is a share of what the node had when it was whole.
        return accepted if name in self._marks else collected

    def _same(self, name: str, expected: NodeTopology, found: NodeTopology, what: str) -> None:
        marked = [mark.gpus for mark in self._marks.get(name, ())]
        differences = difference(_as_coarse(_but(marked, expected, found), found), found)
        if differences:
            more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
            raise PluginError(f"its hardware is not the {what} one: {differences[0]}{more}")

    def _order(
        self, name: str, node_set: NodeSet, topology: NodeTopology, collected: NodeTopology | None
    ) -> tuple[int, ...] | None:
        """Slurm's GPU -> the topology's, None for the identity; raises where unsure."""
        known = collected if collected is not None else topology
        index = node_set.slurm_index
        if index == GRES_CONF:
            order = self._by_gres_conf(name, node_set.gres_conf, known)
        else:
            stated = index if isinstance(index, tuple) else tuple(range(topology.gpus))
            # Checked once for all nodes of a shape.
            key = (topology.shape, stated)
            if key not in self._stated:
                self._stated[key] = mapping.explicit(topology, stated)
            order = self._stated[key]
            self._contradict(name, node_set, known, order)
        return None if order == tuple(range(len(order))) else order

    def _contradict(
        self, name: str, node_set: NodeSet, known: NodeTopology, stated: mapping.SlurmIndex
    ) -> None:
        """Refuse a stated mapping that the minors and gres.conf prove wrong."""
        if isinstance(self._devices_of(node_set.gres_conf), str):
            return
        try:
            proven = self._by_gres_conf(name, node_set.gres_conf, known)
        except (PluginError, TopologyError):
            # Nothing can be proven (no minors, say): the administrator's word counts.
            return
        if proven != stated:
            raise PluginError(
                f"slurm_index says {list(stated)}, but the device minors or addresses and"
                f" {node_set.gres_conf} say {list(proven)}; set slurm_index: {GRES_CONF}"
            )

    def _devices_of(self, path: Path) -> NodeDevices | str:
        if path not in self._devices:
            try:
                self._devices[path] = gres_file.load_devices(path)
            except TopologyError as error:
                self._devices[path] = str(error)
        return self._devices[path]

    def _by_gres_conf(self, name: str, path: Path, known: NodeTopology) -> mapping.SlurmIndex:
        """The topology's GPU of each that slurmd counts by this gres.conf."""
        devices = self._devices_of(path)
        if isinstance(devices, str):
            # One made anew: with each raise the same one would hold a traceback more.
            raise TopologyError(devices)
        files, detection = devices.files(name), devices.detected_by(name)
        if not files and not detection:
            raise PluginError(f"{path} has no File= of a GPU for this node")
        return mapping.from_gres_conf(known, files, detection)


def _made(
    topology: NodeTopology,
    order: tuple[int, ...] | None,
    words: tuple[str, ...],
    model: str | None,
) -> Machine:
    """A kind of node; raises TopologyError for slices that it cannot have."""
    if not words:
        return Machine(topology, order)
    sliced = slices.declared(replace(topology, model=model), words)
    whole = sliced.of_profile.get("", 0)
    return Machine(topology, sliced.parents, sliced=Machine(sliced), whole=whole)


def _but(
    marked: Collection[tuple[int, ...]], expected: NodeTopology, found: NodeTopology
) -> NodeTopology:
    """What is expected, but for the links of marked parts: those may be as they are found."""
    if not marked or expected.gpus != found.gpus:
        return expected
    gpus = {part[0] for part in marked if len(part) == 1}
    pairs = {frozenset(part) for part in marked}
    count = range(expected.gpus)
    kinds = tuple(
        tuple(
            (found if {i, j} & gpus or frozenset((i, j)) in pairs else expected).kinds[i][j]
            for j in count
        )
        for i in count
    )
    return replace(expected, kinds=kinds)


def _as_coarse(expected: NodeTopology, found: NodeTopology) -> NodeTopology:
    """What is expected, in no more detail than the node's tool gives.

    rocm-smi says XGMI for every pair that the fabric reaches, over any number of hops and links, so
    such a cell agrees with whatever was declared.
    """
    if expected.gpus != found.gpus:
        return expected
    kinds = tuple(
        tuple("XGMI" if there == "XGMI" else here for here, there in zip(a, b, strict=True))
        for a, b in zip(expected.kinds, found.kinds, strict=True)
    )
    return replace(expected, kinds=kinds)
