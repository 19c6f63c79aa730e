"""Reports of the vendors' tools on broken links and GPUs, and what they mean for a topology."""

import json

import pytest

from gres_topology import TopologyError, catalog
from gres_topology.readers import health

DGX1V = catalog.load("dgx1v")
DGX_A100 = catalog.load("dgx-a100")


def status(dark: dict[int, set[int]], gpus: int = 8, ports: int = 6) -> str:
    """`nvidia-smi nvlink -s` as in github.com/Azure/azhpc-diagnostics/issues/73."""
    lines = []
    for gpu in range(gpus):
        lines.append(f"GPU {gpu}: Tesla V100-SXM2-32GB (UUID: GPU-{gpu})")
        for port in range(ports):
            rate = "<inactive>" if port in dark.get(gpu, ()) else "25.781 GB/s"
            lines.append(f"         Link {port}: {rate}")
    return "\n".join(lines) + "\n"


def test_gpus_without_nvlinks_print_nothing_and_that_is_said():
    """nvidia-smi nvlink -s and -e, exit status 0 (an H100 in a virtual machine)."""
    with pytest.raises(TopologyError, match=r"f: empty; .*prints nothing for GPUs without NVLinks"):
        health.read("\n", DGX1V, "f")


def found(text, topology=DGX1V):
    return [(one.gpus, one.share) for one in health.read(text, topology, "f").found]


def test_a_power_report_of_driver_580():
    text = "index, power.limit [W], power.default_limit [W]\n0, 700.00 W, 700.00 W\n"
    assert health.read(text, DGX1V, "f") == health.Report("power", [])


def test_one_dark_link_on_both_sides_is_the_cable_between_them():
    """0 and 3 of a DGX-1V are joined by two."""
    assert found(status({0: {2}, 3: {5}})) == [((0, 3), 0.5)]
    assert found(status({0: {2, 3}, 3: {4, 5}})) == [((0, 3), 0.0)]


def test_what_several_cables_could_explain_is_told_of_each_gpu():
    """0-3 and 4-7, or 0-4 and 3-7: nobody can tell."""
    dark = {gpu: {1} for gpu in (0, 3, 4, 7)}
    assert found(status(dark)) == [((gpu,), pytest.approx(5 / 6)) for gpu in (0, 3, 4, 7)]


def test_links_that_no_cable_explains_are_the_gpus_own():
    """Only one end is dark, as after a GPU fell off the bus."""
    assert found(status({3: {3, 5}})) == [((3,), pytest.approx(4 / 6))]


def test_below_a_switch_a_dark_link_is_the_gpus_own():
    assert found(status({2: {7}}, ports=12), DGX_A100) == [((2,), pytest.approx(11 / 12))]


def test_all_links_up_is_nothing():
    assert found(status({})) == []


#: As in github.com/NVIDIA/srt-slurm/pull/307; older drivers write CRC Flit and CRC Data.
ERRORS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0

\t Link 1: Replay Errors: 12
\t Link 1: Recovery Errors: 0
\t Link 1: CRC Flit Errors: 5
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)
\t Link 0: Replay Errors: 0
\t Link 1: CRC Errors: 0
"""


def test_links_that_made_errors_count_half():
    report = health.read(ERRORS, DGX1V, "f")
    assert report.kind == "nvlink -e"
    assert [(one.gpus, one.share) for one in report.found] == [((0,), 0.75)]
    assert report.found[0].why == "link 1: 12 Replay errors; link 1: 5 CRC Flit errors"


def test_power_limits_are_what_the_node_delivers():
    text = (
        "index, power.limit [W], power.default_limit [W]\n"
        "0, 230.00 W, 300.00 W\n1, 300.00 W, 300.00 W\n"
    )
    report = health.read(text, DGX1V, "f")
    assert report.watts == (530, 600)
    assert [(one.gpus, one.share) for one in report.found] == [((), pytest.approx(530 / 600))]
    whole = text.replace("230", "300")
    assert health.read(whole, DGX1V, "f").found == []


def diag(key, *results, test="memory"):
    """`dcgmi diag -j`: releases 3 and 4 as NVIDIA/DCGM's tests have them."""
    return json.dumps({key: {"test_categories": [
        {"category": "Hardware", "tests": [{"name": test, "results": list(results)}]}
    ]}})  # fmt: skip


ECC = {"error_severity": 2, "warning": "Uncorrectable ECC memory error"}
FAIL4 = {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [ECC]}
DIAGS = [
    ("release 4", diag("DCGM Diagnostic", FAIL4, {**FAIL4, "entity_id": 1, "status": "Pass"}),
     [((3,), 0.0)]),
    ("release 3", diag("DCGM GPU Diagnostic", {"gpu_ids": "0,1", "status": "Fail"}),
     [((0,), 0.0), ((1,), 0.0)]),
    ("a setting of the node accuses no GPU", diag("DCGM Diagnostic",
     {**FAIL4, "warnings": [{"error_severity": 5, "warning": "Persistence mode"}]}), []),
    ("another entity", diag("DCGM Diagnostic", {**FAIL4, "entity_group": "CPU"}), []),
    ("a test of links", diag("DCGM Diagnostic", FAIL4, test="pcie"), [((3,), 0.5)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), [d[1:] for d in DIAGS], ids=[d[0] for d in DIAGS])
def test_dcgm_diagnostics(text, wanted):
    assert found(text) == wanted


def test_dcgm_health():
    """As DCGM's Health.cpp and DcgmiOutput.cpp write it: values below `children`."""

    def one(system, value):
        return {"value": value, "children": {"Errors": {"children": {system: {"value": value}}}}}

    body = {
        "Overall Health": {"value": "Failure"},
        "GPU": {"children": {
            "0": one("NVLINK system", "Warning"),
            "2": one("Memory system", "Failure"),
            "5": one("Thermal system", "Warning"),
        }},
    }  # fmt: skip
    text = json.dumps({"header": ["Health Monitor Report"], "body": body})
    assert found(text) == [((0,), 0.5), ((2,), 0.0)]


HOSTILE = [
    ("nothing of the kind", "hello\n", "no report on a node's health"),
    ("JSON of something else", '{"a": 1}', "not a report of dcgmi"),
    ("JSON nested beyond reason", '{"a":' * 100_000, "no JSON"),
    ("half of one", diag("DCGM Diagnostic", FAIL4)[:40], "no JSON"),
    ("GPUs that are no numbers", diag("DCGM Diagnostic", {"gpu_ids": "x", "status": "Fail"}),
     "not a report of dcgmi"),
    ("a GPU there is not", diag("DCGM Diagnostic", {**FAIL4, "entity_id": 8}), "has 8 GPUs"),
    ("a GPU there is not", status({}, gpus=9), "GPU 8; dgx1v has 8 GPUs"),
    ("a link of no GPU", "   Link 0: <inactive>\n", "line 1: a link before any"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_other_texts_are_refused_in_one_line(text, words):
    with pytest.raises(TopologyError) as refused:
        health.read(text, DGX1V, "report.txt")
    assert words.replace("dgx1v", DGX1V.name) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("report.txt")


def test_many_dark_links_are_answered_at_once():
    """Every link of a mesh: too many ways to explain it, so each GPU is told of by itself."""
    assert found(status({gpu: set(range(3)) for gpu in range(8)})) == [
        ((gpu,), 0.5) for gpu in range(8)
    ]
