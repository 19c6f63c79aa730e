"""Reservations, licences and limits in scontrol's words (24.11.5), and one job in squeue's."""

import pytest
from fake_slurm import FakeRunner

from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.clients import scontrol_tables
from slurm_plugin.slurm.interface import (
    JobDefaults,
    License,
    Limit,
    Reservation,
)

ASSOC_MGR = """Current Association Manager state

Association Records

ClusterName=gputopo Account=research UserName= Partition= Priority=0 ID=3
    GrpJobs=N(1) GrpJobsAccrue=N(0)
    GrpSubmitJobs=N(1) GrpWall=N(1.00)
    GrpTRES=cpu=N(1),mem=N(50),node=N(1),gres/gpu=2(2),gres/gpumem=N(0)
    GrpTRESRunMins=cpu=N(10),gres/gpu=100(20)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=gres/gpu=8
    ParentAccount=faculty(2) Lineage=/faculty/research/ DefAssoc=Yes
    Comment=(null)
ClusterName=gputopo Account=research UserName=alice(2001) Partition=dgx Priority=0 ID=5
    GrpTRES=cpu=N(0),gres/gpu=N(0)
    MaxJobs=1(1) MaxJobsAccrue= MaxSubmitJobs=5(2) MaxWallPJ=60
    ParentAccount= Lineage=/faculty/research/0-alice/ DefAssoc=Yes

QOS Records

QOS=normal(1)
    UsageRaw=122.988347
    GrpJobs=7(1) GrpJobsAccrue=N(1) GrpSubmitJobs=N(2) GrpWall=N(1.10)
    GrpTRES=cpu=N(1),gres/gpu=N(2)
    Account Limits
      research
        MaxTRESPA=cpu=N(1),gres/gpu=4(2),gres/gpumem=N(0)
    User Limits
      alice(2001)
        MaxJobsPU=N(1) MaxJobsAccruePU=N(1) MaxSubmitJobsPU=N(2)
        MaxTRESPU=cpu=N(1),gres/gpu=2(2),gres/gpumem=N(0),gres/gpuutil=N(0)
"""


def test_limits_have_their_owner_and_what_is_in_use():
    run = FakeRunner({"scontrol show assoc_mgr": ASSOC_MGR})
    alice = "user alice in account research in partition dgx"
    limits, parents = scontrol_tables.limits(run)
    assert parents == {"research": "faculty"}
    assert limits == [
        Limit("account research", "GrpTRES", "gres/gpu", 2, 2),
        Limit("account research", "GrpTRESRunMins", "gres/gpu", 100, 20),
        Limit("account research", "MaxTRESPJ", "gres/gpu", 8),
        Limit(alice, "MaxJobs", "jobs", 1, 1),
        Limit(alice, "MaxSubmitJobs", "submitted jobs", 5, 2),
        Limit(alice, "MaxWallPJ", "minutes", 60),
        Limit("QOS normal", "GrpJobs", "jobs", 7, 1),
        Limit("account research in QOS normal", "MaxTRESPA", "gres/gpu", 4, 2),
        Limit("user alice in QOS normal", "MaxTRESPU", "gres/gpu", 2, 2),
    ]


def test_a_user_has_an_account_of_their_own_where_slurm_keeps_accounts():
    line = "UserName=alice(2001) DefAccount=research DefWckey= AdminLevel=None"
    run = FakeRunner({"scontrol show assoc_mgr": f"User Records\n\n{line}\n"})
    assert scontrol_tables.default_account(run, "alice") == "research"
    assert scontrol_tables.default_account(run, "ali") == ""


@pytest.mark.parametrize(
    ("rows", "qos"),
    [
        ("research||normal,long|long\nphysics||normal|normal", "long"),
        ("research||long|", "long"),
        ("research||long,normal|", "normal"),
        ("research||long,short|", ""),
        ("physics||long|long", ""),
        ("research||normal|normal\nresearch|dgx|long|long\nresearch|cpu|short|short", "long"),
        ("", ""),
    ],
)
def test_a_job_has_the_qos_of_its_users_association(rows, qos):
    run = FakeRunner({"sacctmgr -nP show associations user=alice": f"{rows}\n"})
    assert scontrol_tables.default_qos(run, "alice", "research", "dgx") == qos


