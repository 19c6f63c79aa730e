"""The harness's readers of Slurm's text, without a cluster."""

from slurm_cluster.slurm_text import parse_indices, parse_jobs

RECORD = """JobId=7 ArrayJobId=6 ArrayTaskId=1 JobName=wrap
   UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=dgx[1-2],minsky1
   AllocTRES=cpu=3,mem=150M,node=3,billing=3,gres/gpu=5
     Nodes=dgx[1-2] CPU_IDs=0 Mem=50 GRES=gpu:v100:2(IDX:0,3)
     Nodes=minsky1 CPU_IDs=0,2-3 Mem=50 GRES=gpu:p100:1(IDX:2)
   Comment=gpu-topo: pattern=ring JobState=FAKE

JobId=6 ArrayJobId=6 ArrayTaskId=2-4 JobName=wrap
   JobState=PENDING Reason=Resources Dependency=(null)
   NodeList=(null)
"""


def test_a_record_with_several_nodes_and_a_pending_task():
    """Nodes of one line share its indices; a comment forges no field; a pending task has no GPU."""
    running, pending = parse_jobs(RECORD)
    assert running.gpus == {"dgx1": (0, 3), "dgx2": (0, 3), "minsky1": (2,)}
    assert running.cores == {"dgx1": (0,), "dgx2": (0,), "minsky1": (0, 2, 3)}
    assert (running.id, running.state, running.nodes) == (7, "RUNNING", ("dgx1", "dgx2", "minsky1"))
    assert running.fields["Comment"] == "gpu-topo: pattern=ring JobState=FAKE"
    assert (pending.id, pending.state, pending.nodes, pending.gpus) == (6, "PENDING", (), {})


def test_indices_keep_their_order():
    assert parse_indices("5,0-2") == (5, 0, 1, 2)
    assert parse_indices("N/A") == parse_indices("") == ()
