"""`gputopo doctor` against an installation made in a directory, and what it says to fix."""

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from loans_in_tests import answering
from machines_in_tests import named
from played_site import PlayedSite, in_slots_mode, plugin_file

from gres_topology import catalog
from gres_topology.readers import saved
from slurm_plugin.act.defrag import record
from slurm_plugin.cli.site.doctor import doctor
from slurm_plugin.doctor import CHECKS, slurm_files
from slurm_plugin.errors import SlurmError
from slurm_plugin.learn.collected import NodeRecord, Store
from slurm_plugin.slurm.interface import QueuedJob


def test_a_whole_installation_has_nothing_to_fix(site):
    assert site.wrong() == []
    assert {finding.check for finding in site.findings()} == set(CHECKS) - {"slots", "remote"}


def test_a_wrong_configuration_is_said_once_and_the_rest_is_still_checked(site):
    site.config.write_text("sockte: /x")
    wrong = site.wrong()
    assert len(wrong) == 1
    assert "sockte: unknown key" in wrong[0].text
    assert {"slurm", "bridge", "select plugin"} <= {f.check for f in site.findings()}


def slurm_says(**values: str) -> Callable[[PlayedSite], object]:
    """Slurm's configuration with these values; {folder} stands for the installation's."""
    return lambda site: site.slurm.values.update(
        {key: text.format(folder=site.folder) for key, text in values.items()}
    )


def four_gpus(site: PlayedSite) -> None:
    site.slurm.all_nodes[0] = replace(site.slurm.all_nodes[0], gpus={"v100": 4})


def yaml_says(old: str, new: str) -> Callable[[PlayedSite], object]:
    """gputopo.yaml with one text in place of another."""
    return lambda site: site.config.write_text(site.config.read_text().replace(old, new))


SLICED = yaml_says(
    '{nodes: "dgx[1-3]"',
    '{nodes: dgx1, topology: dgx1v, slices: [0-6, 7/1g.5gb*7]}\n  - {nodes: "dgx[2-3]"',
)
NOT_COLLECTED = yaml_says("minsky1, topology: minsky", "minsky1, topology: collected")
ANOTHER_PARTITION = yaml_says("partitions:\n", "partitions:\n  gone: {mode: observe}\n")


def network_files(site: PlayedSite) -> None:
    """Slurm 26.05 with a topology.yaml, the engine with a topology.conf."""
    (site.folder / "slurm" / "topology.yaml").write_text("- {topology: a, flat: true}")
    (site.folder / "topology.conf").write_text("SwitchName=s1 Nodes=dgx1")
    site.config.write_text(site.config.read_text() + "topology_conf: topology.conf\n")
    site.slurm.values["SLURM_VERSION"] = "26.05.3"
    plugin_file(site.folder / "ours" / "select_cons_tres.so", (26, 5, 3))


def types_in_another_order(site: PlayedSite) -> None:
    """Slurm's Gres= has one type first, gres.conf the other."""
    site.slurm.all_nodes[0] = replace(site.slurm.all_nodes[0], gpus={"v100": 6, "a100": 2})
    (site.folder / "gres.conf").write_text(
        "Name=gpu Type=a100 File=/dev/nvidia[0-1]\nName=gpu Type=v100 File=/dev/nvidia[2-7]\n"
    )
    machine = {**saved.to_dict(catalog.load("dgx1v")), "minors": list(range(8))}
    (site.folder / "own.json").write_text(json.dumps(machine))
    yaml_says(
        'dgx[1-3]", topology: dgx1v',
        'dgx[1-3]", topology: own.json, slurm_index: gres-conf, gres_conf: gres.conf',
    )(site)


def marked(*lines: str) -> Callable[[PlayedSite], object]:
    """The site's file of marks has these lines."""

    def write(site: PlayedSite) -> None:
        (site.folder / "state").mkdir(exist_ok=True)
        (site.folder / "state" / "marks.jsonl").write_text("\n".join(lines))

    return write


def repaired(site: PlayedSite) -> None:
    """A link that was marked broken is there when the node is looked at later."""
    store = Store(site.folder / "state")
    key = store.keep(catalog.load("dgx1v"))
    store.save({"dgx1": NodeRecord(key, key, "2026-01-02T00:00:00+00:00")})
    marked('{"node":"dgx1","part":"link 0-3","state":"broken","since":1767225600}')(site)


