"""From node sets to machines: nothing is guessed, and a node that cannot be trusted says why."""

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest
from machines_in_tests import named

from gres_topology import NodeTopology, catalog
from gres_topology.readers import saved
from slurm_plugin.config import settings as config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import Machine, are_same
from slurm_plugin.errors import ConfigError
from slurm_plugin.learn.collected import NodeRecord, Store
from slurm_plugin.learn.part_marks.marks import Mark, change, path_in

MINSKY = catalog.load("minsky")


def with_minors(*minors: int, topology: NodeTopology = MINSKY) -> NodeTopology:
    return replace(topology, minors=minors)


def machines(
    folder: Path,
    nodes: str,
    gres_conf: str | None = None,
    collected: dict[str, tuple[NodeTopology, NodeTopology]] | None = None,
) -> dict[str, Machine]:
    """`collected` maps node -> (accepted, latest)."""
    if gres_conf is not None:
        (folder / "gres.conf").write_text(gres_conf)
    store = Store(folder)
    records = {
        name: NodeRecord(store.keep(accepted), store.keep(latest), "2026-01-01T00:00:00+00:00")
        for name, (accepted, latest) in (collected or {}).items()
    }
    if records:
        store.save(records)
    text = f"state_dir: {folder}\nnodes:\n- {nodes}"
    return dict(load_machines(config.parse(text, folder / "gputopo.yaml")))


def test_a_catalog_machine_with_identity_needs_no_more(tmp_path):
    found = machines(tmp_path, '{nodes: "n[1-2]", topology: minsky}')
    assert found["n1"].topology is MINSKY
    assert found["n1"].problem == ""
    # One object for all nodes of a kind: tables and mask caches are shared.
    assert found["n1"] is found["n2"]


def test_a_file_is_found_beside_the_configuration(tmp_path):
    (tmp_path / "own.json").write_text(json.dumps(saved.to_dict(MINSKY)))
    found = machines(tmp_path, "{nodes: n1, topology: own.json}")
    assert found["n1"].topology.shape == MINSKY.shape


def test_a_stated_permutation_maps_masks_both_ways(tmp_path):
    found = machines(tmp_path, "{nodes: n1, topology: minsky, slurm_index: [2, 0, 1, 3]}")["n1"]
    assert found.to_topology(0b0001) == 0b0100
    assert found.to_topology(0b0110) == 0b0011
    assert found.to_slurm((2, 3)) == (0, 3)


GRES = "NodeName=n1 Name=gpu File=/dev/nvidia[2-3]\nNodeName=n1 Name=gpu File=/dev/nvidia0\n"
GRES += "NodeName=n1 Name=gpu File=/dev/nvidia1\nNodeName=n2 Name=gpu File=/dev/nvidia[0-3]\n"
BY_CONF = "slurm_index: gres-conf, gres_conf: gres.conf"


def test_gres_conf_and_minors_give_the_mapping_node_by_node(tmp_path):
    topology = with_minors(1, 0, 2, 3)
    collected = dict.fromkeys(("n1", "n2"), (topology, topology))
    found = machines(
        tmp_path, f'{{nodes: "n[1-2]", topology: collected, {BY_CONF}}}', GRES, collected
    )
    # Slurm's GPU 0 of n1 is /dev/nvidia2, the topology's GPU 2; its GPU 2 is /dev/nvidia0.
    assert found["n1"].order == (2, 3, 1, 0)
    assert found["n2"].order == (1, 0, 2, 3)


def test_lines_for_every_node_count_before_a_nodes_own_as_in_slurmd(tmp_path):
    text = "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\nName=gpu File=/dev/nvidia[2-3]\n"
    text += "NodeName=n2 Name=gpu File=/dev/nvidia[0-3]\n"
    collected = dict.fromkeys(("n1", "n2", "n3"), (IN_ORDER, IN_ORDER))
    nodes = f'{{nodes: "n[1-3]", topology: collected, {BY_CONF}}}'
    found = machines(tmp_path, nodes, text, collected)
    assert found["n1"].order == (2, 3, 0, 1)
    assert "gres.conf has 6 device files for 4 GPUs" in found["n2"].problem
    assert "gres.conf has 2 device files for 4 GPUs" in found["n3"].problem


