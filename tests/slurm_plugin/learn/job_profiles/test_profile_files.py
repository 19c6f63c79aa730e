"""Job profiles as a site writes them, and what is wrong with those that are wrong."""

import json
from pathlib import Path

import pytest

from policies.contract.interference import Kind
from slurm_plugin.config import settings as config
from slurm_plugin.decide.site_policies import SitePolicies
from slurm_plugin.errors import ConfigError
from slurm_plugin.learn.job_profiles import Learned, Remote, files, interference, read_profiles
from slurm_plugin.learn.job_profiles.learned import MAX_BYTES, MOST_OF_ONE, MOST_SORTS, Sort

BERT = """
profile: bert
alone:
  - {gpus: 2, batch: 4, packed_s: 100, spread_s: 125}
beside:
  - {gpus: 2, batch: 4, other: vgg, other_gpus: 1, packed_s: 110}
  - {gpus: 1, other: bert, other_gpus: 1, slowdown: 1.15}
"""


def test_slowdowns_are_read_and_seconds_become_slowdowns(tmp_path):
    (tmp_path / "bert.yaml").write_text(BERT)
    (tmp_path / "README").write_text("not a profile")
    assert read_profiles(tmp_path).slowdowns == {
        (Kind("bert", 4, 2), Kind("vgg", 0, 1)): pytest.approx(1.1),
        (Kind("bert", 0, 1), Kind("bert", 0, 1)): 1.15,
    }


def test_what_a_job_does_with_gpus_of_other_nodes_is_read_from_the_same_files(tmp_path):
    (tmp_path / "bert.yaml").write_text(BERT)
    (tmp_path / "md.yaml").write_text("profile: md\nremote: {run_s: 60, gpu_calls: 1000}")
    assert read_profiles(tmp_path).remote == {"md": Remote(run_s=60.0, gpu_calls=1000.0)}
    assert len(read_profiles(tmp_path).slowdowns) == 2
    for wrong in ("run_s: 0", "gpu_calls: -1", "network_share: 1", "max_slowdown: 0.9", "bytes: 1"):
        (tmp_path / "md.yaml").write_text(f"profile: md\nremote: {{{wrong}}}")
        with pytest.raises(ConfigError, match=r"md\.yaml: "):
            read_profiles(tmp_path)


def test_how_much_longer_a_job_takes_over_several_sockets_is_read_from_them(tmp_path):
    (tmp_path / "bert.yaml").write_text(BERT)
    (tmp_path / "one.yaml").write_text("profile: one\nalone: [{gpus: 2, packed_s: 9}]")
    assert read_profiles(tmp_path).spreads == {Kind("bert", 4, 2): 1.25}


def test_json_says_the_same(tmp_path):
    pair = {"gpus": 1, "other": "b", "other_gpus": 1, "slowdown": 1.2}
    (tmp_path / "a.json").write_text(json.dumps({"profile": "a", "beside": [pair]}))
    assert read_profiles(tmp_path).slowdowns == {(Kind("a", 0, 1), Kind("b", 0, 1)): 1.2}


