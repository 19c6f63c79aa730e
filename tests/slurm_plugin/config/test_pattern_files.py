"""A site's own patterns, from the file to the decision: gputopo.yaml, hints, commands."""

import json
from pathlib import Path

import pytest
from commands_in_tests import refused, run
from machines_in_tests import BASIC, decider_of, mask, named, node, question

from slurm_plugin.base.protocol import Pass, Use
from slurm_plugin.config import settings as config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.preferences import HintRefused, read_preferences
from slurm_plugin.errors import ConfigError
from slurm_plugin.serve.setup import load

STAR = "0 1\n0 2\n0 3\n"
#: Where the best star and the best ring of four are different sets.
FREE = mask(0, 1, 2, 4, 5)
SQUARE = "0 1\n1 2\n2 3\n0 3\n"


def written(folder: Path, more: str, **files: str) -> Path:
    """A configuration with these lines added, and the patterns' files beside it."""
    for name, text in files.items():
        (folder / name).write_text(text)
    path = folder / "gputopo.yaml"
    path.write_text(BASIC.format(folder=folder) + more)
    return path


def with_halo(folder: Path, text: str = STAR, more: str = "") -> Path:
    """A configuration with one pattern of the site's own."""
    return written(folder, f"patterns: {{halo: halo.txt}}\n{more}", **{"halo.txt": text})


def chosen(path: Path, hint: str, gpus: int = 4, **more: object) -> Use:
    asked = question(node("dgx1", FREE, mask(*(0, 1, 2, 4, 5)[:gpus])), hint=hint, **more)
    reply = decider_of(config.load(path)).decide(asked).reply
    assert isinstance(reply, Use), reply
    return reply


def test_a_job_is_placed_by_the_pattern_its_hint_names(tmp_path):
    path = with_halo(tmp_path)
    greedy = "policy=mapa-greedy,pattern="
    halo = chosen(path, greedy + "halo")
    assert halo.nodes == chosen(path, greedy + "star").nodes
    assert halo.nodes != chosen(path, greedy + "ring").nodes
    assert "halo: " in halo.note


def test_without_a_hint_the_rules_pattern_counts(tmp_path):
    path = with_halo(tmp_path, more="accounts: {physics: {hints: {pattern: halo}}}\n")
    assert "halo: " in chosen(path, "", account="physics").note
    assert "ring: " in chosen(path, "", account="other").note


def test_another_number_of_gpus_is_a_ring_and_the_note_says_so(tmp_path):
    path = with_halo(tmp_path)
    told = chosen(path, "pattern=halo", gpus=3)
    assert "ring (halo is for 4 GPUs): " in told.note
    assert told.nodes == chosen(path, "pattern=ring", gpus=3).nodes


def test_a_reload_with_another_file_of_the_same_name_decides_anew(tmp_path):
    hint = "policy=mapa-greedy,pattern=halo"
    path = with_halo(tmp_path)
    before = chosen(path, hint)
    (tmp_path / "halo.txt").write_text(SQUARE)
    after = chosen(path, hint)
    assert before.nodes == chosen(path, "policy=mapa-greedy,pattern=star").nodes
    assert after.nodes == chosen(path, "policy=mapa-greedy,pattern=ring").nodes
    assert before.nodes != after.nodes


def test_the_record_tells_which_contents_were_used(tmp_path):
    asked = question(node("dgx1", 0xFF, mask(0, 1, 2, 3)), hint="pattern=halo")
    found = []
    for text in (STAR, SQUARE):
        path = with_halo(tmp_path, text)
        found.append(decider_of(config.load(path)).decide(asked).record().pattern)
    assert all(name.startswith("halo@") for name in found)
    assert found[0] != found[1]


def test_the_canonical_hint_keeps_the_users_name(tmp_path):
    path = with_halo(tmp_path)
    rule = config.load(path).rule("default")
    preferences = read_preferences("sensitive=no, pattern=halo", rule)
    assert preferences.text == "pattern=halo,sensitive=no"
    assert read_preferences(preferences.text, rule).text == preferences.text


def test_a_name_nobody_declared_is_refused_with_the_names_there_are(tmp_path):
    path = with_halo(tmp_path)
    with pytest.raises(HintRefused, match=r"pattern: 'hallo'; expected ring, .*hypercube, halo$"):
        read_preferences("pattern=hallo", config.load(path).rule("default"))
    gone = written(tmp_path, "")
    reply = (
        decider_of(config.load(gone))
        .decide(question(node("dgx1", 0xFF, 3), hint="pattern=halo"))
        .reply
    )
    assert isinstance(reply, Pass)
    assert "hint ignored: pattern: 'halo'; expected ring" in reply.note


def test_patterns_are_ready_before_the_first_question(tmp_path):
    assert load(with_halo(tmp_path)).config.patterns["halo"].ranks == 4


WRONG = [
    ("no such file", "{halo: none.txt}", "patterns.halo: "),
    ("no such file, named", "{halo: none.txt}", "none.txt: No such file or directory"),
    ("a name of ours", "{ring: halo.txt}", "patterns.ring: expected a name of up to 63 letters"),
    ("no name", "{'a b': halo.txt}", "patterns.a b: expected a name of up to 63 letters"),
    ("a name with a digest", "{'a@b': halo.txt}", "patterns.a@b: expected a name"),
    ("a name too long for the nodes", "{" + "a" * 64 + ": halo.txt}", "expected a name of up to"),
    ("a folder", "{halo: .}", "expected a readable file"),
    ("no value", "{halo: }", "patterns.halo: expected a value"),
    ("no pattern in it", "{halo: loop.txt}", "loop.txt:1: rank 1 to itself"),
    ("no text in it", "{halo: binary.txt}", "binary.txt: not text"),
    ("twice", "{halo: halo.txt, halo: halo.txt}", "patterns.halo: given twice"),
    ("a list", "[halo.txt]", "patterns: expected keys and values"),
]