def left_on_its_way(site: PlayedSite) -> None:
    """An engine that died in the middle of a move, a day ago."""
    move = record.Moved(65, "65", "alice", 4, "dgx1", "dgx2", 5000, 1, 71, record.ASKED, 6000)
    (site.folder / "state").mkdir(exist_ok=True)
    record.write(site.folder / "state" / "moves.json", record.MovesFile(move))


def run_jobs(site: PlayedSite, count: int = 3, **times: int) -> None:
    """So many jobs with a GPU each."""
    site.slurm.all_jobs = [
        QueuedJob(number, state="RUNNING", gpus={"dgx1": (number,)}, **times)
        for number in range(count)
    ]


def submitted(site: PlayedSite, ago_s: float) -> None:
    """Three jobs that were submitted so long ago, and have GPUs for longer than anybody asks."""
    run_jobs(site, submit=int(time.time() - ago_s))


@pytest.mark.parametrize(("ago_s", "messages"), [(700, {}), (60, {"submit": 1, "place": 1})])
def test_jobs_that_are_older_or_of_which_one_was_heard_are_no_sign(site, ago_s, messages):
    submitted(site, ago_s)
    site.status["messages"] = messages
    assert site.wrong() == []


def select_conf(text: str, mode: int = 0o644) -> Callable[[PlayedSite], object]:
    """The select plugin's settings beside slurm.conf."""

    def write(site: PlayedSite) -> None:
        path = site.folder / "slurm" / "gputopo-select.conf"
        path.write_text(text.format(folder=site.folder))
        path.chmod(mode)

    return write


def restarted(site: PlayedSite, told_ago_s: float, booted_ago_s: float) -> None:
    """Three jobs have started since slurmctld did, which told its nodes so long ago."""
    now = time.time()
    site.slurm.values["BOOT_TIME"] = str(int(now - booted_ago_s))
    site.status["messages"] = {"place": 4, "started": 4, "submit": 4}
    site.status["slurm_nodes"] = {"nodes": 4, "told_at": now - told_ago_s}
    run_jobs(site, start=int(now - 30))


@pytest.mark.parametrize(("messages", "is_wrong"), [({}, True), ({"place": 4}, False)])
def test_jobs_right_after_slurmctlds_start_count_where_nothing_was_ever_heard(
    site, messages, is_wrong
):
    """The one before told its nodes to this engine, and this one may be about to."""
    restarted(site, told_ago_s=300, booted_ago_s=35)
    site.status["messages"] = {"submit": 4, **messages}
    assert {finding.check for finding in site.wrong()} == ({"questions"} if is_wrong else set())


def test_a_slurmctld_that_told_its_nodes_since_its_start_uses_the_plugin(site):
    restarted(site, told_ago_s=50, booted_ago_s=60)
    assert site.wrong() == []


def test_the_keys_of_the_plugins_settings_are_those_that_it_reads():
    source = Path(slurm_files.__file__).parents[1] / "select" / "pure" / "settings.c"
    table = source.read_text().partition("settings[] = {")[2].partition("};")[0]
    assert set(re.findall(r'\{ "(\w+)"', table)) == slurm_files.SELECT_KEYS


@pytest.mark.parametrize(
    "text", ["", "# all as usual\n\n", "socket={folder}/engine.sock\ndeadline_ms = 9\n"]
)
def test_right_settings_of_the_plugin_are_no_problem(site, text):
    select_conf(text)(site)
    assert site.wrong() == []


