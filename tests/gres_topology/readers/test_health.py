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
    text = "index, power.limit [W], power.default_limit [W]\n"
    rows = [f"{gpu}, 700.00 W, 700.00 W\n" for gpu in range(8)]
    assert health.read(text + "".join(rows), DGX1V, "f") == health.HealthReport("power", [])
    # Of a GPU that fell off the bus there is `[Unknown Error]`: nothing is known of the whole.
    rows[3] = "3, [Unknown Error], [Unknown Error]\n"
    assert health.read(text + "".join(rows), DGX1V, "f").untold == {3}


def test_one_dark_link_on_both_sides_is_the_cable_between_them():
    """0 and 3 of a DGX-1V are joined by two."""
    assert found(status({0: {2}, 3: {5}})) == [((0, 3), 0.5)]
    assert found(status({0: {2, 3}, 3: {4, 5}})) == [((0, 3), 0.0)]


def test_what_several_cables_could_explain_is_told_of_each_gpu():
    """0-3 and 4-7, or 0-4 and 3-7: nobody can tell."""
    dark = {gpu: {1} for gpu in (0, 3, 4, 7)}
    assert found(status(dark)) == [((gpu,), pytest.approx(5 / 6)) for gpu in (0, 3, 4, 7)]


#: Stands in place of a GPU's links: github.com/leptonai/gpud/issues/1085, eight B200.
ALL_DARK = "NVML: Unable to retrieve NVLink information as all links are inActive"


def dark(gpus: set[int], of: int = 8, ports: int = 18) -> str:
    """`nvidia-smi nvlink -s` where these GPUs have no link left."""
    rows = status({}, of, ports).splitlines()
    kept, gpu = [], -1
    for row in rows:
        gpu += row.startswith("GPU")
        if gpu not in gpus or row.startswith("GPU"):
            kept.append(row)
        if gpu in gpus and row.startswith("GPU"):
            kept.append(ALL_DARK)
    return "\n".join(kept) + "\n"


HGX_B200 = catalog.load("hgx-b200")


def test_a_gpu_all_of_whose_links_are_inactive_has_none_left():
    assert found(dark({2}), HGX_B200) == [((2,), 0.0)]
    assert health.read(dark({2}), HGX_B200, "f").untold == frozenset()
    assert found(dark(set(range(8))), HGX_B200) == [((gpu,), 0.0) for gpu in range(8)]
    assert found(dark({2}, ports=6)) == [((2,), 0.0)], "a mesh"


def test_gpus_that_are_wired_to_none_have_lost_none():
    """A GPU of PCIe alone says the same sentence."""
    assert found(dark(set(range(8))), catalog.load("l40s-8")) == []


SILENT = [
    ("a heading without a line on links", dark({2}).replace(ALL_DARK, ""), {2}),
    ("a line that tells of no link", dark({2}).replace(ALL_DARK, "NVML: GPU is lost"), {2}),
    ("a GPU that is missing", status({}, 5, 18), {5, 6, 7}),
    ("a report that was cut off", status({}, 6, 18)[:-60], {5, 6, 7}),
]


@pytest.mark.parametrize(("text", "untold"), [s[1:] for s in SILENT], ids=[s[0] for s in SILENT])
def test_gpus_of_which_too_little_is_said_are_not_called_whole(text, untold):
    report = health.read(text, HGX_B200, "f")
    assert (report.found, report.untold) == ([], untold)
    assert report.tells_of((0, 1))
    assert not report.tells_of((0, max(untold)))


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
    # Of all that the GPU has, though the report was cut down to two of them.
    assert [(one.gpus, one.share) for one in report.found] == [((0,), pytest.approx(11 / 12))]
    assert report.found[0].why == "link 1: 12 replay errors; link 1: 5 crc flit errors"
    assert report.untold == set(range(8))


def counters(links=18, **changed):
    """GPU 0 of a GB200 by driver 595: what moves while all is well, and what should not."""
    lines = ["GPU 0: NVIDIA GB200 (UUID: GPU-a)"]
    for link in range(links):
        told = {
            "Rx Errors": 0, "Tx discards": 0, "Link recovery successful events": 0,
            "Link recovery failed events": 0, "Total link recovery events": 0,
            "Effective Errors": 0, "Effective BER": "15e-255", "Symbol Errors": 0,
            "FEC Errors - 0": 36140749276, "Raw BER Lane 0": 2061, "Raw Errors Lane 0": 82,
        }  # fmt: skip
        told |= changed.get(f"link{link}", {})
        lines += [f"\t Link {link}: {name}: {count}" for name, count in told.items()]
    return "\n".join(lines) + "\n"