@pytest.mark.parametrize(("value", "message"), named(WRONG))
def test_a_wrong_pattern_is_named_with_its_line(tmp_path, value, message):
    path = written(tmp_path, f"patterns: {value}\n", **{"halo.txt": STAR, "loop.txt": "1 1\n"})
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    line = BASIC.count("\n") + 1
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_more_ranks_than_any_node_has_gpus_is_a_mistake(tmp_path):
    chain = "".join(f"{rank} {rank + 1}\n" for rank in range(9))
    path = written(tmp_path, "patterns: {long: long.txt}\n", **{"long.txt": chain})
    with pytest.raises(ConfigError) as caught:
        load_machines(config.load(path))
    line = BASIC.count("\n") + 1
    assert str(caught.value) == (
        f"{path}:{line}: patterns.long: 10 ranks; the largest declared node has 8 GPUs,"
        " so no job could be placed by it"
    )


def test_show_says_what_a_file_is(tmp_path):
    file = tmp_path / "halo.txt"
    file.write_text(SQUARE)
    assert run("pattern", "show", str(file)) == (
        f"{file}: edge list, 4 ranks, 4 edges\n0-1 0-3 1-2 2-3\n"
        "the same as pattern=ring for 4 GPUs\n"
    )
    told = json.loads(run("pattern", "show", "--json", str(file)))
    assert told == {
        "kind": "edge list",
        "ranks": 4,
        "edges": [[0, 1], [0, 3], [1, 2], [2, 3]],
        "gpus": [0, 1, 2, 3],
        "same_as": "ring",
    }


def test_an_extracted_pattern_is_kept_as_an_edge_list(tmp_path):
    file, kept = tmp_path / "graph.xml", tmp_path / "kept.txt"
    channel = "".join(f'<gpu dev="{gpu}"/>' for gpu in (5, 7, 6))
    file.write_text(
        f'<graphs version="1"><graph pattern="3"><channel>{channel}</channel></graph></graphs>'
    )
    assert "ranks 0 to 2 are GPUs 5, 6, 7" in run("pattern", "show", str(file))
    kept.write_text(run("pattern", "show", "--edges", str(file)))
    assert "edge list, 3 ranks, 2 edges\n0-2 1-2\n" in run("pattern", "show", str(kept))


def test_a_bad_file_is_one_line(tmp_path):
    told = refused("pattern", "show", str(tmp_path / "none"))
    assert told.startswith(f"Error: {tmp_path / 'none'}: No such file")


def test_place_takes_a_pattern_or_its_file(tmp_path):
    file = tmp_path / "halo.txt"
    file.write_text(STAR)
    where = ("place", "--machine", "dgx1v", "--json", "--hint", "policy=mapa-greedy")
    own = json.loads(run(*where, "--gpus", "4", "--pattern", str(file)))
    assert own["gpus"] == json.loads(run(*where, "--gpus", "4", "--pattern", "star"))["gpus"]
    assert own["reason"].startswith("halo: ")
    other = json.loads(run(*where, "--gpus", "3", "--pattern", str(file)))
    assert other["reason"].startswith("ring (halo is for 4 GPUs): ")


def test_place_refuses_more_ranks_than_the_machine_has_gpus(tmp_path):
    file = tmp_path / "halo.txt"
    file.write_text("".join(f"{rank} {rank + 1}\n" for rank in range(4)))
    where = ("place", "--machine", "minsky", "--gpus", "4", "--pattern")
    assert f"--pattern {file}: 5 ranks; minsky has 4 GPUs" in refused(*where, str(file))
    assert refused(*where, "rung").startswith("Error: rung: No such file or directory")


def test_the_launch_table_ranks_by_the_sites_patterns(tmp_path):
    file = tmp_path / "halo.txt"
    file.write_text("1 0\n1 2\n1 3\n")  # a star around rank 1
    table = run("launch-table", "dgx1v", "--pattern", f"halo={file}").splitlines()
    rows = table[table.index("order halo 0,1,2,3,4,5,6,7") + 1 : -1]
    by_mask = dict(row.split() for row in rows)
    told = json.loads(
        run(
            "place",
            "--machine",
            "dgx1v",
            "--free",
            "0,3-5",
            "--gpus",
            "4",
            "--json",
            "--pattern",
            str(file),
        )
    )
    assert by_mask["39"] == "".join(map(str, told["gpus"]))


@pytest.mark.parametrize(
    ("machine", "given", "message"),
    [
        ("dgx1v", "halo", "--pattern 'halo'; expected NAME=FILE"),
        ("dgx1v", "ring={file}", "expected NAME=FILE, each new NAME once"),
        ("torus-16", "halo={file}", "halo: 5 ranks on 16 GPUs of torus-16"),
        ("minsky", "halo={file}", "halo: 5 ranks on 4 GPUs of minsky"),
    ],
)
def test_what_no_launch_table_can_hold(tmp_path, machine, given, message):
    file = tmp_path / "halo.txt"
    file.write_text("".join(f"{rank} {rank + 1}\n" for rank in range(4)))
    assert message in refused("launch-table", machine, "--pattern", given.format(file=file))