def test_a_qos_that_nobody_used_has_limits_for_each_user_and_account():
    run = FakeRunner({"sacctmgr -nP show qos small": "cpu=9,gres/gpu=2|3|gres/gpu=5|\n"})
    assert scontrol_tables.unused_limits(run, "small", "alice", "research") == [
        Limit("user alice in QOS small", "MaxTRESPU", "cpu", 9, 0),
        Limit("user alice in QOS small", "MaxTRESPU", "gres/gpu", 2, 0),
        Limit("user alice in QOS small", "MaxJobsPU", "jobs", 3, 0),
        Limit("account research in QOS small", "MaxTRESPA", "gres/gpu", 5, 0),
    ]
    none = FakeRunner({"sacctmgr": "\n"})
    assert scontrol_tables.unused_limits(none, "small", "alice", "research") == []


def test_a_partition_has_its_limits_and_who_may_use_it():
    line = (
        "PartitionName=dgx AllowGroups=ALL DenyAccounts=physics AllowQos=high,long AllocNodes=ALL"
        " Default=NO QoS=shared DefaultTime=00:10:00 MaxNodes=UNLIMITED MaxTime=1-00:00:00"
        " Nodes=dgx[1-2] PriorityTier=3 State=DOWN TotalNodes=2"
    )
    run = FakeRunner({"scontrol --oneliner show partitions": f"{line}\nPartitionName=a Nodes=\n"})
    empty, found = scontrol_tables.partitions(run)
    assert (empty.name, empty.nodes, empty.state, empty.qos) == ("a", (), "UP", "")
    assert (found.nodes, found.priority_tier, found.state) == (("dgx1", "dgx2"), 3, "DOWN")
    assert (found.max_time_s, found.max_nodes, found.default_time_s) == (86400, 0, 600)
    assert (found.allow_groups, found.allow_accounts, found.allow_qos) == ((), (), ("high", "long"))
    assert (found.deny_accounts, found.deny_qos, found.qos) == (("physics",), (), "shared")


@pytest.mark.parametrize(
    ("of_site", "of_partition", "found"),
    [
        ({"JobDefaults": "DefCpuPerGPU=2"}, "DefMemPerNode=UNLIMITED", JobDefaults(2)),
        ({"DefMemPerCPU": "50"}, "JobDefaults=DefMemPerGPU=9", JobDefaults(0, 9, 50)),
        ({"DefMemPerCPU": "50"}, "DefMemPerNode=70", JobDefaults(0, 0, 0, 70)),
        (
            {"JobDefaults": "DefCpuPerGPU=2,DefMemPerGPU=9"},
            "JobDefaults=DefCpuPerGPU=4 DefMemPerNode=UNLIMITED",
            JobDefaults(4, 9),
        ),
        ({"JobDefaults": "", "DefMemPerNode": "UNLIMITED"}, "JobDefaults=(null)", JobDefaults()),
    ],
)
def test_what_a_job_is_given_by_its_partition_else_by_the_site(of_site, of_partition, found):
    line = f"PartitionName=dgx Nodes=dgx1 {of_partition}\n"
    run = FakeRunner({"scontrol --oneliner show partitions": line})
    settings = Settings(tuple(scontrol_tables.partitions(run)), of_site)
    assert settings.defaults == {"dgx": found}


def test_partitions_that_share_cores_and_those_that_do_not_are_unlike_on_the_same_nodes():
    lines = [
        f"PartitionName={name} Nodes={nodes} OverSubscribe={share}"
        for name, nodes, share in (
            ("a", "n[1-2]", "FORCE:2"), ("b", "n2", "NO"), ("c", "n3", "YES:4"),
            ("d", "n3", "EXCLUSIVE"), ("e", "n4", "FORCE:1"), ("f", "n4", "NO"),
            ("g", "n5", "FORCE:4"), ("h", "n5", "FORCE:2"),
        )
    ]  # fmt: skip
    run = FakeRunner({"scontrol --oneliner show partitions": "\n".join(lines)})
    found = Settings(tuple(scontrol_tables.partitions(run)))
    assert found.unlike_sharing == {"a", "b", "d", "g", "h"}