#: What is wrong, how it comes about, the check that finds it, its level, words of text or fix.
BROKEN: list[tuple[str, Callable[[PlayedSite], object], str, str, str]] = [
    ("kill switch", lambda site: (site.folder / "off").touch(), "kill switch", "fail",
     "rm {folder}/off"),
    ("an unknown key of the plugin's", select_conf("deadline_ms=9\nSocket = /x\n"),
     "select plugin", "fail", "gputopo-select.conf:2: 'Socket'"),
    ("no key of the plugin's", select_conf("yes\n"), "select plugin", "fail", ":1: 'yes'"),
    ("the plugin has another socket", select_conf("socket=/run/gputopo/engin.sock\n"),
     "select plugin", "fail", "says socket=/run/gputopo/engin.sock, gputopo.yaml"),
    ("a plugin that the next slurmctld did not load",
     lambda site: restarted(site, told_ago_s=300, booted_ago_s=60), "questions", "fail",
     "3 jobs with GPUs have started"),
    ("no socket", lambda site: (site.folder / "engine.sock").unlink(), "socket", "fail",
     "is missing"),
    ("socket open to everybody", lambda site: (site.folder / "engine.sock").chmod(0o666),
     "socket", "fail", "chmod 0600 {folder}/engine.sock"),
    ("socket open to the group", lambda site: (site.folder / "engine.sock").chmod(0o660),
     "socket", "fail", "chmod 0600 {folder}/engine.sock"),
    ("socket of another user", slurm_says(SlurmUser="slurm(64030)"), "socket", "fail",
     "SlurmUser is"),
    ("engine with another configuration",
     lambda site: site.status.update(config="/elsewhere.yaml"), "engine", "warn",
     "/elsewhere.yaml"),
    ("a file that the engine has not read yet",
     lambda site: site.status.update(config_digest="0", config_read_at=0), "engine", "fail",
     "gputopo.yaml changed since; the engine goes by what it read at 1970-01-01"),
    ("a file that the engine could not read",
     lambda site: site.status.update(config_digest="0", reload_error="gputopo.yaml:3: no such key"),
     "engine", "fail", "gputopo.yaml:3: no such key; correct it, then systemctl reload gputopo"),
    ("a folder that the engine may not write",
     lambda site: site.status.update(not_writable=["/var/lib/gputopo"]), "engine", "fail",
     "the engine may not write in /var/lib/gputopo"),
    ("metrics that nobody can fetch",
     lambda site: site.status.update(not_listening=["metrics_listen: 127.0.0.1:9: in use"]),
     "engine", "fail", "goes on without: metrics_listen: 127.0.0.1:9: in use; mend it"),
    ("an engine of another version", lambda site: site.status.update(version="0.0.1"), "engine",
     "warn", "the engine that runs is of version 0.0.1"),
    ("jobs of whose submit the engine heard nothing",
     lambda site: submitted(site, 60), "bridge", "warn",
     "3 jobs with GPUs were submitted, and none came to the engine"),
    ("a script of the site's that names ours, of which the engine knows nothing",
     lambda site: site.script.write_text('pcall(require, "gputopo.bridge")'), "bridge", "warn",
     "no submit has come to the engine yet"),
    ("lost decisions", lambda site: site.status.update(decisions_lost=3), "engine", "warn",
     "3 decisions"),
    ("bridge that is not listed", slurm_says(JobSubmitPlugins="cray"), "bridge", "fail",
     "gputopo enable --apply"),
    ("foreign job_submit.lua", lambda site: site.script.write_text("function slurm_job_submit()"),
     "bridge", "fail", "is not ours"),
    ("a job_submit.lua with our bridge in a comment",
     lambda site: site.script.write_text('--[==[\nrequire "gputopo.bridge" ]]\n]==]\n'), "bridge",
     "fail", "is not ours"),
    ("no job_submit.lua", lambda site: site.script.unlink(), "bridge", "fail", "No such file"),
    ("stock plugin before ours", slurm_says(PluginDir="{folder}/stock:{folder}/ours"),
     "select plugin", "fail", "put {folder}/ours first in PluginDir"),
    ("ours without stock", slurm_says(PluginDir="{folder}/ours"), "select plugin", "fail",
     "needs Slurm's own behind it"),
    ("two of ours without stock", slurm_says(PluginDir="{folder}/ours:{folder}/slurm/../ours"),
     "select plugin", "fail", "needs Slurm's own behind it"),
    ("no plugin of ours", slurm_says(PluginDir="{folder}/stock"), "select plugin", "fail",
     "of ours"),
    ("plugin directory that does not exist",
     slurm_says(PluginDir="{folder}/ours:{folder}/stock:{folder}/none"), "select plugin", "fail",
     "daemons that restart will not start"),
    ("plugin of another release", slurm_says(SLURM_VERSION="24.11.6"), "select plugin", "fail",
     "built for 24.11.5, slurmctld is 24.11.6"),
    ("another select plugin", slurm_says(SelectType="select/linear"), "select plugin", "fail",
     "select/linear"),
    ("GPU counts that differ", four_gpus, "nodes", "fail",
     "dgx1: Slurm has 4 GPUs, its topology dgx1v 8"),
    ("slices that Slurm does not count so", SLICED, "nodes", "fail",
     "dgx1: Slurm counts 8 v100; slices: in gputopo.yaml says 7 whole, 7 1g.5gb"),
    ("node left to Slurm", NOT_COLLECTED, "nodes", "fail",
     "run gputopo topology collect minsky1; gputopo topology collect minsky1"),
    ("a mark that cannot be read", marked("", '{"node": "dgx1"}'), "marks", "fail",
     "marks.jsonl:2: Object missing required field `part`"),
    ("a mark of what the node has not",
     marked('{"node":"minsky1","part":"gpu 5","state":"broken"}'), "marks", "warn",
     "gputopo topology unmark minsky1 gpu 5"),
    ("a broken link that is whole again", repaired, "marks", "warn",
     "dgx1: link 0-3 broken, and its tools show the link whole"),
    ("a job that is left on its way", left_on_its_way, "moves", "warn",
     "start the engine, which goes on with it; else scontrol release 65"),
    ("types of GPUs that Slurm counts otherwise", types_in_another_order, "nodes", "warn",
     "dgx1: Slurm counts GPUs by the types of Gres= in slurm.conf (v100, a100)"),
    ("topology.yaml beside a topology.conf", network_files, "network", "warn",
     "Slurm 26.05.3 goes by {folder}/slurm/topology.yaml and not by topology.conf; "
     "{folder}/topology.conf describes another network"),
    ("bridge and engine that enforce in two ways",
     lambda site: site.bridge.write_text("enforcement = slots # both\n"), "enforcement", "fail",
     "enforcement = slots, gputopo.yaml select"),
    ("partition that Slurm does not have", ANOTHER_PARTITION, "partitions", "warn",
     "gone is no partition"),
]  # fmt: skip


