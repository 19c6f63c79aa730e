"""amd-smi's JSON, of two releases of its command line, beside rocm-smi of the same machine."""

import json
import re
from pathlib import Path

import pytest

import gres_topology
from gres_topology import TopologyError
from gres_topology.readers import saved

ASSETS = Path(__file__).parents[1] / "assets"
FILES = sorted(ASSETS.glob("amd-smi-*.json"))
MI300X = (ASSETS / "amd-smi-mi300x-cli-10.json").read_text()
#: Topology, static --asic --bus, static --numa.
LINKS, CARDS, PLACES = re.split(r"(?m)^(?=\{)", MI300X)


def read(text):
    return gres_topology.read(text + "\n", name="node", source="node.txt")


def values(topology):
    return {**saved.to_dict(topology), "source": "", "name": ""}


def changed(change):
    """The links after `change(list of GPUs)`, and the rest."""
    said = json.loads(LINKS)
    change(said)
    return json.dumps(said, indent=4) + "\n" + CARDS + PLACES


def of_pair(key, value, back=True):
    def change(said):
        said[1]["links"][5][key] = value
        if back:
            said[5]["links"][1][key] = value

    return changed(change)


def test_a_machine_is_the_same_by_amd_smi_and_by_rocm_smi():
    rocm = (ASSETS / "own-rocm-mi300x-full.txt").read_text()
    assert values(read(MI300X)) == values(read(rocm))


def test_the_older_command_line_lists_gpus_where_the_newer_has_a_key_for_them():
    found = read((ASSETS / "amd-smi-mi250x-cli-6.json").read_text())
    assert found.model == "AMD Instinct MI250X"
    assert found.numa == (3, 3, 1, 1, 0, 0, 2, 2)
    assert found.pci[0] == "0000:c1:00.0"
    assert (found.bandwidth_gbps[0, 1], found.bandwidth_gbps[0, 3]) == (50, 25)


def test_hops_of_xgmi_are_told_by_weights():
    """AMD's tools state one hop for all pairs of an MI250X, though most are two links apart."""
    found = read((ASSETS / "amd-smi-mi250x-cli-6.json").read_text())
    near = {(a, b) for a in range(8) for b in range(a) if found.bandwidth_gbps[a, b] == 50}
    assert len(near) == 12
    assert {float(found.bandwidth_gbps[a, b]) for a in range(8) for b in range(a)} == {25, 50}


def test_links_alone_tell_the_machine_without_its_model():
    found, whole = read(LINKS), read(MI300X)
    assert (found.kinds, found.pci) == (whole.kinds, whole.pci)
    assert (found.model, found.numa, found.bandwidth_gbps[0, 1]) == (None, (None,) * 8, 50)


def test_warnings_around_the_json_are_passed_over():
    text = f"WARNING: not in group render\n{LINKS}\nWARNING: again\n{CARDS}{PLACES}"
    assert values(read(text)) == values(read(MI300X))


@pytest.mark.parametrize("lost", ["link_type", "num_hops", "weight", "bandwidth", "link_status"])
def test_any_one_figure_may_be_missing(lost):
    def change(said):
        for gpu in said:
            for link in gpu["links"]:
                del link[lost]

    assert values(read(changed(change))) == values(read(MI300X))


@pytest.mark.parametrize(
    ("link_type", "hops", "label", "gbps"),
    [("PCIE", 3, "PCIE", 48), ("PCIE", 2, "PCIE", 50), ("XGMI", 2, "XGMI", 32),
     ("N/A", 0, "N/A", 48), ("UNKNOWN", 0, "N/A", 48)],
)  # fmt: skip
def test_a_pair_that_is_joined_otherwise(link_type, hops, label, gbps):
    said = json.loads(of_pair("link_type", link_type).partition("\n{")[0])
    for a, b in ((1, 5), (5, 1)):
        said[a]["links"][b]["num_hops"] = hops
    found = read(json.dumps(said, indent=4) + "\n" + CARDS)
    assert found.kinds[1][5] == found.kinds[5][1] == label
    assert found.bandwidth_gbps[1, 5] == gbps


