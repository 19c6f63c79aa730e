"""What administrators set, as scontrol and sacctmgr tell it: partitions, reservations, limits.

No user can write into it. Users are shown what PrivateData lets them see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gres_topology import Network, hostlist
from gres_topology.errors import TopologyError
from gres_topology.slurm_files import topology_shown
from gres_topology.slurm_files.network import Networks
from slurm_plugin.slurm.interface import (
    JobDefaults,
    License,
    Limit,
    Reservation,
    SlurmNode,
    SlurmPartition,
)
from slurm_plugin.slurm.runner import Runner

_UNSET = ("", "(null)", "N/A", "NONE", "UNLIMITED", "INFINITE")
#: What it prints for a layer without a count of its own.
_INFINITE = 0xFFFFFFFF
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
# `alice(1001)`; in a limit `N` means none, and what is in use follows in parentheses.
_CPUS = re.compile(r"(?:\A|,)cpu=(\d+)")
_SHARE = re.compile(r"(YES|FORCE):(\d+)")
_OWNER = re.compile(r"(.*?)\(\d+\)\Z")
_COUNT = re.compile(r"(\d+|N)(?:\.\d+)?(?:\((\d+)(?:\.\d+)?\))?\Z")
#: What counts the things that each of these limits is on.
_PLAIN = {"Jobs": "jobs", "SubmitJobs": "submitted jobs", "Wall": "minutes"}
#: The QOS that Slurm makes by itself.
NORMAL = "normal"
#: Seconds that Slurm's database may take to answer.
DATABASE_S = 5.0
_KEY = re.compile(r"(?:Grp|Max|Min)(TRES\w*|Jobs|SubmitJobs|Wall)(?:PJ|PU|PA|PN)?\Z")


def seconds(text: str) -> int:
    """A time limit as Slurm prints it (`1-00:00:00`, `00:10:00`); 0 for none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return 0
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1]:
        return 86400 * days + 3600 * first + 60 * second + third
    if match[4]:
        return 3600 * first + 60 * second + third
    return 60 * first + second


def number(text: str) -> int:
    """A count; 0 where there is no limit."""
    return int(text) if text.isdecimal() else 0


def partitions(run: Runner) -> list[SlurmPartition]:
    """Every partition that this user may see, by name."""
    text = run(["scontrol", "--oneliner", "show", "partitions"])
    rows = (_pairs(line) for line in text.splitlines())
    known = (_partition(pairs) for pairs in rows if "PartitionName" in pairs)
    return sorted(known, key=lambda partition: partition.name)


def _partition(pairs: dict[str, str]) -> SlurmPartition:
    def names(key: str) -> tuple[str, ...]:
        text = pairs.get(key, "")
        return () if text in ("", "ALL") else tuple(text.split(","))

    # 26.05 says in one word what were three keys.
    exclusive, shared = pairs.get("Exclusive", ""), pairs.get("OverSubscribe", "")
    is_whole = "EXCLUSIVE" in shared or pairs.get("ExclusiveTopo") == "YES"
    share = _SHARE.match(shared)
    return SlurmPartition(
        pairs["PartitionName"],
        tuple(hostlist.expand(pairs["Nodes"])) if pairs.get("Nodes") else (),
        pairs.get("Default") == "YES",
        int(pairs.get("PriorityTier") or 1),
        pairs.get("State", "UP"),
        seconds(pairs.get("MaxTime", "")),
        number(pairs.get("MaxNodes", "")),
        number(pairs.get("MaxCPUsPerNode", "")),
        number(pairs.get("MaxCPUsPerSocket", "")),
        seconds(pairs.get("DefaultTime", "")),
        names("AllowGroups"),
        names("AllowAccounts"),
        names("AllowQos"),
        names("DenyAccounts"),
        names("DenyQos"),
        pairs.get("QoS", ""),
        pairs.get("ExclusiveUser") == "YES" or exclusive == "USER",
        0 if is_whole or exclusive in ("NODE", "TOPO") else int(share[2]) if share else 1,
        bool(share and share[1] == "FORCE"),
        job_defaults(pairs),
        pairs.get("OverTimeLimit", ""),
        number(pairs.get("MinNodes", "")),
        pairs.get("Topology", ""),
    )