@pytest.mark.parametrize(("breaks", "check", "level", "words"), named(BROKEN))
def test_what_is_wrong_is_found_and_nothing_else(site, breaks, check, level, words):
    breaks(site)
    finding = site.only(check, level)
    assert words.format(folder=site.folder) in f"{finding.text}; {finding.fix}"


def test_a_script_of_the_sites_that_asks_the_engine_is_as_good_as_ours(site):
    site.script.write_text('pcall(require, "gputopo.bridge")')
    site.status["messages"] = {"submit": 3, "place": 1}
    assert not site.wrong()


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("gputopo.yaml", "file"),
        ("slurm/job_submit.lua", "bridge"),
        ("slurm/gputopo-select.conf", "select plugin"),
        ("ours/select_cons_tres.so", "select plugin"),
    ],
)
def test_a_file_that_slurm_user_cannot_read_is_found(site, name, check):
    """The engine does not start then, or slurmctld; or it asks nobody."""
    select_conf("")(site)
    site.slurm.values["SlurmUser"] = "nobody(65534)"
    assert {finding.check for finding in site.wrong()} == {"socket"}
    (site.folder / name).chmod(0o600)
    found = {finding.check: finding for finding in site.wrong()}
    assert found.keys() == {"socket", check}
    assert found[check].level == "fail"
    assert f"chmod a+r {site.folder / name}" in found[check].fix


def test_nodes_known_to_one_side_only_are_named(site):
    site.slurm.all_nodes[0] = replace(site.slurm.all_nodes[0], name="new1")
    wrong = site.wrong()
    assert [(f.level, f.text.split()[0]) for f in wrong] == [("warn", "dgx1"), ("warn", "new1")]


@pytest.mark.parametrize("state", ["DRAIN", "INVALID_REG"])
def test_a_gpu_that_slurmd_did_not_find_is_no_fault_of_the_configuration(site, state):
    before = site.slurm.all_nodes[0]
    site.slurm.all_nodes[0] = replace(before, gpus={"v100": 7}, state=("IDLE", state))
    (wrong,) = site.wrong()
    assert wrong.text == f"{before.name}: slurmd found 7 GPUs of 8, and the node is IDLE+{state}"
    assert f"nodename={before.name} state=resume" in wrong.fix