DAMAGED = [
    ("another type one way", of_pair("link_type", "PCIE", back=False), "line 1, cell GPU1-GPU5"),
    ("other hops one way", of_pair("num_hops", 2, back=False), "cell GPU1-GPU5: weight and hops"),
    ("a type that is none", of_pair("link_type", "WIFI"), "'WIFI' is not a link"),
    ("itself elsewhere", of_pair("link_type", "SELF"), "'SELF' is not a link"),
    ("a weight in words", of_pair("weight", "much"), "weight is 'much'"),
    ("negative hops", of_pair("num_hops", -1), "num_hops is '-1'"),
    ("a link to nobody", of_pair("gpu", 77), "unknown or repeated link"),
    ("a link to itself twice", of_pair("gpu", 1), "unknown or repeated link"),
    ("a link less", changed(lambda said: said[3]["links"].pop()), "cell GPU3-GPU7: missing"),
    ("a GPU less", changed(lambda said: said.pop()), "links of GPUs .* but facts of"),
    ("a GPU twice", changed(lambda said: said.append(said[0])), "GPU0 is told of twice"),
    ("a GPU without a number", changed(lambda said: said[0].update(gpu="0")), "gpu is '0'"),
    ("a GPU of yes", changed(lambda said: said[0].update(gpu=True)), "gpu is True"),
    ("links that are no list", changed(lambda said: said[0].update(links={})),
     "GPU0-GPU0: missing"),
    ("another address in the other report", changed(lambda said: said[2].update(bdf="0:ff:00.0")),
     "GPU2 is at 0:ff:00.0 and at 0000:1e:00.0"),
    ("facts of fewer GPUs", LINKS + json.dumps({"gpu_data": [{"gpu": 0}]}), r"facts of \[0\]"),
    ("facts alone", CARDS, "no links between GPUs"),
    ("a list of lists", '[[\n"bdf": 1]]'.replace('"bdf": 1', '{"bdf": 1}'), "no list of GPUs"),
    ("a number without end", '[{"bdf":\n' + "9" * 5000 + "}]", "JSON beyond reason"),
    ("nested without end", '[{"bdf":\n' + "[" * 100_000, "JSON beyond reason"),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "text", "told"), DAMAGED, ids=[d[0] for d in DAMAGED])
def test_a_report_that_contradicts_itself_is_refused(sentence, text, told):
    with pytest.raises(TopologyError, match=told) as caught:
        read(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_report_cut_in_a_line_is_refused_with_that_line_or_lacks_only_what_follows(path):
    text = path.read_text()
    lines, whole = text.split("\n"), read(text)
    ends = [at for at, line in enumerate(lines, 1) if line in ("]", "}")]
    for cut in range(4, len(lines), 9):
        if cut not in ends:
            with pytest.raises(TopologyError, match=rf"node.txt line ({cut}|{cut + 1})\b"):
                read("\n".join(lines[:cut]))
    assert read("\n".join(lines[: ends[0]])).kinds == whole.kinds


def printed(title, cell):
    """A table of `amd-smi topology` without --json."""
    buses = ("0000:03:00.0", "0000:0c:00.0")
    rows = [" " * 13 + " ".join(buses)]
    rows += [f"{a} " + " ".join(f"{cell(a == b):12}" for b in buses) for a in buses]
    return "\n".join([f"{title} TABLE:", *rows, ""])


PRINTED = (
    printed("ACCESS", lambda own: "ENABLED" if own else "DISABLED")
    + printed("WEIGHT", lambda own: "0" if own else "40")
    + printed("HOPS", lambda own: "0" if own else "2")
    + printed("LINK TYPE", lambda own: "SELF" if own else "PCIE")
    + printed("NUMA BW", lambda own: "N/A")
    + "Legend:\n  SELF = Current GPU\n"
)


def test_the_tables_that_amd_smi_prints_without_json_are_read():
    found = gres_topology.read(PRINTED, name="n", source="f")
    assert found.kinds == (("X", "PCIE"), ("PCIE", "X"))
    assert found.pci == ("0000:03:00.0", "0000:0c:00.0")
    assert found.source == "amd-smi topology: f"
    xgmi = gres_topology.read(PRINTED.replace("PCIE", "XGMI"), name="n", source="f")
    assert xgmi.kinds[0][1] == "XGMI"


def test_printed_tables_cut_anywhere_are_the_same_links_or_refused():
    for end in range(PRINTED.index("LINK TYPE"), len(PRINTED)):
        try:
            found = gres_topology.read(PRINTED[:end] + "\n", name="n", source="f")
        except TopologyError:
            continue
        assert found.kinds == (("X", "PCIE"), ("PCIE", "X"))