def job_defaults(pairs: Mapping[str, str]) -> JobDefaults:
    """Those of a partition, or of slurm.conf, as scontrol shows both."""
    by_gpu = _pairs(pairs.get("JobDefaults", "").replace(",", " "))
    texts = (
        by_gpu.get("DefCpuPerGPU"),
        by_gpu.get("DefMemPerGPU"),
        pairs.get("DefMemPerCPU"),
        pairs.get("DefMemPerNode"),
    )
    return JobDefaults(*(number(text or "") for text in texts))


def with_cpus(run: Runner, nodes: Sequence[SlurmNode]) -> list[SlurmNode]:
    """The nodes without what Slurm's daemons keep, which 22.05's JSON does not tell.

    CPUs of CoreSpecCount, and MemSpecLimit.
    """
    rows = {
        row.get("NodeName", ""): row
        for row in map(_pairs, run(["scontrol", "show", "nodes"]).split("\n\n"))
    }

    def told(node: SlurmNode) -> SlurmNode:
        row = rows.get(node.name, {})
        memory_mb = max(0, node.memory_mb - number(row.get("MemSpecLimit", "")))
        return replace(node, cpus=number(row.get("CPUEfctv", "")) or node.cpus, memory_mb=memory_mb)

    return [told(node) for node in nodes]


def reservations(run: Runner) -> list[Reservation]:
    """Every reservation that this user may see, by name."""
    visible = []
    for line in run(["scontrol", "--oneliner", "show", "reservations"]).splitlines():
        pairs = _pairs(line)
        if "ReservationName" in pairs:
            visible.append(
                Reservation(
                    pairs["ReservationName"],
                    number(pairs.get("StartTime", "")),
                    number(pairs.get("EndTime", "")),
                    tuple(hostlist.expand(pairs["Nodes"])) if pairs.get("Nodes") else (),
                    tuple(filter(None, pairs.get("Flags", "").split(","))),
                    pairs.get("Users", ""),
                    pairs.get("Accounts", ""),
                    pairs.get("Licenses", ""),
                    int(cpus[1]) if (cpus := _CPUS.search(pairs.get("TRES", ""))) else 0,
                )
            )
    return sorted(visible, key=lambda one: one.name)


def networks(run: Runner, parts: Iterable[SlurmPartition]) -> Networks:
    """What slurmctld has in force: the topologies of these partitions, and the default one.

    Of one that cannot be read the kind is empty. Raises SlurmError where Slurm does not answer.
    """
    by_name: dict[str, Network] = {}
    for name in sorted({"", *(one.topology for one in parts)}):
        argv = ["scontrol", "show", "topology", *filter(None, [name])]
        text, said = run(argv), " ".join(argv)
        try:
            by_name[name] = topology_shown.parse(text, said)
        except TopologyError as error:
            by_name[name] = Network((), str(error), "")
    return Networks(by_name, by_name[""])


def licenses(run: Runner) -> list[License]:
    """Every licence, by name; of one with layers each layer."""
    rows = []
    for line in run(["scontrol", "--oneliner", "show", "licenses"]).splitlines():
        pairs = _pairs(line)
        if "LicenseName" in pairs:
            total, free = number(pairs.get("Total", "")), number(pairs.get("Free", ""))
            layer = pairs.get("Nodes", ""), number(pairs.get("Mode", ""))
            free = total if total == _INFINITE else free
            rows.append(License(pairs["LicenseName"], total, free, *layer))
    return sorted(rows, key=lambda one: one.name)


def _pairs(line: str) -> dict[str, str]:
    pairs = (word.partition("=")[::2] for word in line.split() if "=" in word)
    return {key: "" if value in _UNSET else value for key, value in pairs}


def limits(run: Runner) -> tuple[list[Limit], dict[str, str]]:
    """The limits of accounts, of users in accounts and of QOS, with what is in use of each.

    And the account above each account.
    """
    text = run(["scontrol", "show", "assoc_mgr", "flags=assoc,qos"])
    return list(_limits(text)), dict(_parents(text))


