"""A cluster's files where some nodes are something else."""

from slurm_cluster import redeclared

MACHINES = {"dgx1": "dgx1v", "dgx2": "dgx1v", "amd1": "mi250x"}
SLURM = "ClusterName=c\nNodeName=dgx[1-2] Gres=gpu:v100:8\nNodeName=amd1 Gres=gpu:8\n"
ENGINE = """socket: s
nodes:
  - {nodes: "dgx[1-2]", topology: dgx1v, slurm_index: identity}
  - {nodes: "amd1", topology: mi250x, slurm_index: identity}
partitions:
"""


def test_lines_of_other_nodes_stay():
    kept = redeclared.rest(SLURM, MACHINES, ["dgx1"])
    assert kept == "ClusterName=c\nNodeName=dgx2 Gres=gpu:v100:8\nNodeName=amd1 Gres=gpu:8\n"


def test_the_engine_is_told_what_the_node_is():
    assert (
        redeclared.with_nodes(ENGINE, MACHINES, {"dgx1": "topology: x, slices: [0-6]"})
        == """socket: s
nodes:
  - {nodes: dgx1, topology: x, slices: [0-6]}
  - {nodes: "dgx2", topology: dgx1v, slurm_index: identity}
  - {nodes: "amd1", topology: mi250x, slurm_index: identity}
partitions:
"""
    )
