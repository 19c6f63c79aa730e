"""`gputopo support-bundle` of a site whose Slurm, journal and logs are made up, and hostile."""

import io
import json
import os
import stat
import sys
import tarfile
from pathlib import Path

import pytest
from commands_in_tests import refused, run
from engine_in_tests import an_engine
from fake_slurm import REPLIES, tool
from machines_in_tests import BASIC

from slurm_plugin.doctor import texts
from slurm_plugin.doctor.bundle import FOLDER, Bundle, Patience
from slurm_plugin.doctor.placeholders import Placeholders
from slurm_plugin.doctor.secrets import Secrets
from slurm_plugin.errors import SlurmError

SETTINGS = """
# ask bob@example.org, or Carol in room 5
users:
  alice: {{policy: mapa}}  # her thesis
  job: {{hints: {{pattern: ring}}}}
accounts: {{acme: {{policy: mapa}}}}
"""
JOURNAL = """\
2026-01-01T00:00:00+00:00 gputopo[7]: job 65 of mallory is on its way
2026-01-01T00:00:01+00:00 gputopo[7]: reloaded /home/alice/gputopo.yaml for research
2026-01-01T00:00:02+00:00 gputopo[7]: evil \x1b[2J\x07 end
"""
CONTROLLER = """\
[2026-01-01T00:00:00] gputopo: JobId=7 JobName=two-nodes UserId=alice(1001): advice ignored
[2026-01-01T00:00:01] sched: JobId=8 of bob has nothing to do with us
[2026-01-01T00:00:02] gputopo: job on the node waits, as root said; token=abc123
"""
DECISIONS = """\
{"decision":"use","time":"t","job":7,"uid":64999,"account":"acme","hint":"profile=acme-x",\
"note":"no profile 'acme-x'","chosen":{"gpus":{"dgx1":[0,3]}}}
{"decision":"use","time":
"""
CONF = """\
ClusterName=c
SlurmctldHost=ctl(10.9.8.7)
AccountingStoragePass=hunter2
AccountingStorageHost=db.example.org
NodeName=dgx[1-3] Gres=gpu:8 \\
  CPUs=16  # bought by Dave
PartitionName=gpu Nodes=ALL AllowAccounts=acme,research
"""


#: A job of each line: its user, account, name and comment.
QUEUE = """\
alice|research|two-nodes|hint for Carol
bob|research|node|N/A
root|root|0-3|(null)
"""
SQUEUE = """\
import sys
columns = [word.partition(":0") for word in sys.argv[sys.argv.index("-O") + 1].split(",")]
for line in open(sys.argv[1]):
    told = dict(zip(("UserName", "Account", "Name", "Comment"), line.rstrip().split("|")))
    print("".join(told[name] + end for name, _, end in columns))
"""