@pytest.mark.parametrize(
    ("text", "closes_nodes", "is_whole"),
    [
        ("ExclusiveUser=NO OverSubscribe=NO", False, False),
        ("ExclusiveUser=YES OverSubscribe=NO", True, False),
        ("ExclusiveTopo=YES ExclusiveUser=NO OverSubscribe=NO", False, True),
        ("ExclusiveUser=NO OverSubscribe=EXCLUSIVE", False, True),
        # In one word since 26.05 (partition_info.c).
        ("Exclusive=NO OverSubscribe=NO", False, False),
        ("Exclusive=USER OverSubscribe=NO", True, False),
        ("Exclusive=NODE OverSubscribe=NO", False, True),
        ("Exclusive=TOPO OverSubscribe=NO", False, True),
    ],
)
def test_partitions_that_give_whole_nodes_or_close_them(text, closes_nodes, is_whole):
    run = FakeRunner({"scontrol --oneliner show partitions": f"PartitionName=a Nodes=n1 {text}"})
    [found] = scontrol_tables.partitions(run)
    assert (found.closes_nodes, found.share == 0) == (closes_nodes, is_whole)


def test_reservations_have_their_nodes_and_times():
    line = (
        "ReservationName=repair StartTime=1795411718 EndTime=1795415318 Duration=01:00:00"
        " Nodes=dgx[1-2] NodeCnt=2 Features=(null) Flags=MAINT,IGNORE_JOBS TRES=cpu=32 Users=root"
        " Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE"
    )
    run = FakeRunner({"scontrol --oneliner show reservations": f"{line}\n"})
    [found] = scontrol_tables.reservations(run)
    nodes = ("dgx1", "dgx2")
    assert found == Reservation(
        "repair", 1795411718, 1795415318, nodes, ("MAINT", "IGNORE_JOBS"), "root", cpus=32
    )
    assert found.is_maintenance
    none = FakeRunner({"scontrol --oneliner show reservations": "No reservations in the system\n"})
    assert scontrol_tables.reservations(none) == []


def test_licences_have_their_numbers():
    line = "LicenseName=matlab Total=3 Used=2 Free=1 Reserved=0 Remote=no\n"
    run = FakeRunner({"scontrol --oneliner show licenses": line})
    assert scontrol_tables.licenses(run) == [License("matlab", 3, 1)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("UNLIMITED", 0), ("00:05:00", 300), ("1-02:03:04", 93784), ("10:00", 600), ("x", 0)],
)
def test_a_time_limit_in_slurms_words(text, seconds):
    assert scontrol_tables.seconds(text) == seconds


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ("MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED", (0, 0)),
        ("MaxCPUsPerNode=12 MaxCPUsPerSocket=6", (12, 6)),
        ("MaxCPUsPerNode=12", (12, 0)),
    ],
    ids=["none", "both", "as 22.05 has it"],
)
def test_a_partitions_limits_on_cpus_are_read(words, limits):
    text = f"PartitionName=narrow Nodes=dgx[1-2] {words} MaxNodes=1\n"
    [one] = scontrol_tables.partitions(FakeRunner({"scontrol --oneliner": text}))
    assert (one.max_cpus_per_node, one.max_cpus_per_socket, one.max_nodes) == (*limits, 1)


def test_each_layer_of_a_licence_has_its_nodes():
    """As 25.05 prints resources.yaml; a layer without a count is never used up."""
    line = "LicenseName=power Total={} Used=3 Free={} Reserved=0 Remote=no Nodes={} Mode=2\n"
    text = line.format(4, 1, "dgx[1-2]") + line.format(0xFFFFFFFF, 0, "dgx[1-4]")
    found = scontrol_tables.licenses(FakeRunner({"scontrol --oneliner show licenses": text}))
    assert [(one.free, one.nodes, one.mode) for one in found] == [
        (1, "dgx[1-2]", 2),
        (0xFFFFFFFF, "dgx[1-4]", 2),
    ]