def test_a_link_that_recovers_again_and_again_is_one_that_makes_errors():
    """marin-community/marin issue 9086: 505 recoveries, no error, and five days later it failed."""
    gb200 = catalog.load("gb200-tray")
    assert health.read(counters(), gb200, "f").found == []
    for name in ("Link recovery failed events", "Total link recovery events"):
        (one,) = health.read(counters(link14={name: 505}), gb200, "f").found
        assert (one.gpus, one.share) == ((0,), pytest.approx(1 - 0.5 / 18))
        assert one.why == f"link 14: 505 {name.lower()}"


def test_a_gpu_without_error_counters_is_not_called_whole():
    """Drivers print N/A, or say that all links are inactive."""
    two = ERRORS.replace("Link 0: Replay Errors: 0\n\t Link 1: CRC Errors: 0", "Link 0: N/A")
    whole = "".join(f"\t Link {link}: Replay Errors: 0\n" for link in range(2, 6))
    two = two.replace("GPU 1:", whole + "GPU 1:")
    assert health.read(two, DGX1V, "f").untold == set(range(1, 8))
    gone = ERRORS[: ERRORS.index("GPU 1")] + "GPU 1: x\n" + ALL_DARK
    assert found(gone) == [((0,), pytest.approx(11 / 12)), ((1,), 0.0)]


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


def test_of_a_table_of_power_the_columns_count_by_their_names():
    text = "power.max_limit [W], index, power.default_limit [W], power.limit [W]\n"
    report = health.read(text + "300 W, 0, 300 W, 230 W\n", DGX1V, "f")
    assert report.watts == (230, 300)
    for other in ("power.draw [W]", "power.max_limit [W]"):
        # What the GPU draws is no limit: another column may not stand for the default one.
        told = f"index, power.limit [W], {other}\n0, 130.00 W, 9.82 W\n"
        with pytest.raises(TopologyError, match=r"f: no column power.default_limit; expected"):
            health.read(told, DGX1V, "f")


def test_the_limit_that_is_enforced_counts():
    text = "index, power.limit, enforced.power.limit, power.default_limit\n0, 700 W, 350 W, 700 W\n"
    assert health.read(text, DGX1V, "f").watts == (350, 700)


def test_imex_is_no_link():
    """Its daemon's state stands below NVLINK, on nodes without one, too."""
    message = {"Message": {"value": "IMEX daemon status is -3 (not READY)"}}
    system = {"NVLINK system": {"value": "Failure", "children": message}}
    gpu = {"children": {"Errors": {"children": system}}}
    report = {"header": ["Health Monitor Report"], "body": {"GPU": {"children": {"0": gpu}}}}
    assert found(json.dumps(report)) == []
    message["Message"]["value"] = "NVLink 3 is down"
    assert found(json.dumps(report)) == [((0,), 0.5)]


def test_lines_before_and_behind_dcgms_json_are_passed_over():
    text = diag("DCGM Diagnostic", FAIL4)
    assert found(f"Warning: no nvvs log\n{text}\nrc=226\n") == [((3,), 0.0)]


def test_a_power_report_of_no_gpu_says_nothing():
    text = "index, power.limit [W], power.default_limit [W]\n0, [N/A], [N/A]\n"
    with pytest.raises(TopologyError, match="f: no GPU's power limits"):
        health.read(text, DGX1V, "f")


def diag(key, *results, test="memory"):
    """`dcgmi diag -j`: releases 3 and 4 as NVIDIA/DCGM's tests have them."""
    return json.dumps(
        {
            key: {
                "test_categories": [
                    {"category": "Hardware", "tests": [{"name": test, "results": list(results)}]}
                ]
            }
        }
    )