def test_slurm_down_is_said_once(site, monkeypatch):
    def down(name: str) -> None:
        raise SlurmError(f"scontrol show {name}: no answer within 10 s; is slurmctld up?")

    for name in ("version", "config", "nodes", "partitions"):
        monkeypatch.setattr(site.slurm, name, partial(down, name))
    found = site.only("slurm")
    assert "is slurmctld up?" in found.text
    assert found.fix.startswith("systemctl start munge slurmctld")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF gputopo", "does not say for which Slurm it is built"),
        (b"\x7fELF gputopo-version\0", "is built for 0.00.0, slurmctld is 24.11.5"),
    ],
)
def test_a_damaged_plugin_file_is_an_error_not_a_crash(site, content, said):
    (site.folder / "ours" / "select_cons_tres.so").write_bytes(content)
    assert said in site.only("select plugin").text


@pytest.mark.parametrize("boot", ["", "Unknown"], ids=["no boot time", "an unreadable one"])
def test_gpu_jobs_that_start_without_a_question_are_seen(site, boot):
    site.slurm.values["BOOT_TIME"] = boot
    run_jobs(site, start=int(time.time() - 60))
    assert "3 jobs with GPUs have started" in site.only("questions").text


def test_gpu_jobs_of_which_none_could_be_asked_about_are_seen(site):
    site.status["messages"] = {"started": 10}
    found = site.only("questions", "warn")
    assert "10 jobs with GPUs have started and none of them could be asked about" in found.text
    assert "slurmctld's log has the reason" in found.fix


def test_questions_without_the_nodes_are_seen(site):
    site.status.update(messages={"place": 1}, slurm_nodes={"nodes": 5, "told_at": 1.0})
    assert not site.wrong()
    site.status["slurm_nodes"] = None
    assert "has not told the engine its nodes" in site.only("questions", "warn").text


#: What makes the same three jobs no sign of anything: when they started, what else is told.
NO_SIGN: list[tuple[str, float, int, dict[str, Any], dict[str, str]]] = [
    ("one was asked about", 60, 3, {"messages": {"place": 1}}, {}),
    ("some were left to Slurm, and told", 60, 3, {"messages": {"started": 9}}, {}),
    (
        "of many that were, one was asked about",
        60,
        3,
        {"messages": {"started": 50, "place": 1}},
        {},
    ),
    ("they are older than the engine", 700, 3, {}, {}),
    ("they started in a pause of the plugin", 595, 3, {}, {}),
    ("slurmctld was restarted since", 60, 3, {}, {"BOOT_TIME": "now"}),
    ("they are two", 60, 2, {}, {}),
    ("everything is switched off", 60, 3, {"killed": True}, {}),
    ("another controller is in charge", 60, 3, {"charge": {"is_ours": False, "why": "ctl2"}}, {}),
    (
        "another controller was",
        *(60, 3, {"charge": {"is_ours": True, "why": "ctl", "since_s": 30.0}}, {}),
    ),
    ("nobody asks in the slots mode", 60, 3, {"enforcement": "slots"}, {}),
]


@pytest.mark.parametrize(("ago_s", "count", "status", "values"), named(NO_SIGN))
def test_gpu_jobs_that_need_no_question(site, ago_s, count, status, values):
    run_jobs(site, count, start=int(time.time() - ago_s))
    site.status |= status
    site.slurm.values |= dict.fromkeys(values, str(int(time.time())))
    assert site.wrong() == []


def test_many_good_nodes_are_one_line_by_their_gpus(site):
    more = [replace(site.slurm.all_nodes[0], name=f"n{number:03d}") for number in range(200)]
    site.slurm.all_nodes += more
    yaml_says("nodes:\n", 'nodes:\n  - {nodes: "n[000-199]", topology: dgx1v}\n')(site)
    said = [finding.text for finding in site.findings() if finding.check == "nodes"]
    assert said == [
        "n000, n001, n002, n003, n004, n005, n006, n007 and 196 more: 8 GPUs each",
        "minsky1: 4 GPUs each",
    ]


