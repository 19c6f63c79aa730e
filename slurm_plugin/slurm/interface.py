"""The nouns in which a SlurmClient asks and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from slurm_plugin.base.job_notes.records import GpuRequests

#: What `JobUpdate.begin_time` holds to say: as soon as Slurm can.
NOW = 0


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm knows it."""

    name: str
    state: tuple[str, ...]
    partitions: tuple[str, ...]
    weight: int
    #: That jobs may have: without those of CoreSpecCount and CPUSpecList.
    cpus: int
    memory_mb: int
    #: How many GPUs of each type there are; '' is the type of those without one.
    gpus: Mapping[str, int] = field(default_factory=dict)
    #: Slurm's indices of the GPUs in use.
    used: tuple[int, ...] = ()
    #: How many of each type are in use, 0 included.
    used_by_type: Mapping[str, int] = field(default_factory=dict)
    #: CPUs and memory that running jobs hold.
    alloc_cpus: int = 0
    alloc_memory_mb: int = 0
    #: The active ones.
    features: tuple[str, ...] = ()
    #: CPUs beside each GPU that are for jobs with GPUs alone (RestrictedCoresPerGPU).
    cpus_by_gpu: int = 0
    #: 0 where that is not known.
    sockets: int = 0
    #: Do jobs of one user (--exclusive=user, ExclusiveUser) or of one MCS label have it alone now?
    is_owned: bool = False
    #: Of each core.
    threads: int = 1

    @property
    def gpu_count(self) -> int:
        """GPUs of every type together."""
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that the controller still holds, be it over."""

    job_id: int
    name: str
    state: str
    #: Epochs, 0 until the job is over.
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One job that waits or holds resources: everything a scheduler must know of it.

    Times are epochs in seconds, 0 where Slurm has none yet. A field that Slurm leaves unset is 0,
    '' or (). The tasks of an array that wait together are one job.
    """

    job_id: int
    #: What an update calls the job: `7`, `4_1`, or `4_[2-9]` for tasks that wait together.
    name: str = ""
    #: The array that it belongs to.
    array_id: int = 0
    #: Its task number in the array, or those of the tasks that wait together (`2-9`).
    task: str = ""
    #: How many tasks it stands for.
    tasks: int = 1
    #: How many tasks of the array may run at a time (`%N`); 0 for any number.
    throttle: int = 0
    het_id: int = 0
    het_offset: int = 0
    user: str = ""
    uid: int = 0
    account: str = ""
    #: '' where the reader does not tell.
    qos: str = ""
    licenses: str = ""
    #: The user's own texts: whatever they contain, and never to be logged.
    job_name: str = ""
    command: str = ""
    partition: str = ""
    #: PENDING, RUNNING, SUSPENDED, CONFIGURING or COMPLETING, without Slurm's flags.
    state: str = ""
    #: Slurm's code, or its own sentence where it has one.
    reason: str = ""
    priority: int = 0
    submit: int = 0
    eligible: int = 0
    start: int = 0
    #: 0 while it waits: what Slurm says then is an estimate.
    end: int = 0
    #: 0 for no limit.
    time_limit_s: int = 0
    #: `afterok:12(unfulfilled),singleton(unfulfilled)`; '' for none.
    dependency: str = ""
    nodes: tuple[str, ...] = ()
    min_nodes: int = 0
    #: 0 for no upper bound.
    max_nodes: int = 0
    ntasks: int = 0
    #: By these Slurm may count its tasks anew; 0 for none, -1 where nobody tells.
    tasks_per_node: int = field(default=0, compare=False)
    tasks_per_gpu: int = field(default=0, compare=False)
    cpus: int = 0
    cpus_per_task: int = 0
    cpus_per_tres: str = ""
    memory_per_node_mb: int = 0
    memory_per_cpu_mb: int = 0
    memory_per_tres: str = ""
    #: Slurm's own texts: `gres/gpu:v100:2`, on 22.05 `gres:gpu:v100:2`, and per task on 24.11 and
    #: later `cpu=1,gres/gpu:v100=2`.
    tres_per_node: str = ""
    tres_per_job: str = ""
    tres_per_task: str = ""
    tres_per_socket: str = ""
    features: str = ""
    req_nodes: str = ""
    exc_nodes: str = ""
    reservation: str = ""
    exclusive: bool = False
    #: Its --sockets-per-node: for GPUs counted by socket a part of that request, else as `by_core`.
    sockets_per_node: int = 0
    #: As in ResourceRequest of protocol.py.
    by_core: bool = False
    by_thread: bool = False
    together: bool = False
    comment: str = ""
    admin_comment: str = ""
    #: Node -> Slurm's indices of the GPUs that the job holds there.
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: GPUs of which it has shares (shards, MPS) instead, by node; by the JSON readers alone.
    shared_gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def requests(self) -> GpuRequests:
        """The GPUs that it asks for."""
        by_node, by_job = self.tres_per_node, self.tres_per_job
        return GpuRequests(by_node, by_job, self.tres_per_task, self.tres_per_socket)

    @property
    def depends(self) -> bool:
        """Does it wait for other jobs?"""
        return bool(self.dependency)

    @property
    def held(self) -> bool:
        """Held by somebody (priority 0): no time will start it."""
        return self.priority == 0 and self.state == "PENDING"


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """What to change of pending jobs: None leaves a field alone, '' clears it."""

    #: An epoch, or NOW.
    begin_time: int | None = None
    #: As any release writes them: `gpu:s1:1`, `gres/gpu:s1:1` or `gres:gpu:s1:1`.
    tres_per_node: str | None = None
    tres_per_job: str | None = None
    tres_per_task: str | None = None
    tres_per_socket: str | None = None
    tres_bind: str | None = None
    req_nodes: str | None = None
    exc_nodes: str | None = None
    features: str | None = None
    #: The fewest and the most.
    num_nodes: tuple[int, int] | None = None
    min_cpus: int | None = None
    cpus_per_task: int | None = None
    min_cpus_per_node: int | None = None
    cpus_per_tres: str | None = None
    memory_per_node_mb: int | None = None
    memory_per_cpu_mb: int | None = None
    memory_per_tres: str | None = None
    admin_comment: str | None = None
    num_tasks: int | None = None
    #: In minutes, of running jobs, too.
    time_limit: int | None = None
    #: The site's part of the priority, around 0.
    site_factor: int | None = None
    #: A fixed priority, until the job is released.
    priority: int | None = None
    #: Slurm computes its priority again, and a job that was held may start.
    is_released: bool | None = None

    def at_submit(self) -> dict[str, str]:
        """The same for a job that is being submitted: what the bridge sets (docs/protocol.md)."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["min_nodes"], values["max_nodes"] = values.pop("num_nodes") or (None, None)
        values["pn_min_cpus"] = values.pop("min_cpus_per_node")
        return {f"set.{name}": str(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What Slurm gives a job that does not say, in a partition or anywhere; 0 for nothing."""

    cpus_per_gpu: int = 0
    #: Memory by GPU; where there is none, by CPU or by node.
    mem_gpu_mb: int = 0
    mem_cpu_mb: int = 0
    mem_node_mb: int = 0

    def over(self, others: JobDefaults) -> JobDefaults:
        """These, and the others' where there are none."""
        own = self if self.mem_cpu_mb or self.mem_node_mb else others
        return JobDefaults(
            self.cpus_per_gpu or others.cpus_per_gpu,
            self.mem_gpu_mb or others.mem_gpu_mb,
            own.mem_cpu_mb,
            own.mem_node_mb,
        )


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition and the nodes in it."""

    name: str
    nodes: tuple[str, ...]
    is_default: bool
    priority_tier: int = 1
    #: UP, DOWN, DRAIN (takes jobs no more) or INACTIVE (neither takes nor starts any).
    state: str = "UP"
    #: The most that a job may ask for; 0 for no limit.
    max_time_s: int = 0
    max_nodes: int = 0
    #: The most CPUs of a node, or of each of its sockets, that its jobs may have together.
    max_cpus_per_node: int = 0
    max_cpus_per_socket: int = 0
    #: The time limit of a job that names none; 0 for none.
    default_time_s: int = 0
    #: Whose jobs it takes alone; empty where it takes everybody's.
    allow_groups: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    #: Whose jobs it does not take.
    deny_accounts: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    #: A QOS whose limits hold for all its jobs; '' for none.
    qos: str = ""
    #: Its jobs close their nodes to other users (ExclusiveUser).
    closes_nodes: bool = False
    #: So many of its jobs may share cores, and whether they do without asking for it, too
    #: (OverSubscribe=YES:n, FORCE:n); 0: not even nodes (EXCLUSIVE).
    share: int = 1
    is_share_forced: bool = False
    defaults: JobDefaults = JobDefaults()
    #: How much longer than their limits its jobs may run: Slurm's words, '' for slurm.conf's.
    over_time_limit: str = ""
    #: The nodes that a job has at least.
    min_nodes: int = 0
    #: One of topology.yaml by its name; '' for the default one.
    topology: str = ""

    @property
    def limit_s(self) -> int:
        """The time limit of a job that names none, or the longest there is (s); 0 for neither."""
        return self.default_time_s or self.max_time_s

    @property
    def is_for_some(self) -> bool:
        """Does it not take everybody's jobs?"""
        rules = self.allow_groups, self.allow_accounts, self.allow_qos
        return any(rules) or bool(self.deny_accounts or self.deny_qos)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept for some users, or for maintenance. Times are epochs."""

    name: str
    start: int
    end: int
    nodes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    #: Comma-separated, '' for none.
    users: str = ""
    accounts: str = ""
    licenses: str = ""
    #: How many CPUs of its nodes it keeps; 0 where it counts something else.
    cpus: int = 0

    @property
    def is_maintenance(self) -> bool:
        """Is it for work on the nodes?"""
        return "MAINT" in self.flags


@dataclass(frozen=True, slots=True)
class License:
    """How many of one licence there are, and how many are free; of a layer of it (25.05) its own.

    A hierarchical resource (resources.yaml) has a row for each of its layers, all of one name.
    """

    name: str
    total: int
    free: int
    #: The nodes of the layer, as Slurm writes them; '' for a licence without layers.
    nodes: str = ""
    #: How the layers count: 1 one of them suffices, 2 and 3 all above a node; 0 without layers.
    mode: int = 0

    @property
    def label(self) -> str:
        """Its name, with the nodes of the layer."""
        return f"{self.name} on {self.nodes}" if self.nodes else self.name


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that an administrator set on what an owner's jobs may use."""

    #: `account research`, `user alice in account research`, `QOS normal`.
    owner: str
    #: Slurm's name: GrpTRES, MaxJobs, MaxTRESPU and so on.
    key: str
    #: `gres/gpu`, `cpu`, `jobs`.
    resource: str
    most: int
    #: None for a limit on each single job.
    used: int | None = None