@pytest.mark.parametrize(
    ("gres_conf", "topology", "says"),
    [
        (GRES, MINSKY, "device minor of GPU0 is unknown"),
        (GRES, with_minors(0, 0, 2, 3), "repeat"),
        ("NodeName=n1 Name=gpu File=/dev/nvidia[0-2]", with_minors(0, 1, 2, 3), "3 device files"),
        ("NodeName=n1 Name=gpu File=/dev/nvidia[4-7]", with_minors(0, 1, 2, 3), "is no GPU's"),
        ("NodeName=other Name=gpu File=/dev/nvidia[0-3]", with_minors(0, 1, 2, 3), "no File="),
        ("AutoDetect=nvml", with_minors(0, 1, 2, 3), "PCI addresses of GPUs are unknown"),
        ("AutoDetect=nrt", with_minors(0, 1, 2, 3), "AutoDetect=nrt gres.conf does not tell"),
        (None, with_minors(0, 1, 2, 3), "No such file"),
        ("NodeName=n1 Name", with_minors(0, 1, 2, 3), "expected Key=value"),
    ],
)
def test_a_mapping_that_cannot_be_established_leaves_the_node_to_slurm(
    tmp_path, gres_conf, topology, says
):
    nodes = f"{{nodes: n1, topology: collected, {BY_CONF}}}"
    found = machines(tmp_path, nodes, gres_conf, {"n1": (topology, topology)})["n1"]
    assert says in found.problem


def test_a_stated_identity_stands_where_nothing_disproves_it(tmp_path):
    topology = with_minors(0, 1, 2, 3)
    nodes = "{nodes: n2, topology: minsky, gres_conf: gres.conf}"
    assert machines(tmp_path, nodes, GRES, {"n2": (topology, topology)})["n2"].problem == ""
    assert machines(tmp_path, nodes, "AutoDetect=nvml\n")["n2"].problem == ""


def test_gpus_that_slurmd_detects_are_counted_by_address(tmp_path):
    """Whatever gres.conf lists; a stated order that contradicts it leaves the node to Slurm."""
    pci = ("0000:c1:00.0", "0000:07:00.0", "0000:0a:00.0", "0000:d1:00.0")
    topology = replace(with_minors(0, 1, 2, 3), pci=pci)
    kept = {"n2": (topology, topology)}
    listed = "AutoDetect=nvml\n" + GRES
    found = machines(tmp_path, f"{{nodes: n2, topology: minsky, {BY_CONF}}}", listed, kept)["n2"]
    assert (found.problem, found.order) == ("", (1, 2, 0, 3))
    nodes = "{nodes: n2, topology: minsky, gres_conf: gres.conf}"
    problem = machines(tmp_path, nodes, listed, kept)["n2"].problem
    assert "say [1, 2, 0, 3]; set slurm_index: gres-conf" in problem


def relinked(topology: NodeTopology) -> NodeTopology:
    """The same machine after its first bridge was lost."""
    rows = [list(row) for row in topology.kinds]
    rows[0][1] = rows[1][0] = "SYS"
    return replace(topology, kinds=tuple(map(tuple, rows)))


def test_other_hardware_than_declared_leaves_the_node_to_slurm(tmp_path):
    lost = relinked(MINSKY)
    found = machines(tmp_path, '{nodes: "n[1-2]", topology: minsky}', None, {"n1": (lost, lost)})
    assert found["n1"].problem.startswith("its hardware is not the declared one: GPU0 and GPU1:")
    assert found["n2"].problem == ""


def test_what_rocm_smi_cannot_tell_is_no_mismatch(tmp_path):
    declared = catalog.load("mi250x")
    n = declared.gpus
    blurred = tuple(tuple("X" if i == j else "XGMI" for j in range(n)) for i in range(n))
    found = replace(declared, kinds=blurred)
    nodes = "{nodes: n1, topology: mi250x}"
    assert machines(tmp_path, nodes, None, {"n1": (found, found)})["n1"].problem == ""


def test_minors_that_moved_at_a_reboot_are_followed_by_gres_conf(tmp_path):
    nodes = f"{{nodes: n2, topology: collected, {BY_CONF}}}"
    found = machines(
        tmp_path, nodes, GRES, {"n2": (with_minors(0, 1, 2, 3), with_minors(3, 2, 1, 0))}
    )["n2"]
    assert found.problem == ""
    assert found.order == (3, 2, 1, 0)


IN_ORDER, TURNED = with_minors(0, 1, 2, 3), with_minors(3, 2, 1, 0)
SWAPPED = with_minors(1, 0, 2, 3)
#: What is wrong, the node set, the accepted and the latest hardware, and what is said.
PROBLEMS: list[tuple[str, str, tuple[NodeTopology, ...], str]] = [
    ("a stated identity that the minors disprove", "topology: minsky, gres_conf: gres.conf",
     (SWAPPED, SWAPPED), "say [1, 0, 2, 3]; set slurm_index: gres-conf"),
    ("other hardware than accepted", f"topology: collected, {BY_CONF}",
     (IN_ORDER, relinked(IN_ORDER)), "its hardware is not the accepted one: GPU0 and GPU1:"),
    ("minors that moved, with a stated mapping", "topology: collected, gres_conf: none",
     (IN_ORDER, TURNED), "expected with device minor 0, found 3"),
    ("not collected yet", "topology: collected", (),
     "not collected yet; run gputopo topology collect n2"),
]  # fmt: skip


