"""Slurm, the engine and the nodes' own links agree about the network, or doctor says where not."""

import pytest

from gres_topology import catalog
from slurm_plugin.learn.collected import NodeRecord, Store


@pytest.mark.parametrize(("version", "words"), [
    ("24.11.5", "gputopo.yaml names no topology_conf"),
    ("25.05.0", "goes by {folder}/slurm/topology.yaml"),
    ("26.05.3", "goes by {folder}/slurm/topology.yaml"),
])  # fmt: skip
def test_a_topology_yaml_counts_from_the_release_on_that_reads_it(site, version, words):
    (site.folder / "slurm" / "topology.yaml").write_text("- {topology: a, flat: true}")
    site.slurm.values["SLURM_VERSION"] = version
    (text,) = (found.text for found in site.findings() if found.check == "network")
    assert words.format(folder=site.folder) in text


@pytest.mark.parametrize(("ours", "level", "words"), [
    (None, "warn", "and gputopo.yaml names no topology_conf; Slurm chooses the nodes"),
    ("slurm/topology.conf", "ok", "Slurm goes by {folder}/slurm/topology.conf, and so does"),
    ("copy.conf", "ok", "and so does topology_conf: {folder}/copy.conf"),
    ("other.conf", "warn", "{folder}/other.conf describes another network"),
    ("broken.conf", "warn", "broken.conf:1: switch s1 has neither nodes nor switches"),
])  # fmt: skip
def test_slurm_and_the_engine_go_by_one_network(site, ours, level, words):
    network = "SwitchName=s1 Nodes=dgx1\n"
    (site.folder / "slurm" / "topology.conf").write_text(network)
    (site.folder / "copy.conf").write_text(f"# the same\n{network}")
    (site.folder / "other.conf").write_text(network.replace("dgx1", "dgx2"))
    (site.folder / "broken.conf").write_text("SwitchName=s1\n")
    if ours:
        site.config.write_text(site.config.read_text() + f"topology_conf: {ours}\n")
    site.slurm.values["TopologyPlugin"] = "topology/tree"
    (finding,) = (found for found in site.findings() if found.check == "network")
    assert finding.level == level
    assert words.format(folder=site.folder) in finding.text


@pytest.mark.parametrize(("shown", "level", "words"), [
    ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=dgx[1-2]", "ok", "and so does topology_conf"),
    ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=dgx1", "warn",
     "topology.conf: dgx2 is not in switch s1. The engine goes by slurmctld's"),
    ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=dgx[1-3]", "warn", "dgx3 is in switch s1."),
    ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=dgx[1-2],storage1", "ok", "and so does topology"),
    ("SwitchName=s2 Level=0 LinkSpeed=1 Nodes=dgx[1-2]", "warn", "dgx1 is not in switch s1."),
    ("BlockName=b1 BlockIndex=0 Nodes=dgx1", "ok", "and so does topology_conf"),
    ("", "ok", "and so does topology_conf"),
], ids=["same", "left", "came", "no host of Slurm's", "other name", "unread", "none"])  # fmt: skip
def test_what_slurmctld_has_in_force_may_be_another_network_than_the_file_says(
    site, shown, level, words
):
    """Nodes move by `scontrol update nodename topology=`, or a file was not read again."""
    (site.folder / "slurm" / "topology.conf").write_text("SwitchName=s1 Nodes=dgx[1-2]\n")
    site.config.write_text(site.config.read_text() + "topology_conf: slurm/topology.conf\n")
    site.slurm.values["TopologyPlugin"] = "topology/tree"
    site.slurm.topology = shown
    (finding,) = (found for found in site.findings() if found.check == "network")
    assert finding.level == level
    assert words in finding.text


def blocks(*lists: str) -> str:
    """What slurmctld shows of blocks with these nodes."""
    return "".join(
        f"BlockName=b{k} BlockIndex={k} Nodes={n} BlockSize=2\n" for k, n in enumerate(lists, 1)
    )


@pytest.mark.parametrize(("domains", "shown", "found"), [
    ("", blocks("dgx[1-3]"), []),
    ("aab", blocks("dgx[1-2]", "dgx3"),
     [("ok", "3 nodes are in 2 NVLink domains, each within one block")]),
    ("aab", blocks("dgx1", "dgx[2-3]"),
     [("warn", "block b2 has nodes of 2 NVLink domains: dgx2 of a, dgx3 of b"),
      ("warn", "NVLink domain a is over 2 blocks: b1, b2")]),
    ("aab", "", [("warn", "3 nodes are in 2 NVLink domains, and Slurm knows no blocks")]),
    ("aaa", "", [("ok", "3 nodes are in 1 NVLink domain")]),
    ("a b", blocks("dgx[1-2]", "dgx3"),
     [("ok", "2 nodes are in 2 NVLink domains, each within one block")]),
], ids=["none", "alike", "apart", "no blocks", "one", "one node not collected"])  # fmt: skip
def test_blocks_are_what_nvlink_joins(site, domains, shown, found):
    store, day = Store(site.folder / "state"), "2026-01-02T00:00:00+00:00"
    key = store.keep(catalog.load("dgx1v"))
    found_in = {f"dgx{k}": domain for k, domain in enumerate(domains, 1) if domain.strip()}
    store.save({name: NodeRecord(key, key, day) for name in found_in})
    store.save_domains(found_in)
    site.slurm.topology = shown
    findings = [one for one in site.findings() if one.check == "network" and "NVLink" in one.text]
    assert [(one.level, one.text) for one in findings] == found


def test_who_gives_jobs_their_imex_channels_is_said(site):
    store = Store(site.folder / "state")
    key = store.keep(catalog.load("dgx1v"))
    store.save({"dgx1": NodeRecord(key, key, "2026-01-02T00:00:00+00:00")})
    store.save_domains({"dgx1": "a"})
    site.slurm.values["SwitchType"] = "switch/nvidia_imex"
    [*_, finding] = (one for one in site.findings() if one.check == "network")
    assert finding.text.endswith("domain, whose IMEX channels jobs get of switch/nvidia_imex")
