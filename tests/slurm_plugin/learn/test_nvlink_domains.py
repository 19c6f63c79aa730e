"""NVLink domains over several nodes: what the tools say, and what is told to whom."""

from dataclasses import replace

import pytest
from machines_in_tests import basic_config, named

from gres_topology import catalog
from gres_topology.readers.nvidia_smi import nvlink_domain
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import Machine, are_same, nvlink
from slurm_plugin.learn.collected import NodeRecord, Store

RACK = "dc6e40c4-d722-4357-9ba6-5291dd461278"
OTHER = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
ZEROS = "00000000-0000-0000-0000-000000000000"


def gpu(cluster=RACK, clique="4026", state="Completed", status="Success") -> str:
    """The lines of one GPU of `nvidia-smi -q` that matter, as driver 580 prints them."""
    return f"""\
GPU 00000008:06:00.0
    Minor Number                                       : 0
        GPU Fabric GUID                                : 0x9f4c3d2e1b0a7788
    Fabric
        State                                          : {state}
        Status                                         : {status}
        CliqueId                                       : {clique}
        ClusterUUID                                    : {cluster}
        Health
            Summary                                    : Healthy
            Bandwidth                                  : Full
    Processes                                          : None
"""


@pytest.mark.parametrize(
    ("query", "domain"),
    named(
        [
            ("a tray of an NVL72", gpu() * 4, f"{RACK}.4026"),
            ("in capitals", gpu(RACK.upper()), f"{RACK}.4026"),
            ("an HGX", gpu(ZEROS, "0") * 8, ""),
            ("no fabric", gpu("N/A", "N/A", "N/A", "N/A"), ""),
            ("one GPU of another partition", gpu() * 3 + gpu(clique="7"), ""),
            ("one GPU that is not registered", gpu() * 3 + gpu(state="In Progress"), ""),
            ("one GPU without", gpu() * 3 + gpu("N/A", "N/A", "In Progress", "N/A"), ""),
            ("one GPU that is lost", gpu() * 3 + "GPU 0009:06:00.0\n    ERROR: lost\n", ""),
            ("refused", gpu(status="Insufficient Resources"), ""),
            ("cut", gpu()[: gpu().index("ClusterUUID")], ""),
            ("nothing", "", ""),
        ]
    ),
)
def test_the_domain_is_that_of_all_gpus(query, domain):
    assert nvlink_domain(query) == domain


def collected(folder, domains: dict[str, str]):
    """Machines of nodes that were found in these domains."""
    config = basic_config(folder)
    store = Store(config.state_dir)
    key = store.keep(catalog.load("dgx1v"))
    day = "2026-01-01T00:00:00+00:00"
    store.save({name: NodeRecord(key, key, day) for name in domains})
    store.save_domains(domains)
    return load_machines(config)


def test_a_node_has_the_domain_that_was_collected_and_a_move_of_cables_is_a_change(tmp_path):
    first = collected(tmp_path, {"dgx1": "a.1", "dgx2": "a.1"})
    assert [first[name].domain for name in ("dgx1", "dgx2", "dgx3")] == ["a.1", "a.1", None]
    assert first["dgx1"] is first["dgx2"]
    assert not are_same(first, collected(tmp_path, {"dgx1": "a.1", "dgx2": "b.1"}))


def test_engines_of_before_read_the_records_and_a_damaged_file_of_domains_costs_no_more(
    tmp_path, caplog
):
    collected(tmp_path, {"dgx1": "a.1", "dgx2": ""})
    folder = tmp_path / "state" / "topologies"
    assert "domain" not in (folder / "nodes.json").read_text()
    (folder / "nvlink-domains.json").write_text('{"dgx1": [1]}')
    machines = load_machines(basic_config(tmp_path))
    assert machines["dgx1"].domain is None
    assert not machines["dgx1"].problem
    assert "which nodes NVLink joins is not known" in caplog.text


def test_a_hostile_answer_of_any_length_is_read_at_once():
    for text in (" " * 4_000_000, ":" * 4_000_000, "x: " * 1_000_000):
        assert nvlink_domain(f"GPU 0:1\n    Fabric\n        State : {text}\n") == ""
    assert nvlink_domain("GPU 0\n    Fabric\n" * 200_000) == ""


WHOLE = Machine(catalog.load("gb200-tray"))


@pytest.mark.parametrize(
    ("nodes", "words"),
    named(
        [
            ("one", "n1 n2", "its nodes are of one NVLink domain, a.1"),
            ("two", "n1 n2 m1", "its nodes are of no one NVLink domain: n1, n2 in a.1; m1 in b.1"),
            ("one beside", "n1 x1", "its nodes are of no one NVLink domain: n1 in a.1; x1 in none"),
            ("many", "n1 n2 n3 n4 n5 n6 m1", "n1, n2, n3, n4 and 2 more in a.1; m1 in b.1"),
            ("a node alone", "n1", ""),
            ("none of them", "x1 x2", ""),
            ("none at all", "", ""),
            ("one that is not known", "n1 n2 u1", ""),
        ]
    ),
)
def test_how_a_jobs_nodes_are_joined(nodes, words):
    machines = {f"n{k}": replace(WHOLE, domain="a.1") for k in range(1, 7)}
    machines |= {"m1": replace(WHOLE, domain="b.1"), "u1": WHOLE}
    machines |= {name: replace(WHOLE, domain="") for name in ("x1", "x2")}
    found = nvlink(machines, nodes.split())
    assert found.endswith(words) if words else not found
