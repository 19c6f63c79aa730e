"""What a site usually asks: given in gputopo.yaml, or counted in its decision log."""

import json
from pathlib import Path

import pytest

from slurm_plugin.config import settings as config
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide import usual_jobs
from slurm_plugin.errors import ConfigError
from slurm_plugin.serve import setup

FILE = Path("/etc/slurm/gputopo.yaml")


def written(path: Path, *records: object) -> DecisionLogConfig:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n")
    return DecisionLogConfig(path, max_mb=1, keep=2)


def decided(job: int, *gpus: int) -> dict[str, object]:
    return {"time": "now", "job": job, "decision": "use", "gpus_per_node": gpus}


def test_shares_may_be_given_and_are_learned_otherwise():
    settings = config.parse("usual_jobs: {1: 60, 8: 15, 2: 25}", FILE)
    assert settings.usual_jobs == ((1, 0.6), (2, 0.25), (8, 0.15))
    assert config.parse("", FILE).usual_jobs == "learned"
    assert config.parse("usual_jobs: learned", FILE).usual_jobs == "learned"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("guessed", "expected learned or weights"),
        ("{}", "expected learned or weights"),
        ("{two: 1}", "'two'"),
        ("{2: many}", "'many'"),
        ("{2: [1]}", "float"),
        ("{0: 1}", "at least 1 GPU"),
        ("{2: -1}", "a weight of 0 or more"),
        ("{2: 0}", "all weights are 0"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, told):
    with pytest.raises(ConfigError, match=rf"gputopo.yaml:2: usual_jobs: .*{told}"):
        config.parse(f"socket: s\nusual_jobs: {text}", FILE)


def test_each_job_is_counted_once_and_each_of_its_nodes(tmp_path):
    """A job that waited has several lines; what Slurm started is no decision."""
    lines = [decided(job, 2) for job in range(1, 61)]
    waits = [decided(1, 2) for _ in range(500)]
    others = [decided(job, 4, 4) for job in range(100, 110)]
    log = written(
        tmp_path / "log", *lines, *waits, *others, {"job": 999, "decision": "started", "gpus": {}}
    )
    assert usual_jobs.learned(log) == ((2, 0.75), (4, 0.25))


def test_a_log_that_was_just_moved_away_hides_none_of_the_older_ones(tmp_path):
    written(tmp_path / "log.2", *(decided(job, 1) for job in range(1, 61)))
    assert usual_jobs.learned(DecisionLogConfig(tmp_path / "log", 1, keep=2)) == ((1, 1.0),)


def test_rotated_files_count_too(tmp_path):
    written(tmp_path / "log.1", *(decided(job, 1) for job in range(1, 41)))
    log = written(tmp_path / "log", *(decided(job, 3) for job in range(41, 61)))
    assert usual_jobs.learned(log) == ((1, pytest.approx(2 / 3)), (3, pytest.approx(1 / 3)))


def test_only_the_newest_part_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(usual_jobs, "MOST_BYTES", 6000)
    old, new = (
        [decided(job, gpus) for job in range(start, start + 300)]
        for start, gpus in ((1, 1), (1000, 2))
    )
    assert usual_jobs.learned(written(tmp_path / "log", *old, *new)) == ((2, 1.0),)


def test_damaged_lines_and_absurd_counts_decide_nothing(tmp_path):
    good = [decided(job, 2) for job in range(1, 61)]
    odd = ['{"job": 5, "gpus_per_no', "\x00\x00", {"job": "x"}, decided(500, 10**9), "[]"]
    assert usual_jobs.learned(written(tmp_path / "log", *odd, *good)) == ((2, 1.0),)


def test_a_few_jobs_teach_nothing(tmp_path):
    log = written(tmp_path / "log", *(decided(job, 8) for job in range(1, 50)))
    assert usual_jobs.learned(log) == ()
    assert usual_jobs.learned(DecisionLogConfig(tmp_path / "none", 1, 2)) == ()


def test_the_engine_gives_the_policy_what_the_site_asks(tmp_path):
    """Two sites, one question: three of these GPUs, which pairs and quads want differently."""
    path = tmp_path / "gputopo.yaml"
    text = "decision_log: {{path: log}}\nusual_jobs: {{{0}: 1}}\nnodes: []\n"
    own = []
    for gpus in (2, 4):
        path.write_text(text.format(gpus))
        own.append(setup.load(path).decider.get_policy("mapa-preserve-site"))
    assert own[0].name == own[1].name == "mapa-preserve-site"
    assert [policy.insensitive.demand for policy in own] == [((2, 1.0),), ((4, 1.0),)]
    assert setup.load(path).decider.get_policy("mapa").name == "mapa"
