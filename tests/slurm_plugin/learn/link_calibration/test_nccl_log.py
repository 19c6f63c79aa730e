"""Logs of nccl-tests: what is read of them, which GPUs they are of, and what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines_in_tests import named
from nccl_logs import DGX1V_BUSES, log, rank_line

from gres_topology import NodeTopology, catalog
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.link_calibration import nccl_log as log_file
from slurm_plugin.learn.link_calibration.gather import gpus_of

DGX1V = catalog.load("dgx1v")
ALL = tuple(range(8))


def read(text: str) -> log_file.Log:
    return log_file.parse(text, Path("a.log"))


@pytest.mark.parametrize("form", ["0000:{bus}:00", "0x{bus}", "0000:{bus}:00.0"])
@pytest.mark.parametrize("test", ["all_reduce_perf", "all_gather_perf", "reduce_scatter_perf"])
def test_a_log_is_read_in_every_releases_format(form, test):
    found = read(log((0, 3, 2), 44.0, form=form, test=test))
    assert found.host == "dgx1"
    assert len(found.gpus) == 3
    assert found.busbw_gbps == pytest.approx(44.0 * 64 / 65, abs=0.01)
    assert gpus_of([read(log(ALL, 128.0, form=form)), found], DGX1V)[1] == (0, 2, 3)


def test_older_releases_name_no_collective_and_print_no_root():
    text = log((0, 3), 43.0, named=False).replace("      -1 ", " ").replace(" Group  0", "")
    assert read(text).busbw_gbps == pytest.approx(43.0, rel=0.02)


def test_labels_of_srun_and_debug_lines_do_not_matter():
    lines = ["dgx1:42:42 [0] NCCL INFO Channel 00/12 : 0 1", *log((0, 3), 43.0).splitlines()]
    text = "\n".join(f"0: {line}" for line in lines)
    assert read(text) == read("\n".join(lines))


#: What stands before every line, by the number of the line.
PREFIXES = [
    ("mpirun --tag-output", "[1,0]<stdout>:"),
    ("mpirun --timestamp-output", "Mon Jan  5 08:00:{:02} 2026<stdout>:"),
    ("srun --label of twelve tasks", " 0: "),
    ("kubectl logs --prefix", "[pod/nccl-launcher-x7/mpi] "),
    ("kubectl logs --timestamps", "2026-01-05T08:00:{:02}.123456789Z "),
    ("both", "[pod/nccl/mpi] 2026-01-05T08:{:02}:10.1Z "),
    ("pdsh", "dgx-1: "),
    ("Hydra", "[0] "),
    ("many numbers", "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "),
]


@pytest.mark.parametrize("prefix", [p[1] for p in PREFIXES], ids=[p[0] for p in PREFIXES])
def test_what_a_launcher_puts_before_every_line_does_not_matter(prefix):
    text = log((0, 3), 43.0)
    lines = [f"{prefix.format(n)}{line}" for n, line in enumerate(text.splitlines())]
    other = "10: dgx1:42:42 [0] NCCL INFO Channel 00/12 : 0 1"
    assert read("\n".join([other, *lines, "1" * 3000])) == replace(
        read(f"\n{text}"), path=Path("a.log")
    )


def test_a_build_with_mpi_adds_to_its_name():
    """NAME_SUFFIX in nccl-tests' src/common.mk."""
    assert read(log((0, 3), 43.0).replace("all_reduce_perf", "all_reduce_perf_mpi")) == read(GOOD)
    with pytest.raises(PluginError, match=r"a log of alltoall_perf; expected the output of"):
        read(GOOD.replace("all_reduce_perf", "/opt/nccl-tests/build/alltoall_perf_mpi"))


def test_the_command_names_the_collective_where_the_log_does_not():
    gathers = log((0, 3, 2), 43.0, named=False, test="all_gather_perf")
    assert read(f"$ mpirun -np 3 ./build/all_gather_perf_mpi -b 1M\n{gathers}").busbw_gbps > 40
    with pytest.raises(PluginError, match="a log of sendrecv_perf; expected"):
        read(f"+ srun /opt/sendrecv_perf -b 1M\n{gathers}")


