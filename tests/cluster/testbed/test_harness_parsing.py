"""The harness's readers of Slurm's text, without a cluster."""

from __future__ import annotations

import pytest

from slurm_cluster.slurm_text import expand_hosts, parse_jobs
from slurm_plugin.slurm.gres_text import indices

GRES = [
    ("a single type with a range", "gpu:v100:2(IDX:0-1)", (0, 1)),
    ("holes in the indices", "gpu:v100:3(IDX:0,3-4)", (0, 3, 4)),
    ("a type Slurm does not know", "gpu:(null):4(IDX:0-3)", (0, 1, 2, 3)),
    ("no type at all", "gpu:2(IDX:5,7)", (5, 7)),
    ("several types", "gpu:s1:1(IDX:1),gpu:s6:1(IDX:6)", (1, 6)),
    ("nothing in use", "gpu:v100:0(IDX:N/A)", ()),
    ("another GRES beside it", "gpu:a100:1(IDX:2),license:4", (2,)),
    ("none", "", ()),
]

HOSTS = [
    ("one host", "dgx1", ("dgx1",)),
    ("a range", "dgx[1-2]", ("dgx1", "dgx2")),
    ("padding, lists, several prefixes", "n[08-10,12],amd1", ("n08", "n09", "n10", "n12", "amd1")),
    ("none", "(null)", ()),
]

RECORD = """JobId=7 ArrayJobId=6 ArrayTaskId=1 JobName=wrap
   UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=dgx[1-2],minsky1
   AllocTRES=cpu=3,mem=150M,node=3,billing=3,gres/gpu=5
     Nodes=dgx[1-2] CPU_IDs=0 Mem=50 GRES=gpu:v100:2(IDX:0,3)
     Nodes=minsky1 CPU_IDs=0 Mem=50 GRES=gpu:p100:1(IDX:2)
   Comment=gpu-topo: pattern=ring JobState=FAKE

JobId=6 ArrayJobId=6 ArrayTaskId=2-4 JobName=wrap
   JobState=PENDING Reason=Resources Dependency=(null)
   NodeList=
"""


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in GRES], ids=[c[0] for c in GRES])
def test_gpu_indices_of(text: str, expected: tuple[int, ...]) -> None:
    """Every form Slurm prints GPU indices in is understood."""
    assert indices(text) == expected


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in HOSTS], ids=[c[0] for c in HOSTS])
def test_hosts_of(text: str, expected: tuple[str, ...]) -> None:
    """Host lists expand in Slurm's order."""
    assert expand_hosts(text) == expected


def test_a_record_with_several_nodes_and_a_pending_task() -> None:
    """Nodes of one line share its indices; a comment forges no field; a pending task has no GPU."""
    running, pending = parse_jobs(RECORD)
    assert running.gpus == {"dgx1": (0, 3), "dgx2": (0, 3), "minsky1": (2,)}
    assert (running.id, running.state, running.nodes) == (7, "RUNNING", ("dgx1", "dgx2", "minsky1"))
    assert running.fields["Comment"] == "gpu-topo: pattern=ring JobState=FAKE"
    assert (pending.id, pending.state, pending.gpus) == (6, "PENDING", {})
