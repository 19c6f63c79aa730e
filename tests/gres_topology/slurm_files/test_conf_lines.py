"""The lines of Slurm's files as Slurm's own parser sees them."""

from pathlib import Path

import pytest

from gres_topology.errors import TopologyError
from gres_topology.slurm_files import conf_lines, gres_file, topology_conf

#: How a site may write the same line, and where it begins to count.
SAME = {
    "plain": "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\n",
    "keys in any case": "nodename=n1 NAME=gpu file=/dev/nvidia[0-1]\n",
    "blanks around the sign": "NodeName = n1\tName =gpu File= /dev/nvidia[0-1]\r\n",
    "values in quotes": 'NodeName="n1" Name="gpu" File="/dev/nvidia[0-1]"\n',
    "joined": "NodeName=n1 \\\n Name=gpu \\  \n File=/dev/nvidia[0-1]\n",
    "joined within a word": "NodeName=n1 Name=g\\\npu File=/dev/nvidia[0-1]\n",
    "joined to a comment": "NodeName=n1 Name=gpu \\\nFile=/dev/nvidia[0-1] # two \\\n",
    "the last of two counts": "NodeName=n1 Name=mps Name=gpu File=/dev/nvidia[0-1]\n",
    "joined before a comment": "NodeName=n1 Name=gpu File=/dev/nvi\\ # a blank\ndia[0-1]\n",
    "the files' other name": "NodeName=n1 Name=gpu Files=/dev/nvidia0,/dev/nvidia1\n",
    "a backslash at the file's end": "NodeName=n1 Name=gpu File=/dev/nvidia[0-1] \\\n",
}


def read(text: str) -> gres_file.NodeDevices:
    return gres_file.load_devices(Path("t"), lambda _: text)


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_a_line_means_the_same_however_slurm_lets_it_be_written(text):
    assert read(text).files("n1") == ["/dev/nvidia0", "/dev/nvidia1"]


@pytest.mark.parametrize(
    "text",
    [
        "switchname = s1 Nodes= n[1-2]\r\n",
        'SwitchName="s1" NODES="n[1-2]"',
        "SwitchName=s1 Nodes=n[1-\\\n2] # joined \\\n",
        "SwitchName=s1 Nodes=n9 Nodes=n[1-2] \\\n",
    ],
)
def test_topology_conf_has_the_same_grammar(text):
    (domain,) = topology_conf.parse(text, "t").domains
    assert sorted(domain.nodes) == ["n1", "n2"]


@pytest.mark.parametrize("word", ["words", "=x", '"Name"=x', "Type="])
def test_what_is_no_pair_is_named(word):
    line = next(conf_lines.lines(f"NodeName=n1 Name=gpu {word}"))
    with pytest.raises(ValueError, match=f"{word.strip()!r}; expected Key=value"):
        conf_lines.pairs(line)


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder / "gres"


def test_gres_conf_includes_files_where_they_stand(tmp_path):
    path = files(
        tmp_path,
        gres="Name=gpu File=/dev/x0\ninclude more\nName=gpu File=/dev/x3\n",
        more="Name=gpu File=/dev/x1\nInclude  least # \nAutoDetect=nvml\n",
        least="Name=gpu File=/dev/x2\n",
    )
    found = gres_file.load_devices(path)
    assert [line.file[-1] for line in found.lines[""]] == ["0", "1", "2", "3"]
    assert found.detection == {"": "nvml"}


@pytest.mark.parametrize(
    ("gres", "says"),
    [
        ("Include gone\n", r"gone: No such file.* \(included in .*gres, line 1\)"),
        ("\nInclude gres\n", r"gres: includes itself, .*gres, line 2\)"),
        ("Include more and\n", r"gres, line 1: 'and' behind an included file"),
        ("Include more\n", r"more line 1: 'nonsense'; expected Key=value"),
        ("Include %c\n", "%c stands for ClusterName"),
        ("Include *.conf\n", "no pattern of names"),
    ],
)
def test_a_file_that_cannot_be_included_is_named(tmp_path, gres, says):
    with pytest.raises(TopologyError, match=says):
        gres_file.load_devices(files(tmp_path, gres=gres, more="nonsense\n"))


@pytest.mark.parametrize(
    ("file", "devices"),
    [
        ("/dev/nvidia[3,1,0]", "3 1 0"),  # as `scontrol show hostnames` has them
        ("/dev/nvidia[00-01,9-10]", "00 01 9 10"),
        ("/dev/nvidia[0-1],/dev/nvidia[4-5]", "0 1 4 5"),
        ("/dev/nvidia[0-1],/dev/nvidia7", "0 1 7"),
        ("/dev/nvidia[0,0]", "0 0"),
    ],
)
def test_devices_stand_in_the_order_in_which_they_are_written(file, devices):
    """slurmd counts GPUs in it where it does not detect them."""
    found = read(f"Name=gpu File={file}\n").files("n1")
    assert [name.removeprefix("/dev/nvidia") for name in found] == devices.split()


@pytest.mark.parametrize("file", ["/dev/x[3-1]", "/dev/x[0-]", "/dev/x[٣]", "/dev/x[0", "/dev/x[]"])
def test_a_range_that_is_none_is_an_error_with_its_line(file):
    found = read(f"Name=gpu File={file}\n")
    with pytest.raises(TopologyError, match="t line 1: File="):
        found.files("n1")


def test_an_include_behind_a_link_is_looked_for_where_slurm_does(tmp_path):
    """`..` of a folder that is a link is the folder in which what it leads to lies."""
    for folder in ("etc", "shared/slurm", "shared/common", "etc/common"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "etc" / "slurm").symlink_to(tmp_path / "shared" / "slurm")
    files(tmp_path / "etc" / "slurm", gres="Include ../common/gpus\n")
    files(tmp_path / "shared" / "common", gpus="Name=gpu File=/dev/right\n")
    files(tmp_path / "etc" / "common", gpus="Name=gpu File=/dev/wrong\n")
    found = gres_file.load_devices(tmp_path / "etc" / "slurm" / "gres")
    assert found.files("n1") == ["/dev/right"]
