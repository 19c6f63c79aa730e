"""The simulator under a slurm.conf: who has room, who goes first, and when Slurm looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gres_topology.catalog import load
from policies.registry import registry
from simulation import SimJob, SimulationError, Simulator
from simulation.core.slurm_site import (
    NodeRoom,
    Scheduling,
    SitePartition,
    SlurmSite,
    read,
    seconds,
)
from simulation.models.slurm import SlurmSimulator

MINSKY = {"m1": load("minsky")}
TWO = {"m1": load("minsky"), "m2": load("minsky")}
FIRST = registry.get("first-fit")
ROOT = Path(__file__).resolve().parents[3]
#: Looks at once at every submit, as the clusters of the live tests do.
PROMPT = Scheduling(batch_sched_delay_s=0.0)


def times(jobs, nodes=MINSKY, site=None, how=None):
    site = site or SlurmSite(how or PROMPT)
    records = SlurmSimulator(nodes, FIRST, site).run(jobs).records
    return {record.job.job_id: (record.start_s, record.end_s) for record in records}


STARTS = [
    ("a job that has room starts at its submit", {}, [SimJob(1, (4,), 10.0, 7.5)], {1: 7.5}),
    ("with defer it waits for a pass of the background loop", {"defer": True},
     [SimJob(1, (4,), 10.0, 7.5)], {1: 8.0}),
    ("and for batch_sched_delay after the last pass", {"defer": True, "batch_sched_delay_s": 3.0},
     [SimJob(1, (1,), 10.0, 7.5), SimJob(2, (1,), 10.0, 8.2)], {1: 8.0, 2: 11.0}),
    ("the end of a job starts the next at once", {},
     [SimJob(1, (4,), 10.2), SimJob(2, (4,), 10.0)], {2: 10.2}),
    ("backfill lets pass at its interval, not before", {"bf_interval_s": 30.0},
     [SimJob(1, (3,), 100.0, walltime_s=120.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=60.0)], {2: 100.0, 3: 30.0}),
    ("a shorter interval lets it pass sooner", {"bf_interval_s": 5.0},
     [SimJob(1, (3,), 100.0, walltime_s=120.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=60.0)], {3: 5.0}),
    ("by its limit it would delay the first of the queue", {"bf_interval_s": 30.0},
     [SimJob(1, (3,), 100.0, walltime_s=120.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=180.0)], {2: 100.0, 3: 110.0}),
    ("sched/builtin lets nobody pass", {"backfill": False},
     [SimJob(1, (3,), 100.0, walltime_s=120.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=60.0)], {3: 110.0}),
    # Job 2 is planned at 90 s, which bf_resolution puts at 60 s: a limit of 60 s runs into it.
    ("plans go by steps of bf_resolution", {"bf_interval_s": 30.0},
     [SimJob(1, (3,), 90.0, walltime_s=90.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=50.0)], {2: 90.0, 3: 100.0}),
    ("finer steps find the room", {"bf_interval_s": 30.0, "bf_resolution_s": 1.0},
     [SimJob(1, (3,), 90.0, walltime_s=90.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=50.0)], {2: 90.0, 3: 30.0}),
    ("launch and completion hold the GPUs beside the work", {"launch_s": 1.0, "complete_s": 0.5},
     [SimJob(1, (4,), 10.0), SimJob(2, (4,), 10.0)], {2: 11.5}),
    ("the higher priority goes first", {},
     [SimJob(1, (4,), 10.0), SimJob(2, (4,), 10.0), SimJob(3, (4,), 10.0, 1.0, priority=5)],
     {3: 10.0, 2: 20.0}),
    ("only so many are looked at: bf_max_job_test", {"bf_interval_s": 30.0, "bf_max_job_test": 1},
     [SimJob(1, (3,), 100.0, walltime_s=120.0), SimJob(2, (4,), 10.0, walltime_s=60.0),
      SimJob(3, (1,), 20.0, 1.0, walltime_s=60.0)], {3: 110.0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "jobs", "starts"), [pytest.param(*row[1:], id=row[0]) for row in STARTS]
)
def test_when_jobs_start(how, jobs, starts):
    found = times(jobs, how=replace(PROMPT, **how))
    assert {job_id: found[job_id][0] for job_id in starts} == pytest.approx(starts)


@pytest.mark.parametrize(
    ("asks", "starts"),
    [((8, 0), 100.0), ((4, 0), 0.0), ((1, 60_000), 100.0), ((1, 20_000), 0.0)],
    ids=["no CPUs left", "CPUs enough", "no memory left", "memory enough"],
)
def test_cpus_and_memory_bound_a_node(asks, starts):
    site = SlurmSite(PROMPT, {"m1": NodeRoom(16, 64_000)})
    jobs = [
        SimJob(1, (1,), 100.0, cpus=12, memory_mb=32_000),
        SimJob(2, (1,), 10.0, cpus=asks[0], memory_mb=asks[1]),
    ]
    assert times(jobs, site=site)[2][0] == starts


def partitions(**parts):
    return SlurmSite(PROMPT, partitions=parts)


def test_a_partition_that_is_full_holds_nobody_of_another_back():
    site = partitions(
        a=SitePartition(frozenset({"m1"}), is_default=True), b=SitePartition(frozenset({"m2"}))
    )
    jobs = [SimJob(1, (4,), 100.0), SimJob(2, (4,), 10.0), SimJob(3, (2,), 10.0, partition="b")]
    assert {n: start for n, (start, _) in times(jobs, TWO, site).items()} == {1: 0, 2: 100, 3: 0}


def test_who_waits_in_one_partition_closes_its_nodes_to_the_others():
    """Job 2 needs all of m1 in partition a; b has both nodes, so job 3 goes to m2 only."""
    site = partitions(a=SitePartition(frozenset({"m1"}), is_default=True), b=SitePartition(None))
    jobs = [
        SimJob(1, (2,), 100.0, walltime_s=120.0),
        SimJob(2, (4,), 10.0, walltime_s=60.0),
        *(SimJob(n, (2,), 500.0, 0.5, walltime_s=600.0, partition="b") for n in (3, 4, 5)),
    ]
    found = times(jobs, TWO, site)
    assert found[2][0] == 100.0
    assert (found[3][0], found[4][0], found[5][0]) == (1.0, 1.0, 110.0)


def test_what_a_job_without_limit_holds_is_promised_to_nobody():
    """Its end lies beyond bf_window, so that a later job keeps job 2 waiting."""
    jobs = [SimJob(1, (3,), 100.0), SimJob(2, (4,), 10.0), SimJob(3, (1,), 500.0, 1.0)]
    assert times(jobs)[2][0] == 530.0


def test_running_jobs_are_taken_to_end_in_groups():
    """Ends at 40 and 80 s are one group: job 3 is planned at 80, and job 4 may pass until then."""
    jobs = [SimJob(1, (2,), 38.0, walltime_s=40.0), SimJob(2, (1,), 80.0, walltime_s=80.0),
            SimJob(3, (3,), 10.0, walltime_s=60.0),
            SimJob(4, (1,), 55.0, 1.0, walltime_s=60.0)]  # fmt: skip
    how = replace(PROMPT, bf_interval_s=5.0, bf_resolution_s=1.0)
    assert times(jobs, how=how)[4][0] == 5.0


def test_a_partition_of_a_higher_tier_goes_first():
    site = partitions(a=SitePartition(is_default=True), b=SitePartition(tier=2))
    jobs = [SimJob(1, (4,), 10.0), SimJob(2, (4,), 10.0), SimJob(3, (4,), 10.0, partition="b")]
    assert times(jobs, site=site)[3][0] == 10.0


def test_a_job_over_its_limit_is_killed_at_slurms_next_look():
    """Slurm looks every 30 s: a limit of 60 s from 5 s on is over at 65 s, seen at 90."""
    run = SlurmSimulator(MINSKY, FIRST, SlurmSite(PROMPT)).run(
        [SimJob(1, (4,), 500.0, 5.0, walltime_s=60.0), SimJob(2, (4,), 50.0, 6.0, walltime_s=60.0)]
    )
    first, second = run.records
    assert (first.end_s, first.is_killed) == (90.0, True)
    assert (second.start_s, second.end_s, second.is_killed) == (90.0, 140.0, False)


def test_over_time_limit_is_granted():
    how = replace(PROMPT, over_time_limit_s=60.0)
    assert times([SimJob(1, (4,), 500.0, walltime_s=60.0)], how=how)[1][1] == 120.0


def test_a_job_without_a_limit_gets_its_partitions():
    site = partitions(a=SitePartition(default_s=60.0, is_default=True))
    assert times([SimJob(1, (4,), 500.0)], site=site)[1][1] == 60.0


WRONG = [
    (SimJob(1, (1,), 1.0, walltime_s=7200.0), "job 1 asks for 7200 s; its partition's MaxTime"),
    (SimJob(2, (1,), 1.0, cpus=17), "job 2 asks for 1 GPUs, each node with 17 CPUs and 0 MB"),
    (SimJob(3, (1,), 1.0, partition="x"), "job 3: partition 'x'; slurm.conf has a"),
    (SimJob(4, (1,), 1.0, partition="b"), "job 4: its partition has State=INACTIVE"),
]


@pytest.mark.parametrize(("job", "message"), WRONG)
def test_a_job_that_could_never_start_is_named(job, message):
    site = SlurmSite(
        PROMPT,
        {"m1": NodeRoom(16)},
        {"a": SitePartition(most_s=3600.0, is_default=True), "b": SitePartition(state="INACTIVE")},
    )
    with pytest.raises(SimulationError, match=message):
        times([job], site=site)


CONF = """\
SchedulerType=sched/backfill  # as it is
SchedulerParameters=defer,bf_interval=7,\\
bf_window=1,sched_min_interval=500000,nohold_on_prolog_fail
OverTimeLimit=2
NodeName=m[1-2] Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 State=UNKNOWN
NodeName=c1 CPUs=4
PartitionName=day Nodes=m1,c1 Default=YES DefaultTime=30 MaxTime=1-00:00:00
PartitionName=long Nodes=ALL MaxTime=UNLIMITED PriorityTier=3
"""


def of_text(text: str, **included: str) -> SlurmSite:
    """The site of this slurm.conf; `included`: files beside it, without their `.conf`."""
    files = {Path(f"/etc/{name}.conf"): some for name, some in {"slurm": text, **included}.items()}
    return read(Path("/etc/slurm.conf"), files.__getitem__)


def test_what_is_read_of_slurm_conf():
    site = of_text(CONF)
    how = site.scheduling
    assert (how.defer, how.bf_interval_s, how.bf_window_s) == (True, 7.0, 60.0)
    assert (how.sched_min_interval_s, how.over_time_limit_s) == (0.5, 120.0)
    assert site.rooms == {
        "m1": NodeRoom(32, 64000),
        "m2": NodeRoom(32, 64000),
        "c1": NodeRoom(4, 1),
    }
    assert site.partitions["day"] == SitePartition(
        frozenset({"m1", "c1"}), 1800.0, 86_400.0, is_default=True
    )
    assert site.partitions["long"] == SitePartition(None, None, None, 3)


@pytest.mark.parametrize(
    ("text", "memory_mb"),
    [
        ("", 900),
        ("SelectType=select/cons_tres\n", 900),
        ("SelectTypeParameters=CR_CPU\n", float("inf")),
        ("SelectTypeParameters=cr_core_memory,CR_LLN\n", 900),
        ("SelectType=select/linear\n", float("inf")),
    ],
)
def test_memory_counts_where_slurm_gives_it_to_jobs(text, memory_mb):
    """AWS ParallelCluster has CR_CPU: jobs share a node's memory as they like."""
    site = of_text(f"{text}NodeName=n1 CPUs=4 RealMemory=900\nPartitionName=a Nodes=ALL\n")
    assert site.rooms["n1"] == (4, memory_mb)