def test_rows_with_a_timestamp_or_figures_of_each_iteration():
    """Options -S and -I of nccl-tests 2.19."""
    lines = GOOD.splitlines()
    rows = [n for n, line in enumerate(lines) if line.startswith("    ")]
    stamped = [f"{x}  2026-01-05 08:00:10" if n in rows else x for n, x in enumerate(lines)]
    assert read("\n".join(stamped)) == read(GOOD)
    each = "   1.0   2.0   2.0   0.1"
    iterated = [
        f"{' '.join(x.split()[:9])}{each} {' '.join(x.split()[9:])}{each}" if n in rows else x
        for n, x in enumerate(lines)
    ]
    assert read("\n".join(["    " * (n in rows) + x for n, x in enumerate(iterated)])) == read(GOOD)


def json_of(**changed: object) -> str:
    """What option -J of nccl-tests 2.19 writes (src/util.cu), shortened."""
    body = {"time": 1.0, "alg_bw": 43.0, "bus_bw": 43.0, "nwrong": 0.0}
    device = {"group": 0, "pid": 1, "hostname": "dgx1", "device_info": "Tesla V100-SXM2-16GB"}
    devices = [{**device, "rank": n, "device_hex": f"0000:0{6 + n}:00"} for n in range(2)]
    said = {
        "version": 3,
        "args": ["./build/all_reduce_perf_mpi", "-J", "out.json"],
        "config": {"nthreads": 1, "ngpus": 1, "devices": devices},
        "results": [
            {
                "size": size,
                "redop": "sum",
                "out_of_place": body,
                "in_place": {**body, "nwrong": None},
            }
            for size in (1 << 20, 1 << 28)
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 43.0, "okay": "unchecked"},
        "errors": [""],
    }
    return json.dumps({**said, **changed})


def test_the_json_of_nccl_tests_is_read():
    found = read(json_of())
    assert (found.host, found.busbw_gbps) == ("dgx1", 43.0)
    assert [*found.gpus] == ["0000:06:00", "0000:07:00"]


SINGLE = {"nthreads": 1, "ngpus": 8, "devices": []}
ODD = {"rank": 0, "hostname": "h", "device_hex": "0xzz", "device_info": "x"}
JSON = [
    ("of one process", json_of(config=SINGLE), "names the first alone; expected a process for"),
    ("errors", json_of(errors=["unhandled\ncuda error"]), "the run failed: unhandled cuda error"),
    ("out of bounds", json_of(out_of_bounds={"count": 7}), "7 values out of bounds"),
    ("another collective", json_of(args=["alltoall_perf"]), "a log of alltoall_perf; expected"),
    ("no results", json_of(results=None), "not nccl-tests' JSON of -J (TypeError"),
    ("an odd address", json_of(config={"nthreads": 1, "ngpus": 1, "devices": [ODD]}), "'0xzz'"),
    ("nan", json_of().replace("43.0", '"nan"'), "another collective"),
    ("another file", "{}", "not nccl-tests' JSON of -J (KeyError 'args')"),
    ("nested", '{"a":' * 100_000, "a.log:1: no whole JSON"),
]


@pytest.mark.parametrize(("text", "message"), named(JSON))
def test_json_that_is_no_whole_run_is_refused(text, message):
    with pytest.raises(PluginError, match=re.escape(message)):
        read(text)


def test_a_log_cut_anywhere_is_refused_in_one_line():
    for text in (json_of(), GOOD[: GOOD.index("# Avg")]):
        for end in range(len(text)):
            with pytest.raises(PluginError, match=r"^a.log:\d+: [^\n]+$"):
                read(text[:end])


def test_the_out_of_place_column_counts():
    assert read(log((0, 3), 43.0, in_place=11.0)).busbw_gbps > 40


@pytest.mark.parametrize("said", ["N/A", "0", "0e+00", "2e-07"])
def test_no_error_is_written_in_several_ways(said):
    """Not checked, a count, and the largest deviation of releases before 2.12."""
    assert read(log((0, 3), 43.0, wrong=said)).busbw_gbps > 40


