"""`gputopo profile` and the model database behind it."""

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policies.performance import INFERENCE, Run, Shape, fit
from policies.performance.similarity import Traits
from slurm_plugin.cli import cli
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.speed_models.database import Database, Profile

RUNS = [Run(1, 1, 16, 0.05), Run(1, 1, 32, 0.09), Run(1, 1, 64, 0.17), Run(1, 2, 32, 0.1),
        Run(1, 4, 32, 0.11), Run(2, 2, 32, 0.14), Run(4, 4, 32, 0.16)]  # fmt: skip


def csv_of(runs: list[Run]) -> str:
    rows = [f"{run.nodes},{run.gpus},{run.local_batch},{run.step_s}" for run in runs]
    return "\n".join(["nodes,gpus,local_batch,step_s", *rows])


@pytest.fixture
def ask(tmp_path: Path):
    (tmp_path / "resnet50.csv").write_text(csv_of(RUNS))
    (tmp_path / "bad.csv").write_text("nodes,gpus,local_batch,step_s\n1,1,8,0.1\n1,1,8,zero\n")
    (tmp_path / "more.csv").write_text(csv_of([Run(2, 8, 32, 0.2)]))

    def run(*args: str) -> Result:
        words = [str(tmp_path / word) if word.endswith((".csv", ".svg")) else word for word in args]
        where = ["--database", str(tmp_path / "state" / "performance.db")]
        return CliRunner().invoke(cli, ["profile", *words, *where], prog_name="gputopo")

    return run


def stored(ask) -> dict:
    assert ask("fit", "resnet50.csv", "--family", "cnn").exit_code == 0
    return json.loads(ask("show", "resnet50", "--batch", "128", "--json").stdout)


def test_a_fitted_profile_is_shown_for_every_shape_that_holds_the_batch(ask):
    told = stored(ask)
    assert [row["shape"] for row in told["rows"]][:3] == ["1x2", "1x3", "1x4"]
    assert all(row["low_s"] < row["step_s"] < row["high_s"] for row in told["rows"])
    model = fit("calibrated", RUNS)
    by_shape = {row["shape"]: row["step_s"] for row in told["rows"]}
    assert by_shape["2x4"] == pytest.approx(model.estimate(Shape(2, 4), 128).step_s)


def test_the_table_has_bounds_beside_each_step(ask):
    stored(ask)
    lines = ask("show", "resnet50", "--batch", "64", "--nodes", "1").stdout.splitlines()
    assert lines[0].startswith("resnet50 (training): calibrated, from 7 runs")
    assert lines[2].split() == ["shape", "per", "GPU", "step", "low", "high", "samples/s"]
    assert len(lines) == 3 + 4


def test_more_runs_are_fitted_together_with_the_stored_ones(ask, tmp_path):
    stored(ask)
    assert "from 8 runs" in ask("fit", "more.csv", "--name", "resnet50", "--add").stdout
    found = Database(tmp_path / "state" / "performance.db").get("resnet50")
    assert found.traits == Traits("resnet50", "cnn")
    assert found.runs[-1] == Run(2, 8, 32, 0.2)


def test_an_unknown_model_borrows_and_says_so(ask):
    own = stored(ask)["rows"][0]
    told = json.loads(ask("show", "resnet101", "--batch", "128", "--json").stdout)
    assert (told["profile"], told["asked"]) == ("resnet50", "resnet101")
    assert "resnet101 was never profiled; resnet50 stands in" in told["note"]
    borrowed = told["rows"][0]
    assert borrowed["step_s"] == own["step_s"]
    assert borrowed["high_s"] > own["high_s"]


def test_a_name_cut_short_is_completed_and_that_is_said(ask):
    own = stored(ask)["rows"][0]
    told = json.loads(ask("show", "resn", "--batch", "128", "--json").stdout)
    assert told["profile"] == "resnet50"
    assert told["note"] == "resn is taken for resnet50, the only name that begins so"
    assert told["rows"][0] == own
    assert told["note"] in ask("show", "resn", "--batch", "128").stdout


def test_a_start_of_two_names_is_not_completed_but_borrows(ask):
    stored(ask)
    ask("fit", "resnet50.csv", "--name", "resnet18")
    told = json.loads(ask("show", "resnet", "--batch", "128", "--json").stdout)
    assert "resnet was never profiled; resnet18 stands in" in told["note"]
    assert json.loads(ask("show", "resnet18", "--batch", "128", "--json").stdout)["note"] == ""


def test_inference_answers_from_the_training_profile_until_it_has_its_own(ask, tmp_path):
    stored(ask)
    words = ("show", "resnet50", "--task", "inference", "--batch", "128", "--json")
    told = json.loads(ask(*words).stdout)
    assert "profiled for training only" in told["note"]
    ask("fit", "resnet50.csv", "--task", "inference")
    assert json.loads(ask(*words).stdout)["note"] == ""
    database = Database(tmp_path / "state" / "performance.db")
    assert [profile.task for profile in database.all()] == [INFERENCE, "training"]


def test_without_a_model_all_are_listed(ask):
    stored(ask)
    told = json.loads(ask("show", "--json").stdout)
    assert told["profiles"] == [
        {"profile": "resnet50", "task": "training", "model": "calibrated", "runs": 7}
    ]


def test_a_picture_is_drawn(ask, tmp_path):
    stored(ask)
    assert ask("show", "resnet50", "--plot", "p.svg").exit_code == 0
    assert "samples per second" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "bad.csv"), "bad.csv:3: step_s 'zero'; expected a number"),
        (("fit", "none.csv"), "No such file or directory; expected a CSV of runs"),
        (("fit", "resnet50.csv", "--name", "a b"), "--name 'a b': expected a name of letters"),
        (("show", "zzz"), "no profile 'zzz'"),
        (("show", "resnet50", "--batch", "5000"), "batch 5000 fits no shape of up to 4x4 GPUs"),
        (("show", "resnet50", "--batch", "0"), "0 is not in the range"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(ask, words, said):
    stored(ask)
    done = ask(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_foreign_or_newer_database_is_named(tmp_path):
    with pytest.raises(PluginError, match="no such file; add a profile with gputopo profile fit"):
        Database(tmp_path / "none.db").all()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 9)
    with pytest.raises(PluginError, match="expected a database of gputopo profile fit"):
        Database(tmp_path / "text.db").all()
    with sqlite3.connect(tmp_path / "new.db") as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(PluginError, match="version 9; expected 1"):
        Database(tmp_path / "new.db").put(
            Profile(Traits("a"), "training", fit("genie", RUNS), tuple(RUNS))
        )


def test_a_damaged_row_is_named(tmp_path):
    database = Database(tmp_path / "performance.db")
    database.put(Profile(Traits("a"), "training", fit("genie", RUNS), tuple(RUNS)))
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE profiles SET model = '{}'")
    connection.close()
    with pytest.raises(PluginError, match=r"profile a: stored model.*fit it again"):
        database.get("a")