ECC = {"error_severity": 2, "warning": "Uncorrectable ECC memory error"}
FAIL4 = {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [ECC]}
DIAGS = [
    ("release 4", diag("DCGM Diagnostic", FAIL4, {**FAIL4, "entity_id": 1, "status": "Pass"}),
     [((3,), 0.0)]),
    ("release 3", diag("DCGM GPU Diagnostic", {"gpu_ids": "0,1", "status": "Fail"}),
     [((0,), 0.0), ((1,), 0.0)]),
    # As dcgmi prints what nvvs found: IBM/autopilot, NVIDIA/DCGM issue 139.
    ("release 3, by dcgmi", diag("DCGM GPU Diagnostic", {"gpu_id": "0", "status": "Fail"},
     {"gpu_id": "1", "status": "Pass"}), [((0,), 0.0)]),
    # Persistence mode, driver libraries: facebookresearch/gcm, test_check_dcgmi.py.
    ("a test of the node", diag("DCGM GPU Diagnostic", {"status": "Fail"}), []),
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


def test_diagnostics_that_were_skipped_clear_nothing():
    results = [{**FAIL4, "entity_id": 0, "status": "Pass"}, {**FAIL4, "status": "Skip"}]
    report = health.read(diag("DCGM Diagnostic", *results), DGX1V, "f")
    assert (report.found, report.untold) == ([], set(range(1, 8)))


def test_a_node_that_is_ill_without_a_word_on_gpus_clears_nothing():
    body = {"Overall Health": {"value": "Failure"}}
    text = json.dumps({"header": ["Health Monitor Report"], "body": body})
    assert health.read(text, DGX1V, "f").untold == set(range(8))
    assert health.read(text.replace("Failure", "Healthy"), DGX1V, "f").untold == frozenset()


CUT = [status({0: {2}}), dark({2}), ERRORS, diag("DCGM Diagnostic", FAIL4),
       "index, power.limit [W], power.default_limit [W]\n0, 230.00 W, 300.00 W\n"]  # fmt: skip


@pytest.mark.parametrize("text", CUT, ids=["-s", "all dark", "-e", "diag", "power"])
def test_a_report_cut_anywhere_is_read_or_refused_and_accuses_no_other_gpu(text):
    whole = {gpus for gpus, _ in found(text)}
    for end in range(len(text)):
        try:
            report = health.read(text[:end], DGX1V, "f")
        except TopologyError:
            continue
        assert {one.gpus for one in report.found} <= whole


HOSTILE = [
    ("nothing of the kind", "hello\n", "no report on a node's health"),
    ("JSON of something else", '{"a": 1}', "no report of dcgmi diag"),
    ("JSON nested beyond reason", '{"a":' * 100_000, "no JSON"),
    ("half of one", diag("DCGM Diagnostic", FAIL4)[:40], "no JSON"),
    ("GPUs that are no numbers", diag("DCGM Diagnostic", {"gpu_ids": "x", "status": "Fail"}),
     "no report of dcgmi diag"),
    ("another report of dcgmi", '{"header": ["NVLINK Error Counts", "GPU 0"], "body": {}}',
     "a report on NVLINK Error Counts, GPU 0; expected"),
    ("a GPU there is not", diag("DCGM Diagnostic", {**FAIL4, "entity_id": 8}), "has 8 GPUs"),
    ("a GPU there is not", status({}, gpus=9), "GPU 8; dgx1v has 8 GPUs"),
    ("a GPU below nothing", diag("DCGM Diagnostic", {**FAIL4, "entity_id": -1}), "GPU -1; dgx1v"),
    ("two nodes", status({}) * 2, "line 57: GPU 0 again; expected one report of one node"),
    ("watts that are none", "index, power.limit, power.default_limit\n0, 1.2.3 W, 4.5.6 W\n",
     "no GPU's power limits"),
    ("GPUs without a word", "GPU 0: x\nGPU 1: y\n", "GPUs without a word on their links"),
    ("no driver", "\nNVIDIA-SMI has failed because it couldn't communicate with the driver.\n",
     "line 2: the tool failed: NVIDIA-SMI has failed"),
    ("a GPU off the bus", "Unable to determine the device handle for GPU 0000:C1:00.0: Unknown",
     "line 1: the tool failed: Unable to determine"),
    ("no test run", '{"DCGM Diagnostic": {"runtime_error": "no GPU"}}', "dcgmi failed: no GPU"),
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
