"""`gputopo calibrate`: from a site's logs to other decisions; what is no such log is one line.

Logs are made up in nccl-tests' documented format (`nccl_logs`); no number in them was measured.
"""

import json
import re
from pathlib import Path

import pytest
from commands_in_tests import refused, run
from machines_in_tests import BASIC, decider_of, mask, named, node, question
from nccl_logs import write

from gres_topology import catalog
from gres_topology.readers import saved
from policies.bandwidth.calibrated import Calibration
from slurm_plugin.base.protocol import Use
from slurm_plugin.config import settings as config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.errors import ConfigError, PluginError
from slurm_plugin.learn.collected import NodeRecord, Store
from slurm_plugin.learn.link_calibration import model_file

DGX1V = catalog.load("dgx1v")
ALL = tuple(range(8))
#: GB/s of a made-up site where a ring with a PCIe hop is as slow as that hop.
SITE = {
    (0, 3): 43.0, (4, 7): 43.4, (0, 1): 21.6, (0, 5): 9.1, (1, 6): 8.9, (0, 2, 3): 44.0,
    (0, 1, 5): 9.4, (0, 1, 2, 3): 66.0, (4, 5, 6, 7): 65.0, (0, 1, 4, 5): 44.1,
    (0, 1, 2, 3, 4): 10.0, ALL: 128.0,
}  # fmt: skip


def calibrated(folder: Path) -> Path:
    """The model of the made-up site."""
    model = folder / "dgx1v-model.yaml"
    run("calibrate", *write(folder, SITE), "--topology", "dgx1v", "--output", str(model))
    return model


def chosen(folder: Path, more: str, gpus: int = 5) -> Use:
    """Where a job of an empty dgx1v goes by a configuration with one more key for its nodes."""
    text = BASIC.replace("topology: dgx1v}}", f"topology: dgx1v{more}}}}}", 1)
    (folder / "gputopo.yaml").write_text(text.format(folder=folder))
    decider = decider_of(config.load(folder / "gputopo.yaml"))
    reply = decider.decide(question(node("dgx1", 0xFF, mask(*range(gpus))))).reply
    assert isinstance(reply, Use), reply
    return reply


def test_the_engine_decides_by_what_the_site_measured(tmp_path):
    """Eq. 2 likes a five-GPU ring with PCIe hops; here such rings were measured, and are slow."""
    model = calibrated(tmp_path)
    before, after = chosen(tmp_path, ""), chosen(tmp_path, f", bandwidth_model: {model.name}")
    assert before.nodes == {"dgx1": mask(0, 1, 2, 3, 4)}
    assert after.nodes == {"dgx1": mask(0, 2, 3, 4, 7)}
    assert "as calibrated" in after.note
    assert "as calibrated" not in before.note


def test_place_shows_the_same_choice(tmp_path):
    where = ("place", "--machine", "dgx1v", "--gpus", "5", "--json")
    told = json.loads(run(*where, "--bandwidth-model", str(calibrated(tmp_path))))
    assert sorted(told["gpus"]) == [0, 2, 3, 4, 7]
    assert sorted(json.loads(run(*where))["gpus"]) == [0, 1, 2, 3, 4]


def test_the_command_tells_the_fit_and_its_error(tmp_path):
    told = json.loads(run("calibrate", *write(tmp_path, SITE), "--topology", "dgx1v", "--json"))
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


def test_the_picture_is_drawn(tmp_path):
    picture = tmp_path / "fit.svg"
    logs = write(tmp_path, SITE)
    run("calibrate", *logs, "--topology", "dgx1v", "--plot", str(picture))
    svg = picture.read_text()
    # A point for each set, named by its GPUs.
    assert {",".join(map(str, gpus)) for gpus in SITE} <= set(re.findall(r">([\d,]+)</text>", svg))
    bad = str(tmp_path / "fit.docx")
    assert "expected a file to write, .svg or .png" in run(
        "calibrate", *logs, "--topology", "dgx1v", "--plot", bad, code=2
    )


def test_several_logs_of_one_set_count_as_their_mean(tmp_path):
    logs = write(tmp_path, SITE)
    (tmp_path / "again").mkdir()
    logs += write(tmp_path / "again", {(0, 3): 33.0, ALL: 128.0}, host="dgx2")
    told = json.loads(run("calibrate", *logs, "--topology", "dgx1v", "--json"))
    pair = next(row for row in told["sets"] if row["gpus"] == [0, 3])
    assert pair["measured_gbps"] == pytest.approx((43.0 + 33.0) / 2, rel=0.02)