def test_batch_jobs_may_be_deferred_alone():
    assert of_text("SchedulerParameters=defer_batch\n").scheduling.defer


def test_of_several_lines_of_scheduler_parameters_the_last_one_counts_alone():
    first, last = "defer,bf_interval=-1,kill_invalid_depend", "bf_window=1,nohold_on_prolog_fail"
    site = of_text(f"SchedulerParameters={first}\nSchedulerParameters={last}\n")
    assert site.scheduling == Scheduling(bf_window_s=60.0)
    assert site.passed_over == ("nohold_on_prolog_fail",)


@pytest.mark.parametrize(
    ("text", "backfill"),
    [
        ("SchedulerType=sched/builtin OverTimeLimit=2\nSchedulerParameters=bf_window=1", False),
        ("SchedulerParameters=bf_interval=-1\nSchedulerType=sched/backfill OverTimeLimit=2", False),
        ("SchedulerType=sched/backfill OverTimeLimit=2\nSchedulerParameters=bf_interval=9", True),
    ],
)
def test_keys_count_in_any_order_and_several_on_a_line(text, backfill):
    how = of_text(f"{text}\n").scheduling
    assert (how.backfill, how.over_time_limit_s) == (backfill, 120.0)


def test_the_live_tests_own_slurm_conf_is_read():
    path = ROOT / "slurm_cluster" / "docker" / "image" / "etc" / "slurm.conf"
    site = read(path, lambda file: path.read_text() if file == path else "")
    how = site.scheduling
    assert (how.batch_sched_delay_s, how.sched_min_interval_s, how.bf_interval_s) == (0, 0, 5)
    assert site.partition_of(SimJob(1, (1,), 1.0)).default_s == 600


