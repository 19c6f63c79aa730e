"""gputopo.yaml: every mistake is named with file, line, key and what is allowed."""

import os
from pathlib import Path

import pytest
from commands_in_tests import run
from machines_in_tests import BASIC, basic_config

from policies.genie.submit import PAPER, Within
from slurm_plugin.act.genie.site import site_of
from slurm_plugin.config import settings as config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.errors import ConfigError

FILE = Path("/etc/slurm/gputopo.yaml")


def test_an_empty_file_is_all_defaults():
    settings = config.parse("", FILE)
    assert settings.socket == Path("/run/gputopo/engine.sock")
    assert settings.decision_log.max_mb == 64
    assert settings.waiting.max_postponements == 10
    assert settings.rule("any").mode == "observe"
    assert settings.nodes == ()
    assert settings.genie is None


def test_a_partition_takes_the_rest_from_default(tmp_path):
    settings = basic_config(tmp_path)
    assert settings.rule("plain").mode == "enforce"
    assert settings.rule("plain").policy == "first-fit"
    assert settings.rule("watched").policy == "mapa"
    assert settings.rule("picky").hints == {"min-utility": "0.9"}


def test_default_may_be_written_last():
    text = 'partitions: {a: {policy: first-fit}, default: {mode: "off"}}'
    assert config.parse(text, FILE).rule("a").mode == "off"


@pytest.mark.parametrize("mode", ["off", '"off"', "'off'"])
def test_off_is_a_word_however_it_is_quoted(mode):
    settings = config.parse(f"partitions: {{default: {{mode: {mode}}}}}", FILE)
    assert settings.rule("").mode == "off"


def test_of_several_partitions_the_one_that_changes_least_counts(tmp_path):
    settings = basic_config(tmp_path)
    assert settings.rule("default,watched").mode == "observe"
    assert settings.rule("watched,quiet,plain").mode == "off"