def test_slots_need_no_plugin_of_ours(site):
    in_slots_mode(site)
    assert site.wrong() == []


def test_a_node_without_a_type_per_gpu(site):
    in_slots_mode(site)
    site.slurm.all_nodes[0] = replace(site.slurm.all_nodes[0], gpus={"v100": 8})
    found = site.only("slots")
    assert "dgx1: its GPUs are v100:8" in found.text
    assert "gres-conf --slots" in found.fix


@pytest.mark.parametrize("enforcement", ["select", "slots"])
def test_a_site_that_lends_has_its_jobs_meet_their_donors(site, enforcement):
    if enforcement == "slots":
        in_slots_mode(site)
    path = site.folder / "donors.sock"
    lends = f"\nremote: {{allow: yes, submitter: {path}}}\n"
    site.config.write_text(site.config.read_text() + lends)
    with answering(path, b"ok \n"):
        assert "TaskProlog is not set" in site.only("remote").text
        site.slurm.values["TaskProlog"] = "/opt/gputopo/task-prolog"
        assert site.wrong() == []
    found = site.only("remote")
    assert f"nothing is lent: donors cannot be submitted: {path}" in found.text
    assert "gputopo-donors" in found.fix


def test_settings_without_which_slots_are_slow(site):
    in_slots_mode(site)
    for key in ("PriorityFlags", "EpilogSlurmctld[0]", "SchedulerParameters"):
        del site.slurm.values[key]
    texts = " ".join(finding.text for finding in site.wrong())
    for word in ("ACCRUE_ALWAYS", "EpilogSlurmctld", "batch_sched_delay=0", "sched_min_interval=0"):
        assert word in texts
    assert {finding.level for finding in site.wrong()} == {"warn"}


def test_who_cannot_tell_whether_it_is_in_charge_says_why(site):
    why = "/state/heartbeat: Permission denied"
    site.status["charge"] = {"is_ours": False, "is_doubtful": True, "why": why}
    assert site.only("in charge").text == f"the engine changes nothing in Slurm: {why}"


@pytest.mark.parametrize("is_ours", [True, False])
def test_engines_of_two_controllers_share_their_state(site, is_ours, monkeypatch):
    site.status["charge"] |= {"is_ours": is_ours, "controllers": ["ctl", "ctl2"]}
    (site.folder / "state").mkdir()
    site.slurm.values["StateSaveLocation"] = str(site.folder)
    assert site.wrong() == []
    [found] = [finding for finding in site.findings() if finding.check == "in charge"]
    assert found.text.endswith("stands by") != is_ours
    site.slurm.values["StateSaveLocation"] = "/proc"
    assert "is not on the file system of" in site.only("in charge", "warn").text
    site.slurm.values["StateSaveLocation"] = "/nonexistent"
    assert site.only("in charge", "warn").text == "/nonexistent: No such file or directory"


@pytest.mark.parametrize("kind", ["a pipe", "a device without end"])
def test_what_is_no_plain_file_beside_slurm_conf_neither_hangs_nor_fills_the_memory(site, kind):
    """Its folder may be SlurmUser's, and root runs this."""
    for path in (site.script, site.bridge):
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")
    found = {finding.check: finding for finding in site.wrong()}
    assert "no plain file" in found["bridge"].text


def test_what_the_engine_says_commands_no_terminal(site):
    site.status["reload_error"] = "x\x1b]52;c;cm0gLXJmIC8=\x07"
    said = CliRunner().invoke(doctor, ["--config", str(site.config)]).output
    assert "\\x1b]52" in said
    assert "\x1b" not in said