@pytest.mark.parametrize(
    ("line", "message"),
    [("SchedulerParameters=bf_interval=soon", "line 1: 'bf_interval=soon' in SchedulerParam"),
     ("PartitionName=a MaxTime=tomorrow", "line 1: 'tomorrow' is no time"),
     ("NodeName=n[1-", "line 1: ")],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_named(line, message):
    with pytest.raises(SimulationError, match=message):
        of_text(line)


def rooms(*lines: str) -> dict[str, tuple[float, float]]:
    return {name: tuple(room) for name, room in of_text("\n".join(lines)).rooms.items()}


@pytest.mark.parametrize(
    ("line", "cpus"),
    [
        ("Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2", 128),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=4", 16),
        ("Sockets=1 SocketsPerBoard=4", 4),
        ("Boards=2 CoresPerSocket=4", 8),
        ("CPUs=64 CoresPerSocket=8 ThreadsPerCore=2", 64),
        ("CPUs=2 Sockets=2 CoresPerSocket=8", 2),
        ("CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 16),
        ("CPUs=7 Sockets=2 CoresPerSocket=8", 16),
        ("CPUs=9 CoresPerSocket=2", 2),
        ("Procs=12", 12),
        ("CPUs=0", 1),
        ("cpus=3", 3),
    ],
)
def test_a_nodes_cpus_are_reckoned_as_slurm_does(line, cpus):
    assert rooms(f"NodeName=n1 {line}") == {"n1": (cpus, 1)}


def test_default_lines_count_for_the_nodes_below_them():
    found = rooms(
        "NodeName=n0 RealMemory=5",
        "NodeName=default CPUs=8 RealMemory=100",
        "NodeName=n1",
        "NodeName=DEFAULT RealMemory=200",
        "NodeName=n2 Procs=4",
        'NodeName="n[3-4]" CPUs = 2 RealMemory="300"',
    )
    assert found == {"n0": (1, 5), "n1": (8, 100), "n2": (8, 200), "n3": (2, 300), "n4": (2, 300)}


def test_partitions_inherit_and_name_sets_of_nodes():
    site = of_text(
        "NodeSet=big Nodes=h[0-1]\nNodeSet=fast Feature=nvme Nodes=x9\nNodeSet=every Nodes=all\n"
        "NodeName=h[0-1] Feature=a,nvme\nNodeName=bare\n"
        "NodeName=DEFAULT Features=nvme\nNodeName=h2\n"
        "PartitionName=old Nodes=h0 Default=yes\n"
        "PartitionName=DEFAULT MaxTime=10 DefaultTime=1:30 State=UP Priority=4 Nodes=h2\n"
        "PartitionName=a Nodes=big,h2\n"
        "PartitionName=b Nodes=fast MaxTime=UNLIMITED PriorityTier=0\n"
        "PartitionName=c Default=YES\nPartitionName=d Nodes=h0,every DefaultTime=1:00:00\n"
        'PartitionName=e Nodes="h0 h1"\n'
    )
    nodes = {name: one.nodes and sorted(one.nodes) for name, one in site.partitions.items()}
    assert nodes == {
        "old": ["h0"],
        "a": ["h0", "h1", "h2"],
        "b": ["h0", "h1", "h2", "x9"],
        "c": ["h2"],
        "d": None,
        "e": ["h0", "h1"],
    }
    times_s = {name: (one.default_s, one.most_s) for name, one in site.partitions.items()}
    assert times_s == {
        "old": (None, None), "a": (120, 600), "b": (120, None), "c": (120, 600),
        "d": (None, 600), "e": (120, 600),
    }  # fmt: skip
    assert [name for name, one in site.partitions.items() if one.is_default] == ["c"]
    assert {one.tier for one in site.partitions.values()} == {1, 4}


def test_a_partition_without_nodes_has_none():
    assert of_text("PartitionName=a").partitions["a"].nodes == frozenset()


def test_what_is_included_counts_where_it_stands():
    site = of_text(
        "ClusterName=Red\nInclude nodes_%c.conf\nPartitionName=a Nodes=n1 Default=YES\n",
        nodes_red="NodeName=n1 CPUs=4\nNodeName=DEFAULT RealMemory=7\nNodeName=n2\n",
    )
    assert site.rooms == {"n1": NodeRoom(4, 1), "n2": NodeRoom(1, 7)}


def test_an_included_file_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "slurm.conf"
    path.write_text("Include none.conf\n")
    with pytest.raises(SimulationError, match=r"none.conf: No such file .*slurm.conf, line 1"):
        read(path)


def test_the_loop_or_backfill_may_be_switched_off():
    how = of_text("SchedulerParameters=sched_interval=-1,bf_interval=-1\n").scheduling
    assert (how.sched_interval_s, how.backfill) == (float("inf"), False)
    jobs = [SimJob(1, (4,), 10.0), SimJob(2, (4,), 10.0)]
    assert times(jobs, how=replace(PROMPT, sched_interval_s=how.sched_interval_s))[2][0] == 10.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 300), ("5:30", 330), ("1:05:30", 3930), ("2-3", 183_600), ("2-03:30", 185_400),
     ("1-00:00:10", 86_410), ("UNLIMITED", None)],
)  # fmt: skip
def test_slurms_times(text, expected):
    assert seconds(text) == expected