def test_files_are_relative_to_the_configuration():
    text = "nodes: [{nodes: n1, topology: minsky, gres_conf: my/gres.conf}]\nsocket: s\n"
    text += "topology_conf: topology.conf"
    settings = config.parse(text, FILE)
    assert settings.nodes[0].gres_conf == Path("/etc/slurm/my/gres.conf")
    assert settings.socket == Path("/etc/slurm/s")
    assert settings.topology_conf == Path("/etc/slurm/topology.conf")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sockte: /x", "1: sockte: unknown key; allowed: socket, enforcement"),
        ("\nenforcement: both", "2: enforcement: 'both' is not one of select, slots"),
        ("deadline_ms: fast", "1: deadline_ms: 'fast' is not a number; expected integer from 1"),
        ("deadline_ms: 0", "1: deadline_ms: 0 is out of range"),
        ("deadline_ms: 1.5", "is not a number"),
        ("slurm: {timeout_s: .nan}", "1: slurm.timeout_s:"),
        ("decision_log: {path: [a]}", "1: decision_log.path: expected a value"),
        ("decision_log:\n  max_mb: 1\n  max_mb: 2", "3: decision_log.max_mb: given twice"),
        ("decision_log: 5", "1: decision_log: expected keys and values"),
        ("- a", "1: file: expected keys and values"),
        ("nodes: x", "1: nodes: expected a list"),
        ("nodes: [{topology: minsky}]", "1: nodes[0].nodes: expected a host list"),
        ("nodes:\n- {nodes: n1}", "2: nodes[0].topology: missing"),
        ("nodes:\n- {nodes: 'n[1', topology: a}", "2: nodes[0].nodes: 'n[1'"),
        ("nodes:\n- {nodes: 'n[1-3]', topology: a}\n- {nodes: n2, topology: a}",
         "3: nodes[1].nodes: node n2 was already declared in line 2"),
        ("nodes: [{nodes: n1, topology: a, slurm_index: [0, 2]}]",
         "1: nodes[0].slurm_index: each of 0 to 1 must stand once"),
        ("nodes: [{nodes: n1, topology: a, slurm_index: guess}]",
         "1: nodes[0].slurm_index: 'guess' is no mapping; expected identity, gres-conf or a list"),
        ("partitions:\n  batch: {mode: maybe}",
         "2: partitions.batch.mode: 'maybe' is not one of off, observe, enforce"),
        ("partitions:\n  batch: {policy: magic}",
         "2: partitions.batch.policy: 'magic' is no policy; known: mapa"),
        ("partitions:\n  batch:\n    hints: {pattern: knot}",
         "3: partitions.batch.hints.pattern: pattern: 'knot'; expected ring"),
        ("partitions: {batch: {hints: {colour: red}}}", "hints.colour: unknown key 'colour'"),
        ("partitions: {batch: {hints: {policy: mapa}}}", "write it as the rule's own key"),
        ("partitions: {batch: {users_may_set: [colour]}}", "'colour' is no hint key; allowed:"),
        ("topo_aware:\n  communication: -1", "2: topo_aware.communication: -1 is out of range"),
        ("topo_aware: {communication: 0, interference: 0, fragmentation: 0}",
         "1: topo_aware: all three weights are 0; expected one above"),
        ("remote: {allow: perhaps}", "1: remote.allow: 'perhaps' is not one of no, yes"),
        ("remote: {preset: rkuda}", "1: remote.preset: 'rkuda' is no preset; expected one of"),
        ("remote: {preset: my.yaml}", "remote.preset: /etc/slurm/my.yaml: cannot be read"),
        ("enforcement: slots\nremote: {allow: yes, preset: cricket}",
         "2: remote.preset: cricket: it takes no port, so the relay cannot stand in front of it;"
         " expected trust_network: yes"),
        ("remote: {ports: 50000}", "1: remote.ports: '50000' is no range of ports; expected"),
        ("remote: {ports: 80-90}", "remote.ports: '80-90' is no range of ports"),
        ("remote: {ports: 60000-50000}", "remote.ports: '60000-50000' is no range of ports"),
        ("remote: {r_queues: rq}", "1: remote.r_queues: expected a list"),
        ("remote: {unservable: hang}", "remote.unservable: 'hang' is not one of wait, refuse"),
        ("remote: {donor_cpus: 0}", "remote.donor_cpus: 0 is out of range"),
        ("genie: {late: never}", "1: genie.late: 'never' is not one of accept, refuse"),
        ("genie: {colour: red}", "1: genie.colour: unknown key"),
        ("genie: {partitions: {a: {}}}", "1: genie.partitions.a.nodes: missing"),
        ("genie: {partitions: {a: {nodes: 'n[1'}}}", "1: genie.partitions.a.nodes: "),
        ("genie: {classes: {vip: 1}}", "genie.classes.vip: no such class; allowed: urgent, prior"),
        ("genie: {classes: {prior: soon}}", "genie.classes.prior: 'soon'; expected times the"),
        ("genie: {classes: [prior]}", "genie.classes: expected classes (urgent, prior, normal)"),
        ("genie: {classes: {}}", "genie.classes: expected classes"),
        ("genie:\n  accounts: {a: {}}", "2: genie.accounts.a.classes: missing"),
        ("users: {a: {modus: off}}", "users.a.modus: unknown key; allowed: mode, policy, hints"),
        ("users: {a: {mode: on}}", "users.a.mode: "),
        ("accounts: {a: {policy: magic}}", "accounts.a.policy: 'magic' is no policy"),
        ("users: {a: {hints: {bind: none}}}", "plugstack.conf"),
        ("partitions: {p: {hints: {mem: none}}}", "plugstack.conf"),
        ("explain_listen: 9400", "is not host:port"),
        ("metrics_listen: 'localhost:99999'", "is not host:port"),
        ("socket: [a", "not YAML"),
        ("a: &a [*a]\n", "1: a: unknown key"),
        ("socket: \x00", "1: not YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(text, says):
    with pytest.raises(ConfigError) as caught:
        config.parse(text, FILE)
    assert str(caught.value).startswith(f"{FILE}:")
    assert says in str(caught.value)


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"/none/gputopo\.yaml: cannot be read"):
        config.load(Path("/none/gputopo.yaml"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root refuses")
@pytest.mark.parametrize(
    ("what", "uid", "mode"),
    [("gputopo.yaml", 12345, 0o644), (".", 12345, 0o755), ("gputopo.yaml", 0, 0o664),
     (".", 0, 0o775), ("link.yaml", 0, 0o755)],
)  # fmt: skip
def test_root_runs_no_program_and_writes_nowhere_that_others_may_name(
    tmp_path, monkeypatch, caplog, what, uid, mode
):
    """What only asks Slurm does without the folder of Slurm's commands that the file names."""
    folder, asked = tmp_path / "slurm", tmp_path / "slurm" / "gputopo.yaml"
    folder.mkdir(mode=0o755)
    asked.write_text(f"slurm: {{bin_dir: {tmp_path}}}\nnodes: []\n")
    asked.chmod(0o644)
    (tmp_path / "slurm" / "link.yaml").symlink_to(asked)
    assert config.load(folder / "link.yaml").slurm.bin_dir == tmp_path
    if what == "link.yaml":  # of another's, between two folders of root's
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "on").symlink_to(asked)
        os.chown(theirs, 12345, 12345)
        asked = tmp_path / "asked.yaml"
        asked.symlink_to(theirs / "on")
    else:
        os.chown(folder / what, uid, uid)
        (folder / what).chmod(mode)
    with pytest.raises(ConfigError, match=r"others than root may (write|have put)"):
        config.load(asked)
    assert f"{asked}: 0 nodes" in run("config", "check", str(asked))
    for words in (("topology", "mark", "dgx1"), ("topology", "collect")):
        said = run(*words, "--config", str(asked), code=2)
        assert "others than root may" in said
        assert len(said.splitlines()) == 1
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/none")
    with caplog.at_level("WARNING"):
        run("explain", "7", "--config", str(asked), code=2)
    assert not (tmp_path / "ran").exists()
    assert "so slurm.bin_dir is not used" in caplog.text


def test_whoever_is_not_root_may_use_a_file_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "gputopo.yaml").write_text("nodes: []\n")
    (tmp_path / "gputopo.yaml").chmod(0o666)
    assert config.load(tmp_path / "gputopo.yaml").nodes == ()


