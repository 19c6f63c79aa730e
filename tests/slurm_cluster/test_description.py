"""What a description of a cluster becomes, and which ones are refused in which words."""

import json
from pathlib import Path

import pytest

from gres_topology import catalog, cpulist
from slurm_cluster.description import DEFAULT, Description, DescriptionError, read, text_of, write
from slurm_plugin.config import settings as config

FILE = Path("/etc/slurm/gputopo.yaml")
OTHERS = Description({"hgx1": "dgx-h100", "amd[01-02]": "mi300x", "cpu1": ""})


def written(gres_conf):
    """Keys and values of each line."""
    return [dict(word.split("=") for word in line.split()) for line in gres_conf.splitlines()]


def test_our_own_cluster():
    own = read(DEFAULT)
    assert own.gpus == {"dgx1": 8, "dgx2": 8, "minsky1": 4, "bridged1": 8, "amd1": 8}
    settings = config.parse(own.files()["image/gputopo.yaml"], FILE)
    assert settings.nodes[0].nodes == ("dgx1", "dgx2")
    assert [settings.rule(name).mode for name in ("gpu", "observe", "off")] == [
        "enforce",
        "observe",
        "off",
    ]


def test_each_node_is_a_service():
    services = json.loads(OTHERS.files()["compose.json"])["services"]
    assert list(services) == ["ctl", "ctl2", "hgx1", "amd01", "amd02", "cpu1"]
    assert services["amd02"]["hostname"] == "amd02"
    assert services["amd02"]["cap_add"] == ["SYS_NICE"]


def test_slurms_own_files():
    files = OTHERS.files()
    assert files["image/nodes.conf"].splitlines() == [
        "NodeName=hgx1 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000"
        " Gres=gpu:h100:8 State=UNKNOWN",
        "NodeName=amd[01-02] Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000"
        " Gres=gpu:mi300x:8 State=UNKNOWN",
        "NodeName=cpu1 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN",
    ]
    assert "Gres=gpu:h100.s0:1,gpu:h100.s1:1," in files["image/nodes-slots.conf"]
    lines = written(files["image/gres.conf"])
    assert [line["NodeName"] for line in lines] == ["hgx1"] * 8 + ["amd[01-02]"] * 8
    assert [line["Cores"] for line in lines[:8]] == ["0-7"] * 4 + ["8-15"] * 4
    assert files["image/fakegpu/hosts"].splitlines()[-2:] == ["amd02 mi300x 8", "cpu1  0"]


@pytest.mark.parametrize("machine", catalog.names())
def test_every_machine_of_the_catalog_makes_a_node(machine):
    """As many cores as Slurm is told of, and an engine that knows the machine."""
    files = Description({"n1": machine}).files()
    words = dict(word.split("=") for word in files["image/nodes.conf"].split())
    cores = int(words["Sockets"]) * int(words["CoresPerSocket"])
    lines = written(files["image/gres.conf"])
    listed = [line["Cores"] for line in lines if "Cores" in line]
    assert max(core for text in listed for core in cpulist.parse_list(text)) < cores
    assert config.parse(files["image/gputopo.yaml"], FILE).nodes[0].nodes == ("n1",)


def test_a_cluster_without_any_gpu():
    files = Description({"cpu[1-2]": ""}).files()
    assert config.parse(files["image/gputopo.yaml"], FILE).nodes == ()
    assert files["image/gres.conf"] == ""


def test_more_lines_go_where_they_belong():
    more = Description({"n1": "dgx1v"}, "PartitionName=x Nodes=n1", "partitions: {}").files()
    for name in ("image/nodes.conf", "image/nodes-slots.conf"):
        assert more[name].endswith("State=UNKNOWN\nPartitionName=x Nodes=n1\n")
    assert more["image/gputopo.yaml"].endswith("}\npartitions: {}\n")


def test_nodes_with_pocl_are_another_image():
    made = [Description({"n1": "dgx1v"}, pocl=pocl).files() for pocl in (True, False)]
    services, usual = (json.loads(files["compose.json"])["services"] for files in made)
    assert services["n1"]["image"] == usual["n1"]["image"].replace("-node:", "-pocl:")
    assert services["ctl"] == usual["ctl"]


def test_users_of_nodes_may_make_namespaces_and_nothing_else_that_docker_denies():
    services = json.loads(OTHERS.files()["compose.json"])["services"]
    [option] = services["hgx1"]["security_opt"]
    [denied] = json.loads(Path(option.removeprefix("seccomp=")).read_text())["syscalls"]
    assert not {"unshare", "clone", "clone3"} & set(denied["names"])
    assert {"mount", "setns", "bpf", "keyctl", "init_module"} <= set(denied["names"])
    assert denied["action"] == "SCMP_ACT_ERRNO"
    assert "security_opt" not in services["ctl"]


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(text_of(OTHERS))
    assert read(path) == OTHERS
    write(OTHERS, tmp_path / "files")
    assert (tmp_path / "files" / "hosts").read_text() == "hgx1\namd01\namd02\ncpu1\n"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({}, "nodes: {}; expected {'dgx[1-2]': 'dgx1v'}"),
        ({"n1": "dgx9"}, "nodes: no machine 'dgx9' in the catalog; it has a100-pcie-bridged"),
        ({"n[1": "dgx1v"}, "nodes: "),
        ({"ctl": ""}, "nodes: 'ctl'; expected lower-case letters"),
        ({"DGX1": ""}, "nodes: 'DGX1'; expected lower-case letters"),
        ({"n[1-2]": "", "n2": ""}, "nodes: n[1-2], n2 name a host twice"),
        ({"n[1-300]": ""}, "nodes: 'n[1-300]' makes it more than 256 hosts"),
        ({"a[1-200]": "", "b[1-200]": ""}, "nodes: 400 hosts; expected 256 at most"),
    ],
)
def test_what_cannot_be_is_refused(nodes, said):
    with pytest.raises(DescriptionError) as caught:
        Description(nodes)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: [n1]", "nodes: ['n1']; expected"),
        ("node: {n1: dgx1v}", "expected the keys gputopo_yaml, nodes, pocl, slurm_conf alone"),
        ("nodes: {n1: dgx1v}\nslurm_conf: 3", "slurm_conf: 3; expected lines of text"),
        ("nodes: {n1: dgx1v}\npocl: 1", "pocl: 1; expected true or false"),
        ("nodes: {n1: [x]}", "nodes: {'n1': ['x']}; expected"),
        ("nodes: {1: dgx1v}", "nodes: {1: 'dgx1v'}; expected"),
        ("[", "while parsing"),
        ("\0", "unacceptable character"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(DescriptionError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