#: What is kept of a node.
RECORD = {"accepted": "0", "latest": "0", "collected": "2026-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(("node_set", "hardware", "says"), named(PROBLEMS))
def test_a_node_that_cannot_be_trusted_says_why(tmp_path, node_set, hardware, says):
    collected = {"n2": hardware} if hardware else {}
    found = machines(tmp_path, f"{{nodes: n2, {node_set}}}", GRES, collected)["n2"]
    assert says in found.problem


@pytest.mark.parametrize(
    "content",
    named(
        [
            ("cut", "{"),
            ("a list", "[]"),
            ("half a record", '{"n1": {"accepted": "0", "latest": "0"}}'),
            ("a record with more", json.dumps({"n1": {**RECORD, "more": 1}})),
            ("a record of numbers", json.dumps({"n1": dict.fromkeys(RECORD, 1)})),
            ("nested", "[" * 100_000),
        ]
    ),
)
def test_damaged_state_costs_the_collected_nodes_only(tmp_path, content):
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies" / "nodes.json").write_text(content)
    text = (
        f"state_dir: {tmp_path}\nnodes:\n- {{nodes: n1, topology: collected}}\n"
        "- {nodes: n2, topology: minsky}"
    )
    found = load_machines(config.parse(text, tmp_path / "gputopo.yaml"))
    assert "repair it" in found["n1"].problem
    assert found["n2"].problem == ""


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("{nodes: n1, topology: dgx9}", "nodes[0].topology: 'dgx9' is neither a machine of the"),
        ("{nodes: n1, topology: broken.txt}", "nodes[0].topology: "),
        ("{nodes: n1, topology: minsky, slurm_index: [1, 0]}", "slurm_index has 2 entries"),
    ],
)
def test_a_mistake_in_the_file_is_an_error_with_its_line(tmp_path, nodes, says):
    (tmp_path / "broken.txt").write_text("no topology\n")
    with pytest.raises(ConfigError) as caught:
        machines(tmp_path, nodes)
    assert str(caught.value).startswith(f"{tmp_path}/gputopo.yaml:3: nodes[0].")
    assert says in str(caught.value)


def test_many_nodes_leave_no_garbage_that_only_the_collector_finds(tmp_path):
    """All questions wait for the collector, at a reload too."""
    nodes = '{nodes: "n[1-500]", topology: dgx1v, gres_conf: /nowhere}'
    gc.collect()
    gc.disable()
    try:
        assert len(machines(tmp_path, nodes)) == 500
        assert gc.collect() < 500
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"n2": Machine(replace(MINSKY, bandwidth_gbps=2 * MINSKY.bandwidth_gbps))}, False),
        ({"n2": Machine(MINSKY, (1, 0, 2, 3))}, False),
        ({"n2": Machine(None, problem="gone")}, False),
        ({"n3": Machine(MINSKY)}, False),
    ],
    ids=["alike", "wider links", "counted otherwise", "not known", "one more"],
)
def test_whether_all_machines_are_the_same(change, same):
    now = {"n1": Machine(MINSKY), "n2": Machine(replace(MINSKY))}
    assert are_same(now, {"n1": Machine(MINSKY), "n2": Machine(MINSKY)} | change) == same


def test_a_marked_link_may_be_collected_as_less_and_counts_once(tmp_path):
    """GPUs 0 and 1 lost one of two NVLinks: without the mark the node is left to Slurm."""
    kinds = [list(row) for row in MINSKY.kinds]
    kinds[0][1] = kinds[1][0] = "NV1"
    gbps = MINSKY.bandwidth_gbps.copy()
    gbps[0, 1] = gbps[1, 0] = 20
    less = replace(MINSKY, kinds=tuple(map(tuple, kinds)), bandwidth_gbps=gbps)
    for declared in ("minsky", "collected"):
        text = f"{{nodes: n1, topology: {declared}}}"
        collected = {"n1": (MINSKY, less)}
        path_in(tmp_path).unlink(missing_ok=True)
        left = machines(tmp_path, text, collected=collected)["n1"]
        assert "GPU0 and GPU1: expected NV2, found NV1" in left.problem
        change(path_in(tmp_path), lambda mark: False, [Mark("n1", "link 0-1", "degraded", 0.5)])
        marked = machines(tmp_path, text, collected=collected)["n1"]
        assert marked.problem == ""
        assert marked.topology.kinds == MINSKY.kinds
        assert marked.topology.bandwidth_gbps[0, 1] == MINSKY.bandwidth_gbps[0, 1] / 2