GOOD = log((0, 3), 43.0)
OTHER_RANK = rank_line(1, "0000:0b:00")
ELSEWHERE = rank_line(1, "0000:0b:00", host="dgx2")
P100 = rank_line(1, "0000:0b:00", "Tesla P100-SXM2-16GB")
#: A good log in which one text stands for another, and what is said of it.
REPLACED = [
    ("values : 0 OK", "values : 12 FAILED", "a.log:21: 12 values out of bounds"),
    ("all_reduce_perf", "alltoall_perf", "a.log:2: a log of alltoall_perf; expected the output of"),
    (OTHER_RANK, ELSEWHERE, "host dgx2 beside dgx1; expected one node"),
    (OTHER_RANK, P100, "Tesla P100-SXM2-16GB beside Tesla V100-SXM2-16GB"),
    (OTHER_RANK, rank_line(1, "0000:06:00"), "a second GPU at [0000:06:00]"),
    ("Rank  1", "Rank  2", "ranks [0, 2]; expected all from 0 on"),
    (" 42.34 ", " fast ", "not a row of numbers"),
    (" 42.34 ", "   inf ", "another collective"),
]
WRONG = [
    *((message, GOOD.replace(good, bad), message) for good, bad, message in REPLACED),
    ("empty", "", "a.log:1: no `Rank` line; expected the output of all_reduce_perf"),
    ("another file", "hello\n", "a.log:1: no `Rank` line"),
    ("very many wrong results", log((0, 3), 43.0, wrong="1.2e+06"), "#wrong is 1.2e+06"),
    ("wrong results", log((0, 3), 43.0, wrong="7"), "#wrong is 7; expected 0"),
    ("cut off", GOOD[: GOOD.index("# Out of")], "a.log:20: ends without `Avg bus bandwidth`"),
    # NVIDIA/nccl-tests issue 44: neither redop nor root.
    (
        "a release of 2020",
        log((0, 3), 43.0, test="all_gather_perf").replace("    none      -1 ", ""),
        "11 columns; expected 12 or 13: the log is of a release of 2020 or before",
    ),
    ("cut off in a row", GOOD[: GOOD.index("# Out of") - 40], "columns; expected 12 or 13"),
    (
        "small messages only",
        log((0, 3), 43.0, sizes=(1 << 10, 1 << 20)),
        "2 rows, none of 16 MiB or more: small messages measure latency",
    ),
    ("no rows", log((0, 3), 43.0, sizes=(1 << 20,)).replace("  1048576", "x"), "0 rows, none of"),
    ("one GPU", log((0,), 0.0), "one GPU; expected two or more"),
    (
        "a collective that is not named and not certain",
        log((0, 3, 2), 43.0, named=False, test="all_gather_perf"),
        "is that of another collective",
    ),
    (
        "a rank line missing",
        log((0, 2, 3), 43.0).replace(rank_line(2, "0000:0b:00") + "\n", ""),
        "is that of another collective, or `Rank` lines are missing",
    ),
    (
        "an error of NCCL",
        GOOD.replace("# Avg", "dgx1: Test NCCL failure common.cu:1 'x'\n# Avg"),
        "a.log:22: the run failed: Test NCCL failure common.cu:1 'x'; expected one without errors",
    ),
    ("an error told at the end", f"{GOOD}# error: timed out\n", "the run failed: # error: timed"),
    ("two runs", GOOD + GOOD, "another run begins here"),
    ("nothing reached", log((0, 3), 1e-4), "0 GB/s; expected a bandwidth above zero"),
]


def test_what_nccl_tests_2_19_printed_on_one_h100():
    """Its lines are known, those with versions at the top, too; one GPU tells nothing of links."""
    path = Path(__file__).parent / "assets/all-reduce-one-h100.log"
    assert path.read_text().startswith("# nccl-tests version 2.19.6 nccl-headers=22809")
    with pytest.raises(PluginError, match=r"h100.log:6: one GPU; expected two or more of one node"):
        log_file.read_log(path)