def default_account(run: Runner, user: str) -> str:
    """The account of a user's jobs that name none; '' where Slurm has no accounting."""
    text = run(["scontrol", "show", "assoc_mgr", f"users={user}", "flags=users"])
    lines = (_pairs(line) for line in text.splitlines())
    mine = (one for one in lines if _name(one.get("UserName", "")) == user)
    return next((one["DefAccount"] for one in mine if "DefAccount" in one), "")


def default_qos(run: Runner, user: str, account: str, partition: str) -> str:
    """The QOS of such jobs that name none, '' where that is not known.

    An association with a partition counts more than one without, the only QOS that it may use or
    Slurm's "normal" where it has no default. Raises SlurmError.
    """
    columns = "format=account,partition,qos,defaultqos"
    argv = ["sacctmgr", "-nP", "show", "associations", f"user={user}", columns]
    text = run(argv, timeout_s=DATABASE_S)
    rows = [row for line in text.splitlines() if len(row := line.split("|")) == 4]
    mine = [row for row in rows if row[0] == account and row[1] in ("", partition)]
    for _, _, allowed, default in sorted(mine, key=lambda row: not row[1]):
        names = allowed.split(",")
        return default or (names[0] if len(names) == 1 else NORMAL if NORMAL in names else "")
    return ""


def unused_limits(run: Runner, qos: str, user: str, account: str) -> list[Limit]:
    """What a QOS allows each user and each account, as to those who have used nothing of it yet.

    `limits` tells nothing of these. Raises SlurmError.
    """
    keys = {"MaxTRESPU": user, "MaxJobsPU": user, "MaxTRESPA": account, "MaxJobsPA": account}
    columns = f"format={','.join(keys)}"
    text = run(["sacctmgr", "-nP", "show", "qos", qos, columns], timeout_s=DATABASE_S)
    allowed = []
    for key, value in zip(keys, text.strip().split("|"), strict=False):
        whose = f"{'user' if key.endswith('PU') else 'account'} {keys[key]} in QOS {qos}"
        allowed += [replace(one, used=0) for one in _limits_in(whose, key, value)]
    return allowed


def _parents(text: str) -> Iterator[tuple[str, str]]:
    account = ""
    for line in text.splitlines():
        pairs = _pairs(line)
        if "ClusterName" in pairs:
            account = "" if pairs.get("UserName") else pairs.get("Account", "")
        elif account and pairs.get("ParentAccount"):
            yield account, _name(pairs["ParentAccount"])


def _limits(text: str) -> Iterator[Limit]:
    owner = qos = part = ""
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0].startswith("ClusterName="):
            owner, qos, part = _association(_pairs(line)), "", ""
        elif words[0].startswith("QOS="):
            owner = qos = f"QOS {_name(words[0].removeprefix('QOS='))}"
            part = ""
        elif qos and len(words) == 2 and words[1] == "Limits":
            # Below it stands each account, or each user, that has used something of the QOS.
            owner, part = qos, words[0].lower()
        elif part and len(words) == 1 and "=" not in words[0]:
            owner = f"{part} {_name(words[0])} in {qos}"
        else:
            for word in words:
                yield from _limits_in(owner, *word.partition("=")[::2])


def _association(pairs: dict[str, str]) -> str:
    account, user = pairs.get("Account", ""), _name(pairs.get("UserName", ""))
    where = f" in partition {pairs['Partition']}" if pairs.get("Partition") else ""
    return f"user {user} in account {account}{where}" if user else f"account {account}"


def _name(text: str) -> str:
    match = _OWNER.fullmatch(text)
    return match[1] if match else text


def _limits_in(owner: str, key: str, value: str) -> Iterator[Limit]:
    match = _KEY.fullmatch(key)
    if match is None:
        return
    if match[1] in _PLAIN:
        yield from _limit(owner, key, _PLAIN[match[1]], value)
        return
    for item in value.split(","):
        yield from _limit(owner, key, *item.partition("=")[::2])


def _limit(owner: str, key: str, resource: str, value: str) -> Iterator[Limit]:
    match = _COUNT.match(value)
    if match and match[1] != "N":
        yield Limit(owner, key, resource, int(match[1]), int(match[2]) if match[2] else None)
