"""`gputopo calibrate`: from a site's logs to other decisions; what is no such log is one line.

Logs are made up in nccl-tests' documented format (`nccl_logs`); no number in them was measured.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from machines_in_tests import BASIC, mask, node, question
from nccl_logs import DGX1V_BUSES, log, rank_line, write

from gres_topology import NodeTopology, catalog
from gres_topology.readers import saved
from policies.bandwidth.calibrated import Calibration
from policies.registry import registry
from slurm_plugin.cli import cli
from slurm_plugin.collect.store import NodeRecord, Store
from slurm_plugin.config import settings as config
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.rules import Rules
from slurm_plugin.errors import ConfigError
from slurm_plugin.link_calibration import model_file
from slurm_plugin.link_calibration import nccl_log as log_file
from slurm_plugin.link_calibration.errors import CalibrationError
from slurm_plugin.link_calibration.gather import gpus_of
from slurm_plugin.protocol import Use

DGX1V = catalog.load("dgx1v")
ALL = tuple(range(8))
#: GB/s of a made-up site where a ring with a PCIe hop is as slow as that hop.
SITE = {
    (0, 3): 43.0, (4, 7): 43.4, (0, 1): 21.6, (0, 5): 9.1, (1, 6): 8.9, (0, 2, 3): 44.0,
    (0, 1, 5): 9.4, (0, 1, 2, 3): 66.0, (4, 5, 6, 7): 65.0, (0, 1, 4, 5): 44.1,
    (0, 1, 2, 3, 4): 10.0, ALL: 128.0,
}  # fmt: skip


def run(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == code, done.output
    return done.output


def calibrated(folder: Path) -> Path:
    """The model of the made-up site."""
    model = folder / "dgx1v-model.yaml"
    run("calibrate", *write(folder, SITE), "--topology", "dgx1v", "--output", str(model))
    return model


def chosen(folder: Path, more: str, gpus: int = 5) -> Use:
    """Where a job of an empty dgx1v goes by a configuration with one more key for its nodes."""
    text = BASIC.replace("topology: dgx1v}}", f"topology: dgx1v{more}}}}}", 1)
    (folder / "gputopo.yaml").write_text(text.format(folder=folder))
    settings = config.load(folder / "gputopo.yaml")
    decider = Decider(load_machines(settings), Rules(settings), settings.waiting, registry.get)
    reply = decider.decide(question(node("dgx1", 0xFF, mask(*range(gpus))))).reply
    assert isinstance(reply, Use), reply
    return reply


def test_the_engine_decides_by_what_the_site_measured(tmp_path: Path) -> None:
    """Eq. 2 likes a five-GPU ring with PCIe hops; here such rings were measured, and are slow."""
    model = calibrated(tmp_path)
    before, after = chosen(tmp_path, ""), chosen(tmp_path, f", bandwidth_model: {model.name}")
    assert before.nodes == {"dgx1": mask(0, 1, 2, 3, 4)}
    assert after.nodes == {"dgx1": mask(0, 2, 3, 4, 7)}
    assert "as calibrated" in after.note
    assert "as calibrated" not in before.note


def test_place_shows_the_same_choice(tmp_path: Path) -> None:
    where = ("place", "--machine", "dgx1v", "--gpus", "5", "--json")
    told = json.loads(run(*where, "--bandwidth-model", str(calibrated(tmp_path))))
    assert sorted(told["gpus"]) == [0, 2, 3, 4, 7]
    assert sorted(json.loads(run(*where))["gpus"]) == [0, 1, 2, 3, 4]


def test_the_command_tells_the_fit_and_its_error(tmp_path: Path) -> None:
    told = json.loads(
        run("calibrate", *write(tmp_path, SITE), "--topology", "dgx1v", "--json")
    )  # fmt: skip
    assert told["sizes"] == [2, 8]
    assert 0.02 < told["mean_error"] < 0.12
    assert told["mean_error"] < told["unseen_error"]
    assert told["worst_error"] == max(
        abs(row["model_gbps"] / row["measured_gbps"] - 1) for row in told["sets"]
    )
    assert {tuple(row["gpus"]) for row in told["sets"]} == set(SITE)
    text = run("calibrate", *write(tmp_path, SITE), "--topology", "dgx1v")
    assert "(GPUs 0,1,2,3,4,5,6,7); of sets left out of the fit: mean" in text
    assert "holds for rings of 2 to 8 GPUs of this machine" in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "fit.svg"
    logs = write(tmp_path, SITE)
    run("calibrate", *logs, "--topology", "dgx1v", "--plot", str(picture))
    assert "</svg>" in picture.read_text()
    bad = str(tmp_path / "fit.docx")
    assert "cannot draw" in run("calibrate", *logs, "--topology", "dgx1v", "--plot", bad, code=2)


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    args = (*write(tmp_path, SITE), "--topology", "dgx1v", "--plot", str(tmp_path / "fit.svg"))
    assert "pip install 'slurm-gputopo[plot]'" in run("calibrate", *args, code=2)


def test_several_logs_of_one_set_count_as_their_mean(tmp_path: Path) -> None:
    logs = write(tmp_path, SITE)
    again = tmp_path / "again.log"
    again.write_text(log((0, 3), 33.0, host="dgx2"))
    other = tmp_path / "other.log"
    other.write_text(log(ALL, 128.0, host="dgx2"))
    told = json.loads(
        run("calibrate", *logs, str(again), str(other), "--topology", "dgx1v", "--json")
    )
    pair = next(row for row in told["sets"] if row["gpus"] == [0, 3])
    assert pair["measured_gbps"] == pytest.approx((43.0 + 33.0) / 2, rel=0.02)


# One log


def read(text: str) -> log_file.Log:
    return log_file.parse(text, Path("a.log"))


@pytest.mark.parametrize("form", ["0000:{bus}:00", "0x{bus}", "0000:{bus}:00.0"])
@pytest.mark.parametrize("test", ["all_reduce_perf", "all_gather_perf", "reduce_scatter_perf"])
def test_a_log_is_read_in_every_releases_format(form: str, test: str) -> None:
    found = read(log((0, 3, 2), 44.0, form=form, test=test))
    assert found.host == "dgx1"
    assert len(found.gpus) == 3
    assert found.busbw_gbps == pytest.approx(44.0 * 64 / 65, abs=0.01)
    assert gpus_of([read(log(ALL, 128.0, form=form)), found], DGX1V)[1] == (0, 2, 3)


def test_older_releases_name_no_collective_and_print_no_root() -> None:
    text = log((0, 3), 43.0, named=False).replace("      -1 ", " ").replace(" Group  0", "")
    assert read(text).busbw_gbps == pytest.approx(43.0, rel=0.02)


def test_labels_of_srun_and_debug_lines_do_not_matter() -> None:
    lines = ["dgx1:42:42 [0] NCCL INFO Channel 00/12 : 0 1", *log((0, 3), 43.0).splitlines()]
    text = "\n".join(f"0: {line}" for line in lines)
    assert read(text) == read("\n".join(lines))


def test_the_out_of_place_column_counts() -> None:
    assert read(log((0, 3), 43.0, in_place=11.0)).busbw_gbps > 40


@pytest.mark.parametrize("said", ["N/A", "0", "0e+00", "2e-07"])
def test_no_error_is_written_in_several_ways(said: str) -> None:
    """Not checked, a count, and the largest deviation of releases before 2.12."""
    assert read(log((0, 3), 43.0, wrong=said)).busbw_gbps > 40


GOOD = log((0, 3), 43.0)
OTHER_RANK = rank_line(1, "0000:0b:00")
WRONG = [
    ("empty", "", "a.log:1: no `Rank` line; expected the output of all_reduce_perf"),
    ("another file", "hello\n", "a.log:1: no `Rank` line"),
    ("very many wrong results", log((0, 3), 43.0, wrong="1.2e+06"), "#wrong is 1.2e+06"),
    ("wrong results", log((0, 3), 43.0, wrong="7"), "#wrong is 7; expected 0"),
    (
        "values out of bounds",
        GOOD.replace("values : 0 OK", "values : 12 FAILED"),
        "a.log:21: 12 values out of bounds",
    ),
    ("cut off", GOOD[: GOOD.index("# Out of")], "a.log:20: ends without `Avg bus bandwidth`"),
    ("cut off in a row", GOOD[: GOOD.index("# Out of") - 40], "columns; expected 12 or 13"),
    (
        "small messages only",
        log((0, 3), 43.0, sizes=(1 << 10, 1 << 20)),
        "2 rows, none of 16 MiB or more: small messages measure latency",
    ),
    ("no rows", log((0, 3), 43.0, sizes=(1 << 20,)).replace("  1048576", "x"), "0 rows, none of"),
    ("one GPU", log((0,), 0.0), "one GPU; expected two or more"),
    (
        "another collective",
        GOOD.replace("all_reduce_perf", "alltoall_perf"),
        "a.log:2: a log of alltoall_perf; expected the output of all_reduce_perf",
    ),
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
    ("a rank missing", GOOD.replace("Rank  1", "Rank  2"), "ranks [0, 2]; expected all from 0 on"),
    ("two runs", GOOD + GOOD, "another run begins here"),
    (
        "two nodes",
        GOOD.replace(OTHER_RANK, rank_line(1, "0000:0b:00", host="dgx2")),
        "host dgx2 beside dgx1; expected one node",
    ),
    (
        "GPUs of two kinds",
        GOOD.replace(OTHER_RANK, rank_line(1, "0000:0b:00", "Tesla P100-SXM2-16GB")),
        "Tesla P100-SXM2-16GB beside Tesla V100-SXM2-16GB",
    ),
    (
        "two ranks at one address",
        GOOD.replace(OTHER_RANK, rank_line(1, "0000:06:00")),
        "a second GPU at [0000:06:00]",
    ),
    ("nothing reached", log((0, 3), 1e-4), "0 GB/s; expected a bandwidth above zero"),
    ("no numbers", GOOD.replace(" 42.34 ", " fast ", 1), "not a row of numbers"),
    ("infinite", GOOD.replace(" 42.34 ", "   inf "), "another collective"),
]


@pytest.mark.parametrize(("text", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_no_whole_run_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        read(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("a.log:")
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.text(max_size=12), st.integers(0, 80))
def test_a_damaged_log_is_read_or_refused_in_one_line(at: int, put: str, lost: int) -> None:
    try:
        found = read(GOOD[:at] + put + GOOD[at + lost :])
    except CalibrationError as error:
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


def test_a_topology_that_knows_addresses_needs_no_log_of_all_gpus() -> None:
    found = [read(log((7, 0), 43.0, form=form)) for form in ("0000:{bus}:00", "0x{bus}")]
    assert gpus_of(found, at_addresses(*DGX1V_BUSES)) == [(0, 7), (0, 7)]
    # The topology's order counts, not that of the addresses.
    assert gpus_of(found[:1], at_addresses(*reversed(DGX1V_BUSES))) == [(0, 7)]
    assert gpus_of([read(log((0, 1), 21.0))], at_addresses(*reversed(DGX1V_BUSES))) == [(6, 7)]


def test_domains_tell_gpus_of_the_same_bus_number_apart() -> None:
    pci = tuple(f"{domain:04x}:00:00.0" for domain in range(1, 9))
    azure = replace(DGX1V, pci=pci)
    short = log((0, 3), 43.0, buses=["00"] * 2 + ["01"] * 6, form="0x{bus}")
    with pytest.raises(CalibrationError, match=r"\[0x00\] fits 8 GPUs of dgx1v; expected one"):
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


@pytest.mark.parametrize(
    ("text", "topology", "message"),
    [o[1:] for o in OTHER_MACHINE],
    ids=[o[0] for o in OTHER_MACHINE],
)
def test_a_log_of_another_machine_is_refused(
    text: str, topology: NodeTopology, message: str
) -> None:
    with pytest.raises(CalibrationError) as caught:
        gpus_of([read(text)], topology)
    assert message in str(caught.value)


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
def test_spellings_of_one_model_are_the_same_machine(name: str, model: str) -> None:
    topology = replace(DGX1V, model=model)
    assert gpus_of([read(log(ALL, 128.0, name=name))], topology) == [ALL]


COMMAND = [
    ("no such file", lambda folder: ["none.log"], "none.log: No such file or directory"),
    ("too few sets", lambda folder: write(folder, {ALL: 128.0, (0, 3): 43.0}), "2 different sets"),
    (
        "faster than its links",
        lambda folder: write(folder, SITE | {(0, 5): 40.0}),
        "GPUs 0,5 of dgx1v: 39.38 GB/s measured; expected above 0 and at most 12",
    ),
]


@pytest.mark.parametrize(
    ("files", "message"), [c[1:] for c in COMMAND], ids=[c[0] for c in COMMAND]
)
def test_what_the_command_cannot_use_is_one_line(tmp_path: Path, files, message: str) -> None:  # type: ignore[no-untyped-def]
    told = run("calibrate", *files(tmp_path), "--topology", "dgx1v", code=2)
    assert message in told
    assert told.count("\n") == 1


# The model's file


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    model = calibrated(tmp_path)
    found = model_file.read_model(model)
    told = json.loads(run("calibrate", *write(tmp_path, SITE), "--topology", "dgx1v", "--json"))
    assert found == Calibration("dgx1v", DGX1V.shape, (2, 8), **told["weights"])
    assert "logs: [0-3.log]" in model.read_text()


FILES = [
    ("no YAML", "{", "not YAML; expected a bandwidth model written by gputopo calibrate"),
    ("no model", "a: 1\n", "no key `calibration`; expected a bandwidth model"),
    ("a later version", "calibration: 9\n", "calibration: 9; expected 1: calibrate again"),
    ("a key missing", "calibration: 1\n", "machine: missing; expected calibration, machine"),
]
CHANGED = [
    ("a negative weight", "throughput", -1.0, "throughput -1; expected from 0 to 4"),
    ("no weight to speak of", "pace", 0.0, "pace 0; expected from 0.1 to 4"),
    ("a weight that is none", "pace", "fast", "pace: 'fast'; expected a number"),
    ("no number", "both_ways", float("nan"), "both_ways nan; expected from 0 to 4"),
    ("sizes", "sizes", [2], "sizes: [2]; expected two numbers of GPUs"),
    ("sizes beyond tables", "sizes", [2, 72], "sizes 2 to 72; expected from 2 to 16 GPUs"),
    ("a shape that is none", "shape", 7, "shape: 7; expected a text"),
    ("a key nobody knows", "paec", 1.0, "unknown key paec; expected calibration"),
]


@pytest.mark.parametrize(("text", "message"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_a_file_that_is_no_model(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(CalibrationError) as caught:
        model_file.read_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"), [c[1:] for c in CHANGED], ids=[c[0] for c in CHANGED]
)
def test_a_model_of_absurd_numbers_stops_the_engine_from_loading(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    import yaml

    model = calibrated(tmp_path)
    model.write_text(yaml.safe_dump(yaml.safe_load(model.read_text()) | {key: value}))
    with pytest.raises(ConfigError) as caught:
        chosen(tmp_path, f", bandwidth_model: {model.name}")
    assert "gputopo.yaml:8: nodes[0].bandwidth_model: " in str(caught.value)
    assert message in str(caught.value)


def test_a_model_of_another_machine_is_a_mistake(tmp_path: Path) -> None:
    model = calibrated(tmp_path)
    text = BASIC.replace("topology: minsky", f"topology: minsky, bandwidth_model: {model.name}")
    (tmp_path / "gputopo.yaml").write_text(text.format(folder=tmp_path))
    with pytest.raises(ConfigError) as caught:
        load_machines(config.load(tmp_path / "gputopo.yaml"))
    assert f"nodes[2].bandwidth_model: {model}: fitted to dgx1v (" in str(caught.value)
    told = run(
        "place", "--machine", "minsky", "--gpus", "2", "--bandwidth-model", str(model), code=2
    )
    assert "not to minsky (" in told


def test_a_collected_node_of_another_shape_is_left_to_slurm_and_says_why(tmp_path: Path) -> None:
    model = calibrated(tmp_path)
    store, records = Store(tmp_path), {}
    for name, machine in (("v1", "dgx1v"), ("p1", "dgx1p")):
        digest = store.keep(saved.read(json.dumps(saved.to_dict(catalog.load(machine))),
                                       name=name, source=name))  # fmt: skip
        records[name] = NodeRecord(digest, digest, "2026-01-01T00:00:00+00:00")
    store.save(records)
    text = f"""
state_dir: {tmp_path}
nodes:
  - {{nodes: "v1,p1", topology: collected, bandwidth_model: {model.name}}}
"""
    machines = load_machines(config.parse(text, tmp_path / "gputopo.yaml"))
    assert not machines["v1"].problem
    assert machines["v1"].topology is not None
    assert machines["v1"].topology.calibration
    assert "fitted to dgx1v (" in machines["p1"].problem