#: slurm.conf since slurmctld started, and what is said of it; {0} stands for the site's folder.
CHANGED = {
    "our plugin is taken out": (
        "PluginDir={0}/stock\nJobSubmitPlugins=lua\n",
        "slurm.conf, line 1 says PluginDir={0}/stock, and slurmctld runs with {0}/ours:{0}/stock",
    ),
    "lua is taken out, in a comment": (
        "PluginDir={0}/ours:{0}/stock\n#JobSubmitPlugins=lua\n",
        "slurm.conf has no JobSubmitPlugins, and slurmctld runs with lua",
    ),
    "the line is gone": (
        "JobSubmitPlugins=lua\n",
        "slurm.conf has no PluginDir, and slurmctld runs with {0}/ours:{0}/stock",
    ),
    "another one in an included file": (
        "PluginDir={0}/ours:{0}/stock\nJobSubmitPlugins=lua\nInclude more\n",
        "more, line 1 says JobSubmitPlugins=lua,throttle, and slurmctld runs with lua",
    ),
    "an included file is gone": ("Include gone\n", "slurm/gone: cannot be read"),
}


@pytest.mark.parametrize(("text", "says"), CHANGED.values(), ids=CHANGED)
def test_a_slurm_conf_that_changed_since_slurmctld_started_is_seen(site, text, says):
    """It works until the next start, and then nobody remembers why it does not."""
    (site.folder / "slurm" / "more").write_text("JobSubmitPlugins=lua,throttle\n")
    site.conf = text.format(site.folder)
    assert says.format(site.folder) in site.only("slurm.conf", "warn").text


def test_a_slurm_conf_without_plugin_dir_is_that_of_a_site_in_the_slots_mode(site):
    in_slots_mode(site)
    site.conf = "JobSubmitPlugins = lua # ours\n"
    assert not [one for one in site.wrong() if one.check == "slurm.conf"]


@pytest.mark.parametrize("part", ["gputopo.yaml", ""], ids=["the file", "its folder"])
def test_a_gputopo_yaml_that_anybody_may_write_is_seen(site, part):
    path = site.folder / part
    path.chmod(path.stat().st_mode | 0o002)
    assert site.only("file").text == f"anybody may write {path}"
    assert site.only("file").fix == f"chmod go-w {path}"
    if path.is_dir():
        path.chmod(path.stat().st_mode | 0o1000)  # as /tmp: nobody replaces another's file
        assert not site.wrong()


def test_a_link_to_gputopo_yaml_in_a_folder_where_anybody_may_put_another_is_seen(site):
    open_to_all = site.folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link = open_to_all / "gputopo.yaml"
    link.symlink_to(site.config)
    site.config, site.status["config"] = link, str(link)
    assert site.only("file").text == f"anybody may write {open_to_all}"


@pytest.mark.parametrize(
    ("program", "loaded", "is_former"),
    [
        ("slurmctld", "{} (deleted)", True),
        ("slurmctld", "{}", False),
        ("slurmctld", "{}.kept (deleted)", False),
        ("srun", "{} (deleted)", False),
    ],
)
def test_a_slurmctld_that_runs_the_plugin_of_before_an_upgrade_is_seen(
    site, program, loaded, is_former
):
    process = site.proc / "17"
    process.mkdir(parents=True)
    (process / "comm").write_text(f"{program}\n")
    file = loaded.format(site.folder / "ours" / slurm_files.PLUGIN_FILE)
    line = f"7f10-7f20 r-xp 00000000 00:2d 4711 {file}"
    (process / "maps").write_text(f"7f00-7f10 rw-p 00000000 00:00 0\n{line}\n")
    # Anybody's program may have any name.
    other = site.proc / "4"
    other.mkdir()
    (other / "comm").write_bytes(b"\xff\xfe\n")
    (other / "maps").write_bytes(b"\xff\n")
    found = [one for one in site.wrong() if one.check == "select plugin"]
    assert [one.fix for one in found] == ["systemctl restart slurmctld"] * is_former
    os.chown(process / "comm", 4711, 4711)
    assert not [one for one in site.wrong() if one.check == "select plugin"]


@pytest.mark.parametrize(("host", "is_compared"), [("CTL.site.org", True), ("login1", False)])
def test_slurm_conf_is_compared_on_slurmctlds_host_alone(site, monkeypatch, host, is_compared):
    """Elsewhere may lie an old one that nobody reads."""
    monkeypatch.setattr("platform.node", lambda: host)
    site.slurm.values["SlurmctldHost[0]"] = "ctl(10.0.0.1)"
    site.conf = "JobSubmitPlugins=lua\n"
    assert any(one.check == "slurm.conf" for one in site.wrong()) == is_compared