jobs_to_run = st.lists(
    st.builds(
        # No job ends as another is submitted: which of these comes first is nobody's promise.
        lambda gpus, took, at: (gpus, took + 0.37, float(at)),
        st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (4, 1)]),
        st.integers(0, 50),
        st.integers(0, 60),
    ),
    min_size=1,
    max_size=25,
)


@given(jobs_to_run)
@settings(max_examples=60)
def test_without_limits_and_backfill_it_is_the_plain_simulator(raw):
    """One partition, no CPUs, no delays: strictly first in, first out."""
    jobs = [SimJob(n, *row) for n, row in enumerate(sorted(raw, key=lambda row: row[2]), 1)]
    plain = Simulator(TWO, FIRST).run(jobs)
    under = SlurmSimulator(TWO, FIRST, SlurmSite(replace(PROMPT, backfill=False))).run(jobs)
    assert [(r.job.job_id, r.start_s, r.end_s) for r in under.records] == [
        (r.job.job_id, r.start_s, r.end_s) for r in plain.records
    ]


@given(jobs_to_run, st.lists(st.sampled_from([1, 1.5, 4]), min_size=25, max_size=25))
@settings(max_examples=40)
def test_every_job_runs_once_and_nothing_is_overfull(raw, limits):
    jobs = [
        SimJob(n, gpus, took, at, walltime_s=took * limit + 1, cpus=1 + n % 3)
        for n, ((gpus, took, at), limit) in enumerate(zip(raw, limits, strict=False), 1)
    ]
    site = SlurmSite(PROMPT, dict.fromkeys(TWO, NodeRoom(4, 1000)))
    run = SlurmSimulator(TWO, FIRST, site).run(jobs)
    assert sorted(r.job.job_id for r in run.records) == [job.job_id for job in jobs]
    for at_s in {r.start_s for r in run.records}:
        for name in TWO:
            there = [
                r.job
                for r in run.records
                if r.start_s <= at_s < r.end_s and name in r.placement.gpus
            ]
            assert sum(job.cpus for job in there) <= 4