@pytest.mark.parametrize(
    ("sentence", "text", "says"),
    [
        ("no YAML", "profile: [", "cannot be read as YAML or JSON"),
        ("a date that is none", "alone: [{gpus: 2001-13-45}]", "month must be in 1..12"),
        ("a tag that does not fit", "alone: !!bool x", "cannot be read as YAML or JSON"),
        ("nested too deeply", "[" * 5000, "cannot be read as YAML or JSON: maximum recursion"),
        ("no name", "alone: []", "missing required field `profile`"),
        ("an unknown key", "profile: a\ncolour: red", "unknown field `colour`"),
        ("no GPUs", "profile: a\nalone: [{gpus: 0}]", r"\$.alone\[0\].gpus"),
        ("faster than alone",
         "profile: a\nbeside: [{gpus: 1, other: b, other_gpus: 1, slowdown: 0.5}]", ">= 1"),
        ("seconds beside without seconds alone",
         "profile: a\nbeside: [{gpus: 1, other: b, other_gpus: 1, packed_s: 5}]",
         r"beside\[0\]: expected `slowdown`, or packed_s"),
        ("an object for a name", "profile: {a: b}", "Expected `str`"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_file(tmp_path, sentence, text, says):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        read_profiles(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "a.yaml"))


def test_a_profile_stands_once(tmp_path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("profile: a")
    with pytest.raises(ConfigError, match=r"b\.yaml: profile a stands in .*a\.yaml already"):
        read_profiles(tmp_path)


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="expected a directory of profiles"):
        read_profiles(tmp_path / "none")


def test_a_sites_word_goes_before_what_jobs_taught():
    pair = (Kind("a", 1, 1), Kind("b", 1, 1))
    assert interference({pair: 1.05}, {pair: 1.2}).factor(*pair) == 1.05
    assert interference({}, {pair: 1.2}).factor(*pair) == 1.2


def test_each_file_is_read_once_for_all_policies(tmp_path, monkeypatch):
    asked, read_text = [], files.plain_file.read_text
    monkeypatch.setattr(
        files.plain_file, "read_text", lambda path: asked.append(path.name) or read_text(path)
    )
    (tmp_path / "bert.yaml").write_text(BERT)
    text = f"topo_aware: {{profiles: {tmp_path}}}"
    chosen = SitePolicies(config.parse(text, tmp_path / "gputopo.yaml"), Learned(None))
    assert asked == ["bert.yaml"]
    assert chosen.interference().factor(Kind("bert", 0, 1), Kind("bert", 0, 1)) == 1.15


def test_what_jobs_taught_is_taken_over_where_it_changes_anything():
    learned = Learned(None)
    chosen = SitePolicies(config.parse("", Path("gputopo.yaml")), learned)
    first = chosen("topo-aware")
    chosen.update()
    assert chosen("topo-aware") is first
    kind, other = Kind("a", 1, 1), Kind("b", 1, 1)
    for _ in range(5):
        learned.add(Sort(kind, True), 100)
        learned.add(Sort(kind, True, other), 117)
    chosen.update()
    assert chosen("topo-aware") is not first
    assert chosen("mapa").name == "mapa"


def test_how_much_longer_jobs_took_over_several_sockets_is_taken_over():
    learned, kind = Learned(None), Kind("a", 1, 2, 1000)
    chosen = SitePolicies(config.parse("", Path("gputopo.yaml")), learned)
    first, beside = chosen("horizon"), chosen("mapa")
    for at in range(5):
        assert chosen("horizon") is first
        assert learned.spreads() == {}
        learned.add(Sort(kind, True), 100 - at)
        learned.add(Sort(kind, False), 150 - at)
        learned.add(Sort(kind, False, Kind("b")), 900)
        chosen.update()
    assert learned.spreads() == {kind: 1.5}
    assert chosen("horizon") is not first
    assert chosen("mapa") is beside


ALICE, MALLORY = 1000, 1002
HERS, VGG = Kind("bert", 4, 2, ALICE), Kind("vgg", 4, 1, ALICE)


def test_what_the_site_measured_counts_for_everybodys_jobs_of_that_name():
    known = interference({(HERS.of_all, VGG.of_all): 1.1}, {(HERS, VGG): 1.3})
    for user in (ALICE, MALLORY):
        kinds = [known.told_apart(kind._replace(user=user)) for kind in (HERS, VGG)]
        assert known.factor(*kinds) == 1.1


def test_one_user_takes_a_share_of_what_is_remembered_and_the_oldest_goes(tmp_path):
    learned = Learned(tmp_path / "learned.json")
    learned.add(Sort(HERS, True), 80)
    for batch in range(3 * MOST_OF_ONE):
        learned.add(Sort(Kind("x", batch, 1, MALLORY), True), 1)
    for user in range(2000, 2000 + MOST_SORTS - MOST_OF_ONE - 1):
        learned.add(Sort(Kind("x", 1, 1, user), True), 1)
    assert len(learned._runs) == MOST_SORTS
    assert Sort(HERS, True) in learned._runs
    learned.add(Sort(VGG, True), 80)
    assert len(learned._runs) == MOST_SORTS
    learned.save()
    assert (tmp_path / "learned.json").stat().st_size < MAX_BYTES
    assert Learned(tmp_path / "learned.json")._runs == learned._runs


def test_a_file_of_an_older_release_is_read_without_what_names_no_user(tmp_path, caplog):
    path = tmp_path / "learned.json"
    runs = [80.0] * 5
    rows = [
        {"kind": ["bert", 4, 2], "is_packed": True, "seconds": runs},
        {"kind": ["bert", 4, 2, ALICE], "is_packed": True, "seconds": runs},
    ]
    path.write_text(json.dumps(rows))
    learned = Learned(path)
    assert learned.seconds(Sort(HERS, True)) == 80
    assert learned.seconds(Sort(HERS.of_all, True)) is None
    assert "1 of 2 sorts of runs are left out" in caplog.text


def test_a_file_too_large_to_be_ours_is_left_alone(tmp_path, caplog):
    path = tmp_path / "learned.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert Learned(path).slowdowns() == {}
    assert "larger than 32 MiB; starting anew" in caplog.text


def test_a_broken_file_is_learned_anew(tmp_path, caplog):
    path = tmp_path / "learned.json"
    path.write_text("[{")
    assert Learned(path).slowdowns() == {}
    assert "cannot be read" in caplog.text


def test_what_another_engine_learned_is_known_after_a_reload(tmp_path):
    sort = Sort(Kind("bert", 0, 1, 7), is_packed=True)
    ours, theirs = (Learned(tmp_path / "l") for _ in range(2))
    for seconds in (10.0, 10.0, 10.0, 10.0, 10.0):
        theirs.add(sort, seconds)
    theirs.save()
    assert ours.seconds(sort) is None
    ours.reload()
    assert ours.seconds(sort) == 10.0