class Site:
    """The files of a site in a folder; its Slurm is what record-replies.sh recorded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.bin, self.etc = folder, folder / "bin", folder / "etc"
        self.bin.mkdir()
        self.etc.mkdir()
        self.config, self.conf = self.etc / "gputopo.yaml", self.etc / "slurm.conf"
        self.log, self.decisions = folder / "slurmctld.log", folder / "decisions.jsonl"
        self.config.write_text((BASIC + SETTINGS).format(folder=folder))
        self.conf.write_text(CONF)
        (self.etc / "gputopo-bridge.conf").write_text("deadline_ms = 50 # as Eve wanted\n")
        self.log.write_text(CONTROLLER)
        self.decisions.write_text(DECISIONS)
        (folder / "journal").write_text(JOURNAL)
        replies = REPLIES / "24.11.5"
        config = (replies / "scontrol_show_config.out").read_text()
        config = config.replace("/var/log/slurm/slurmctld.log", str(self.log))
        config = config.replace("/etc/slurm/slurm.conf", str(self.conf))
        config = config.replace("AuthInfo                = (null)", "AuthInfo = socket=/secret")
        (folder / "config").write_text(config)
        script = f"""echo "$*" >>{folder}/asked; case "$*" in
            "show config") cat {folder}/config;;
            --version) cat {replies}/scontrol_version.out;;
            "show nodes --json") cat {replies}/scontrol_show_nodes_json.out;;
            *partitions) cat {replies}/scontrol_oneliner_show_partitions.out;;
            *) echo "fake: $*" >&2; exit 1;; esac"""
        tool(self.bin, "scontrol", script)
        (folder / "queue").write_text(QUEUE)
        (folder / "squeue.py").write_text(SQUEUE)
        tool(self.bin, "squeue", f'exec {sys.executable} {folder}/squeue.py {folder}/queue "$@"')
        tool(self.bin, "journalctl", f"cat {folder}/journal")
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        self.output = folder / "out" / "b.tar.gz"
        self.said = ""

    def bundle(self, *options: str) -> dict[str, str]:
        """The files of the bundle by name."""
        argv = ("support-bundle", "--config", str(self.config), "--output", str(self.output))
        self.said = run(*argv, *options)
        with tarfile.open(self.output) as archive:
            files = {one.name: archive.extractfile(one).read().decode() for one in archive}
        assert {Path(name).parent for name in files} == {Path(FOLDER)}
        return {Path(name).name: text for name, text in files.items()}


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_all_of_it_is_there_and_nobodys_name(site):
    files = site.bundle()
    assert set(files) == {
        "README.txt", "versions.txt", "gputopo.yaml", "gputopo-bridge.conf", "slurm.conf",
        "scontrol-show-config.txt", "doctor.json", "journal.txt", "decisions.jsonl",
        "slurmctld.log",
    }  # fmt: skip
    whole = "\n".join(files.values())
    for name in (
        "alice",
        "bob",
        "mallory",
        "Carol",
        "Dave",
        "Eve",
        "acme",
        "research",
        "64999",
        "two-nodes",
        "hunter2",
        "/secret",
        "abc123",
        "example.org",
        "10.9.8.7",
        "thesis",
    ):
        assert name not in whole, name
    for word in (
        "dgx1",
        "ctl",
        "SelectType = select/cons_tres",
        "slurmctld: 24.11.5",
        "root said",
        "NodeName=dgx[1-3]",
        "deadline_ms = 50",
        "job on the node waits",
    ):
        assert word in whole, word
    assert "NOT ALL" not in whole
    assert "nothing to do with us" not in whole
    assert "\x1b" not in whole
    assert "\x07" not in whole


def test_the_same_name_is_the_same_placeholder_everywhere(site):
    files = site.bundle()
    alice = files["gputopo.yaml"].split("users:\n  ")[1].split(":")[0]
    assert f"JobName=job1 UserId={alice}: advice ignored" in files["slurmctld.log"]
    assert f"/home/{alice}/gputopo.yaml" in files["journal.txt"]
    record = json.loads(files["decisions.jsonl"].splitlines()[0])
    assert record["account"] in files["gputopo.yaml"].split("accounts:")[1]
    assert record["hint"] == "profile=text1"
    assert record["note"] == "no profile 'text1'"
    assert f"alice is {alice}" in site.said
    assert "alice" not in files["README.txt"]


def test_it_says_what_is_in_it_and_what_is_not_and_why(site):
    files = site.bundle()
    for words in (
        "status.json",
        "NOT THERE",
        "the engine is not running",
        "replaced: ",
        "3 passwords, keys",
        "slurmctld.log",
    ):
        assert words in site.said
        assert words in files["README.txt"]
    assert "a line of 25 characters that cannot be read" in files["decisions.jsonl"]
    findings = json.loads(files["doctor.json"])["findings"]
    assert {"config", "slurm", "engine"} <= {one["check"] for one in findings}


def test_the_file_is_its_owners_alone_and_replaces_a_link_of_others(site):
    site.output.parent.mkdir()
    (site.folder / "victim").write_text("mine")
    site.output.symlink_to(site.folder / "victim")
    site.bundle()
    status = site.output.lstat()
    assert (stat.S_ISREG(status.st_mode), status.st_mode & 0o777) == (True, 0o600)
    assert (site.folder / "victim").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root follows")
def test_root_follows_no_link_that_others_may_have_put(site):
    theirs = site.folder / "theirs"
    theirs.mkdir()
    (theirs / "out").symlink_to(site.etc)
    (theirs / "decisions.jsonl").symlink_to(site.conf)
    os.chown(theirs, 12345, 12345)
    text = site.config.read_text().replace(str(site.decisions), f"{theirs}/decisions.jsonl")
    site.config.write_text(text)
    files = site.bundle()
    assert "decisions.jsonl" not in files
    assert "is a link that others than root may have put there" in files["README.txt"]
    said = refused(
        "support-bundle", "--config", str(site.config), "--output", f"{theirs}/out/b.tar.gz"
    )
    assert "is a link that others" in said
    assert not list(site.etc.glob("*.gz"))


def test_nodes_are_hidden_where_that_is_wanted(site):
    files = site.bundle("--hide-nodes")
    whole = "\n".join(files.values())
    assert 'dgx1"' not in whole
    assert "dgx[" not in whole
    assert "topology: dgx1v" in whole, "a machine of the catalog is no node"
    record = json.loads(files["decisions.jsonl"].splitlines()[0])
    assert "ctl(" not in files["slurm.conf"]
    [node] = record["chosen"]["gpus"]
    assert node.startswith("node")
    assert f"NodeName={node.rsplit('-', 1)[0]}-[1-3]" in files["slurm.conf"]


def test_a_slurm_that_is_down_costs_its_timeout_once():
    asked = []

    def down(argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        asked.append(argv)
        raise SlurmError(f"{argv[0]}: no answer within 10 s; is slurmctld up?")

    bundle = Bundle(Path("/none/gputopo.yaml"), Placeholders(), down)
    parts = {one.name: one for one in bundle.parts()}
    assert len(asked) == 1
    assert "no answer within" in parts["scontrol-show-config.txt"].problem
    assert "no answer within" in parts["doctor.json"].text
    assert "no answer within" in parts["versions.txt"].text


def test_slurms_commands_have_so_much_time_together():
    patience = Patience(lambda argv, stdin="", timeout_s=None: f"{timeout_s:.0f}", 60)
    assert patience(["scontrol"], "", 30.0) == "10"
    with pytest.raises(SlurmError, match="the time for Slurm's commands is over"):
        Patience(lambda argv, stdin="", timeout_s=None: "", 0)(["scontrol"])


def test_a_wrong_file_is_in_it_with_its_names_replaced(site):
    text = site.config.read_text()
    site.config.write_text(text + "\nusers:\n  zoe: {\nnodes: [")
    files = site.bundle()
    shown = files["gputopo.yaml"]
    assert "zoe" not in shown
    assert "alice" not in shown
    assert "nodes: [" in shown
    assert "not YAML" in files["doctor.json"]


def test_a_line_of_ten_megabytes_and_bytes_that_are_no_text_do_no_harm(site):
    long = b"gputopo: alice " + b"x" * (10 << 20) + b"\n"
    half = b"gputopo: " + b"y" * 1986 + b" alice\n"
    site.log.write_bytes(long + b"\xff\xfe gputopo \x00\n" + half + b"gputopo: the end\n")
    site.decisions.write_bytes(b"[" * (10 << 20) + b"\n" + b"[" * 60_000 + b"\n")
    files = site.bundle()
    lines = files["slurmctld.log"].splitlines()
    assert lines[0].startswith("gputopo: user")
    assert lines[0].endswith(f"... ({len(long)} bytes, cut here)")
    assert lines[2].endswith("... (2002 bytes, cut here)")
    assert lines[-1] == "gputopo: the end"
    assert "alic" not in files["slurmctld.log"]
    assert files["decisions.jsonl"].count("cannot be read") == 2
    assert site.output.stat().st_size < 1 << 20


def test_settings_that_are_too_long_are_said_to_be(site):
    site.conf.write_text("NodeName=n1\n" * 100_000)
    files = site.bundle()
    assert "slurm.conf" in files
    assert "slurm.conf: the end of a file that is too long" in files["README.txt"]


def test_included_files_of_slurm_conf_are_there_too(site):
    """Where a site keeps GPUs and plugins in files of their own slurm.conf alone says nothing."""
    (site.etc / "gpus.conf").write_text(
        "# Eve's\nGresTypes=gpu\nAccountingStoragePass+=hidden7\nAuthInfo *= hidden8\nX=y\n"
        'PartitionName=p AllowAccounts="physics, karl"\n'
        'NodeName=n1 Comment="call 555" Reason="eve broke it"\n'
    )
    joined = "SelectType=select/\\\ncons_tres\n"
    site.conf.write_text(f"Include gpus.conf\n{joined}Include gone.conf\n")
    files = site.bundle()
    shown = files["slurm.conf"]
    assert "GresTypes=gpu" in shown
    assert "SelectType=select/cons_tres" in shown
    assert f"# {site.etc}/gpus.conf" in shown
    assert not [word for word in ("hidden", "karl", "555", "eve broke") if word in shown]
    assert "gone.conf: cannot be read" in files["README.txt"]


def test_what_the_engine_says_of_itself_stays_as_it_is(tmp_path):
    told = json.loads(json.dumps(an_engine(tmp_path).status()))
    assert Placeholders().tree(told) == told


def test_of_a_large_log_the_end_is_read():
    file = io.BytesIO(b"gputopo: half of a line\n" * 1000)
    assert texts.last_lines(file, 100, 50) == ["gputopo: half of a line"] * 4
    assert texts.last_lines(io.BytesIO(b"x" * 1000), 100, 50) == []
    assert texts.last_lines(io.BytesIO(b""), 100, 50) == []


@pytest.mark.parametrize("kind", ["FIFO", "folder", "missing"])
def test_logs_that_are_no_plain_files_are_said(site, kind):
    site.log.unlink()
    if kind == "FIFO":
        os.mkfifo(site.log)
    elif kind == "folder":
        site.log.mkdir()
    files = site.bundle()
    assert "slurmctld.log" not in files
    assert str(site.log) in site.said


def test_what_cannot_be_written_is_one_line(site):
    for output in (site.log / "b.tar.gz", site.folder):
        argv = ("support-bundle", "--config", str(site.config), "--output", str(output))
        assert run(*argv, code=2).count("\n") <= 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("users: {alice: {policy: mapa}}", "users: {user1: {policy: mapa}}"),
        ("users:\n  'alice': {}\n  policy: {policy: mapa}",
         "users:\n  'user1': {}\n  user2: {policy: mapa}"),
        ("genie: {accounts: {acme: {}}}", "genie: {accounts: {account1: {}}}"),
        ("users:\n  alice: {\n  policy:\n    policy: mapa\nmode: x",
         "users:\n  user1: {\n  user2:\n    policy: mapa\nmode: x"),
        ('a: "b # c"  # d', 'a: "b # c"  # (a comment)'),
        ("# alice", "# (a comment)"),
        ("users: {a\x1b: 1", r"users: {a\x1b: 1"),
        ("*: [", "*: ["),
        ("users: 5", "users: 5"),
        ("users: {[a]: 1, ? {b: c} : 2}", "users: {[a]: 1, ? {b: c} : 2}"),
    ],
)  # fmt: skip
def test_users_and_accounts_in_settings_right_or_wrong(text, shown):
    assert texts.yaml_text(text, Placeholders(), Secrets()) == shown