def test_nothing_is_lent_unless_the_site_says_so():
    found = config.parse("", FILE).remote
    assert (found.allow, found.trust_network, found.preset.name) == (False, False, "echo")
    text = "enforcement: slots\nremote: {allow: yes, ports: 6000-6009, r_queues: [rq]}"
    found = config.parse(text, FILE).remote
    assert (found.allow, found.ports, found.r_queues) == (True, (6000, 6009), ("rq",))
    trusting = "enforcement: slots\nremote: {allow: yes, preset: cricket, trust_network: yes}"
    assert config.parse(trusting, FILE).remote.preset.name == "cricket"


# The section `genie`


def test_partitions_take_what_they_do_not_say_from_the_section():
    text = """
genie:
  database: perf.db
  late: refuse
  classes: {prior: 1.5, normal: 12h}
  partitions:
    a: {nodes: "n[1-2]"}
    b: {nodes: n3, late: accept, classes: {urgent: 0}, max_nodes: 1, max_gpus_per_node: 4}
  accounts: {gold: {classes: {urgent: 0, normal: 1}}}
"""
    genie = config.parse(text, FILE).genie
    assert genie.database == Path("/etc/slurm/perf.db")
    a, b = genie.partitions["a"], genie.partitions["b"]
    assert (a.nodes, a.late, a.max_nodes) == (("n1", "n2"), "refuse", 0)
    assert a.classes == {"prior": Within(1.5), "normal": Within(seconds=43200)}
    assert (b.late, b.classes, b.max_nodes) == ("accept", {"urgent": Within(0)}, 1)
    assert tuple(genie.accounts["gold"].classes) == ("urgent", "normal")


def test_where_the_site_names_no_class_only_the_papers_usual_one_is_for_all():
    genie = config.parse("genie: {partitions: {a: {nodes: n1}}}", FILE).genie
    assert genie.partitions["a"].classes == {"normal": PAPER["normal"]}
    assert {name: within.times for name, within in PAPER.items()} == {
        "urgent": 0.0, "prior": 1.0, "normal": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("dgx[1-4]", "genie.partitions.dl.nodes: dgx4 is not declared"),
        ("dgx1,minsky1", "genie.partitions.dl.nodes: nodes of 4, 8 GPUs; expected nodes of one"),
    ],
)
def test_nodes_must_be_declared_and_alike(tmp_path, nodes, says):
    text = BASIC + f"genie: {{{{partitions: {{{{dl: {{{{nodes: '{nodes}'}}}}}}}}}}}}\n"
    settings = basic_config(tmp_path, text)
    assert settings.genie is not None
    with pytest.raises(ConfigError, match=says):
        site_of(settings.genie, load_machines(settings), str(settings.path))