@pytest.mark.parametrize(("text", "message"), named(WRONG))
def test_what_is_no_whole_run_is_refused_with_its_line(text, message):
    with pytest.raises(PluginError) as caught:
        read(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("a.log:")
    assert "\n" not in str(caught.value)


@settings(max_examples=150)
@given(st.integers(0, len(GOOD) - 1), st.text(max_size=12), st.integers(0, 80))
def test_a_damaged_log_is_read_or_refused_in_one_line(at, put, lost):
    try:
        found = read(GOOD[:at] + put + GOOD[at + lost :])
    except PluginError as error:
        told = str(error)
    else:
        told = "a.log:"
        assert 0 < found.busbw_gbps < float("inf")
        assert len(found.gpus) >= 2
    assert told.startswith("a.log:")
    assert len(told.splitlines()) == 1


# Which GPUs


def at_addresses(*buses: str) -> NodeTopology:
    return replace(DGX1V, pci=tuple(f"0000:{bus}:00.0" for bus in buses))


def test_a_topology_that_knows_addresses_needs_no_log_of_all_gpus():
    found = [read(log((7, 0), 43.0, form=form)) for form in ("0000:{bus}:00", "0x{bus}")]
    assert gpus_of(found, at_addresses(*DGX1V_BUSES)) == [(0, 7), (0, 7)]
    # The topology's order counts, not that of the addresses.
    assert gpus_of(found[:1], at_addresses(*reversed(DGX1V_BUSES))) == [(0, 7)]
    assert gpus_of([read(log((0, 1), 21.0))], at_addresses(*reversed(DGX1V_BUSES))) == [(6, 7)]


def test_domains_tell_gpus_of_the_same_bus_number_apart():
    pci = tuple(f"{domain:04x}:00:00.0" for domain in range(1, 9))
    azure = replace(DGX1V, pci=pci)
    short = log((0, 3), 43.0, buses=["00"] * 2 + ["01"] * 6, form="0x{bus}")
    with pytest.raises(PluginError, match=r"\[0x00\] fits 8 GPUs of dgx1v; expected one"):
        gpus_of([read(short)], azure)
    full = log((0, 3), 43.0, buses=[f"{n:04x}" for n in range(1, 9)], form="{bus}:00:00")
    assert gpus_of([read(full)], azure) == [(0, 3)]


OTHER_MACHINE = [
    (
        "other addresses",
        log((0, 3), 43.0, buses=("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")),
        at_addresses(*DGX1V_BUSES),
        "no GPU of dgx1v is at [0000:c1:00] (they are at 0000:06:00.0, ",
    ),
    (
        "another model",
        log((0, 3), 43.0, name="NVIDIA A100-SXM4-40GB"),
        DGX1V,
        "NVIDIA A100-SXM4-40GB; dgx1v has Tesla V100-SXM2-16GB: another machine",
    ),
    (
        "a model whose name begins alike",
        log(ALL, 128.0, name="NVIDIA A10 40GB"),
        replace(DGX1V, model="NVIDIA A100-SXM4-40GB"),
        "NVIDIA A10 40GB; dgx1v has NVIDIA A100-SXM4-40GB: another machine",
    ),
    ("more GPUs", log(ALL, 128.0), replace(catalog.load("minsky"), model=None), "8 GPUs; minsky"),
    (
        "some GPUs, and nothing to find them by",
        log((0, 3), 43.0),
        DGX1V,
        "a.log: the logs of host dgx1 name 2 of 8 GPUs, and dgx1v has no PCI addresses",
    ),
]


@pytest.mark.parametrize(("text", "topology", "message"), named(OTHER_MACHINE))
def test_a_log_of_another_machine_is_refused(text, topology, message):
    with pytest.raises(PluginError, match=re.escape(message)):
        gpus_of([read(text)], topology)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("AMD Instinct MI250X", "AMD Instinct MI250X / MI250"),
        ("NVIDIA L40S", "L40S"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
        ("NVIDIA RTX 6000 Ada Generation", "Tesla V100-SXM2-16GB"),
        ("NVIDIA Graphics Device", "Tesla V100-SXM2-16GB"),
    ],
)
def test_spellings_of_one_model_are_the_same_machine(name, model):
    topology = replace(DGX1V, model=model)
    assert gpus_of([read(log(ALL, 128.0, name=name))], topology) == [ALL]