COMMAND = [
    ("no such file", lambda folder: ["none.log"], "none.log: No such file or directory"),
    ("too few sets", lambda folder: write(folder, {ALL: 128.0, (0, 3): 43.0}), "2 different sets"),
    (
        "faster than its links",
        lambda folder: write(folder, SITE | {(0, 5): 40.0}),
        "GPUs 0,5 of dgx1v: 39.38 GB/s measured; expected above 0 and at most 12",
    ),
]


@pytest.mark.parametrize(("files", "message"), named(COMMAND))
def test_what_the_command_cannot_use_is_one_line(tmp_path, files, message):
    assert message in refused("calibrate", *files(tmp_path), "--topology", "dgx1v")


# The model's file


def test_what_is_written_is_read_again(tmp_path):
    model = calibrated(tmp_path)
    found = model_file.read_model(model)
    told = json.loads(run("calibrate", *write(tmp_path, SITE), "--topology", "dgx1v", "--json"))
    assert found == Calibration("dgx1v", DGX1V.shape, (2, 8), **told["weights"])
    assert "logs: [0-3.log]" in model.read_text()


FILES = [
    ("no YAML", "{", "not YAML; expected a bandwidth model written by gputopo calibrate"),
    ("no model", "a: 1\n", "no key `calibration`; expected a bandwidth model"),
    ("a later version", "calibration: 9\n", "calibration: 9; expected 1: calibrate again"),
    ("a key missing", "calibration: 1\n", "missing required field `machine`; expected a bandwidth"),
]
CHANGED = [
    ("a negative weight", "throughput", -1.0, "throughput -1; expected from 0 to 4"),
    ("no weight to speak of", "pace", 0.0, "pace 0; expected from 0.1 to 4"),
    ("a weight that is none", "pace", "fast", "Expected `float`, got `str` - at `$.pace`"),
    ("no number", "both_ways", float("nan"), "both_ways nan; expected from 0 to 4"),
    ("sizes", "sizes", [2], "Expected `array` of length 2, got 1 - at `$.sizes`"),
    ("sizes beyond tables", "sizes", [2, 72], "sizes 2 to 72; expected from 2 to 16 GPUs"),
    ("a shape that is none", "shape", 7, "Expected `str`, got `int` - at `$.shape`"),
    ("a key nobody knows", "paec", 1.0, "unknown key paec; expected calibration"),
]


@pytest.mark.parametrize(("text", "message"), named(FILES))
def test_a_file_that_is_no_model(tmp_path, text, message):
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(PluginError) as caught:
        model_file.read_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(("key", "value", "message"), named(CHANGED))
def test_a_model_of_absurd_numbers_stops_the_engine_from_loading(tmp_path, key, value, message):
    import yaml

    model = calibrated(tmp_path)
    model.write_text(yaml.safe_dump(yaml.safe_load(model.read_text()) | {key: value}))
    with pytest.raises(ConfigError) as caught:
        chosen(tmp_path, f", bandwidth_model: {model.name}")
    assert "gputopo.yaml:8: nodes[0].bandwidth_model: " in str(caught.value)
    assert message in str(caught.value)


def test_a_model_of_another_machine_is_a_mistake(tmp_path):
    model = calibrated(tmp_path)
    text = BASIC.replace("topology: minsky", f"topology: minsky, bandwidth_model: {model.name}")
    (tmp_path / "gputopo.yaml").write_text(text.format(folder=tmp_path))
    with pytest.raises(ConfigError) as caught:
        load_machines(config.load(tmp_path / "gputopo.yaml"))
    assert f"nodes[2].bandwidth_model: {model}: fitted to dgx1v (" in str(caught.value)
    place = ("place", "--machine", "minsky", "--gpus", "2")
    assert "not to minsky (" in refused(*place, "--bandwidth-model", str(model))


def test_a_collected_node_of_another_shape_is_left_to_slurm_and_says_why(tmp_path):
    model = calibrated(tmp_path)
    store, records = Store(tmp_path), {}
    for name, machine in (("v1", "dgx1v"), ("p1", "dgx1p")):
        digest = store.keep(
            saved.read(json.dumps(saved.to_dict(catalog.load(machine))), name=name, source=name)
        )
        records[name] = NodeRecord(digest, digest, "2026-01-01T00:00:00+00:00")
    store.save(records)
    text = f"""
state_dir: {tmp_path}
nodes:
  - {{nodes: "v1,p1", topology: collected, bandwidth_model: {model.name}}}
"""
    machines = load_machines(config.parse(text, tmp_path / "gputopo.yaml"))
    assert not machines["v1"].problem
    assert machines["v1"].topology.calibration
    assert "fitted to dgx1v (" in machines["p1"].problem
