"""slurm.conf as people write it: what enabling puts in, and disabling takes out again."""

import os
from pathlib import Path

import pytest
from machines_in_tests import named

from slurm_plugin.enabling import edits
from slurm_plugin.enabling.edits import Wanted
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.slurm_conf import JOB_SUBMIT, PLUGIN_DIR, SlurmConf, load, parse, store

MAIN, INCLUDED = Path("/etc/slurm/slurm.conf"), Path("/etc/slurm/more.conf")
SELECT = Wanted("/ours", "/stock")
DIR_MARK = "# gputopo enable put /ours into the next line; gputopo disable takes it out\n"
LUA_MARK = "# gputopo enable put lua into the next line; gputopo disable takes it out\n"
NEW_DIR = (
    "# gputopo enable wrote the next line for /ours (Slurm's own is /stock);"
    " gputopo disable takes it out\nPluginDir=/ours:/stock\n"
)
NEW_LUA = (
    "# gputopo enable wrote the next line for lua; gputopo disable takes it out\n"
    "JobSubmitPlugins=lua\n"
)
NEW = NEW_DIR + NEW_LUA


def of(text: str, included: str = "") -> SlurmConf:
    """slurm.conf with this text, which may include more.conf with the other."""
    return parse(MAIN, {MAIN: text, INCLUDED: included}.__getitem__)


#: What slurm.conf says, and what it says when enabled with the select plugin.
WRITTEN = [
    ("neither key", "ClusterName=c\n", "ClusterName=c\n" + NEW),
    ("empty", "", NEW),
    ("no line break at the end", "A=1\nClusterName=c", "A=1\n" + NEW + "ClusterName=c"),
    ("a key in the last line, which does not end", "A=1\nPluginDir=/stock",
     "A=1\n" + NEW_LUA + DIR_MARK + "PluginDir=/ours:/stock"),
    ("the other key there", "A=1\nJobSubmitPlugins=throttle",
     "A=1\n" + NEW_DIR + LUA_MARK + "JobSubmitPlugins=throttle,lua"),
    ("a comment without a line break at the end", "A=1\n# end", "A=1\n" + NEW + "# end"),
    ("a backslash at the end", "A=1\nB=2 \\\n", "A=1\n" + NEW + "B=2 \\\n"),
    ("both keys", "PluginDir=/stock\nJobSubmitPlugins=throttle\n",
     DIR_MARK + "PluginDir=/ours:/stock\n" + LUA_MARK + "JobSubmitPlugins=throttle,lua\n"),
    ("lua already there", "JobSubmitPlugins=lua,throttle\n",
     "JobSubmitPlugins=lua,throttle\n" + NEW_DIR),
    ("lua by its long name", "JobSubmitPlugins=job_submit/lua\n",
     "JobSubmitPlugins=job_submit/lua\n" + NEW_DIR),
    ("lua as a part of another name", "JobSubmitPlugins=mylua\nPluginDir=/ours:/stock\n",
     LUA_MARK + "JobSubmitPlugins=mylua,lua\nPluginDir=/ours:/stock\n"),
    ("ours first already", "PluginDir=/ours:/stock\n", "PluginDir=/ours:/stock\n" + NEW_LUA),
    ("keys in any case", "PLUGINDIR=/stock\njobsubmitplugins=throttle\n",
     DIR_MARK + "PLUGINDIR=/ours:/stock\n" + LUA_MARK + "jobsubmitplugins=throttle,lua\n"),
    ("spaces, tabs, comments", " PluginDir \t= /stock\t# ours: later\nA=1\n",
     DIR_MARK + " PluginDir \t= /ours:/stock\t# ours: later\nA=1\n" + NEW_LUA),
    ("a comment without a space", "PluginDir=/stock#:/old\n",
     DIR_MARK + "PluginDir=/ours:/stock#:/old\n" + NEW_LUA),
    ("quotes", 'PluginDir="/stock:/a b"\nJobSubmitPlugins=""\n',
     DIR_MARK + 'PluginDir="/ours:/stock:/a b"\n' + LUA_MARK + 'JobSubmitPlugins="lua"\n'),
    ("keys in comments only", "#PluginDir=/stock\n # JobSubmitPlugins=lua\n",
     "#PluginDir=/stock\n # JobSubmitPlugins=lua\n" + NEW),
    ("a key as another one's value", "A=PluginDir=/x\nNodeName=n JobSubmitPlugins=x\n",
     "A=PluginDir=/x\nNodeName=n JobSubmitPlugins=x\n" + NEW),
    ("a key in a line that is continued", "A=1 \\\nPluginDir=/x\nB=2\n",
     "A=1 \\\nPluginDir=/x\nB=2\n" + NEW),
    ("a comment that ends in a backslash", "# A \\\nPluginDir=/stock\n",
     "# A \\\n" + DIR_MARK + "PluginDir=/ours:/stock\n" + NEW_LUA),
    ("an escaped #", "A=\\#1 \\\\# x\nPluginDir=/stock\n",
     "A=\\#1 \\\\# x\n" + DIR_MARK + "PluginDir=/ours:/stock\n" + NEW_LUA),
    ("given twice: the last counts", "PluginDir=/old\nPluginDir=/stock\nB=1\n",
     "PluginDir=/old\n" + DIR_MARK + "PluginDir=/ours:/stock\nB=1\n" + NEW_LUA),
    ("bytes that are no text", "# \udcff\nPluginDir=/st\udcffock\n",
     "# \udcff\n" + DIR_MARK + "PluginDir=/ours:/st\udcffock\n" + NEW_LUA),
    ("lines as Windows ends them", "A=1\r\nJobSubmitPlugins=x\r\n",
     "A=1\r\n" + LUA_MARK.replace("\n", "\r\n") + "JobSubmitPlugins=x,lua\r\n"
     + NEW_DIR.replace("\n", "\r\n")),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), named(WRITTEN))
def test_enabled_and_as_before(before, after):
    conf = of(before)
    texts = edits.enabled(conf, SELECT)
    assert texts == {MAIN: after}
    there = of(after)
    assert edits.entries(there.last(PLUGIN_DIR))[0] == "/ours"
    assert edits.names_lua(there)
    assert edits.enabled(there, SELECT) == {MAIN: after}
    assert edits.disabled(there) == {MAIN: before}
    assert edits.disabled(conf) == {MAIN: before}


def test_a_key_is_changed_in_the_file_where_it_counts():
    main = "PluginDir=/old\nInclude more.conf\n"
    included = "JobSubmitPlugins=x\nPluginDir=/stock"
    texts = edits.enabled(of(main, included), SELECT)
    assert texts == {
        MAIN: main,
        INCLUDED: f"{LUA_MARK}JobSubmitPlugins=x,lua\n{DIR_MARK}PluginDir=/ours:/stock",
    }
    assert edits.disabled(parse(MAIN, texts.__getitem__)) == {MAIN: main, INCLUDED: included}
    # Behind the included file Slurm takes this one.
    texts = edits.enabled(of(main + "PluginDir=/last\n", included), SELECT)
    assert texts[MAIN] == f"{main}{DIR_MARK}PluginDir=/ours:/last\n"


@pytest.mark.parametrize(
    "line",
    [
        "include\tmore.conf",
        "Include \\\n  more.conf",
        "INCLUDE /etc/slurm/more.conf # x",
        "ClusterName=Mo\nInclude %cre.conf",
    ],
)
def test_included_files_are_found_as_slurm_finds_them(line):
    conf = of(f"{line}\n", "PluginDir=/stock\n")
    assert conf.last(PLUGIN_DIR).where == "/etc/slurm/more.conf, line 1"


def test_files_that_include_each_other_again_and_again_are_refused():
    """Each twice the next one: 2^30 files if nobody counted."""
    texts = {Path(f"/etc/slurm/{i}"): f"Include {i + 1}\nInclude {i + 1}\n" for i in range(30)}
    with pytest.raises(PluginError, match="/etc/slurm/0: includes more than 1000 files"):
        parse(Path("/etc/slurm/0"), (texts | {Path("/etc/slurm/30"): ""}).__getitem__)


def test_an_include_behind_a_space_is_none():
    assert of(" Include more.conf\n", "PluginDir=/stock\n").last(PLUGIN_DIR) is None


REFUSED = [
    ("an operator", "PluginDir+=/x\n", r"line 1: read 'PluginDir\+=/x', expected PluginDir=VALUE"),
    ("no value", "A=1\nPluginDir=\n", "line 2: read 'PluginDir=', expected PluginDir=VALUE alone"),
    ("a second key", "PluginDir=/x B=1\n", "expected PluginDir=VALUE alone on its line"),
    ("a quote that stays open", 'PluginDir="/x\n', "expected PluginDir=VALUE alone"),
    ("a quote inside", 'PluginDir="/x":/y\n', "expected PluginDir=VALUE alone"),
    ("joined lines", "PluginDir=/x:\\\n/y\n", "line 1: PluginDir with a backslash"),
    ("joined lines behind others", "A=1\n\\\nPluginDir=/x\n", "line 2: PluginDir with a backslash"),
    ("an include of itself", "Include slurm.conf\n", "includes itself, or deeper"),
    ("an include without ClusterName", "Include %c.conf\n", "%c stands for ClusterName"),
    ("an include of many", "Include conf.d/*.conf\n", "no pattern of names"),
    ("ours behind another", "PluginDir=/stock:/ours\n", "line 1: read '/stock:/ours', expected"),
    ("a mark without its line", f"{DIR_MARK}A=1\n",
     "slurm.conf, line 1: expected PluginDir with /ours in the next line"),
    ("a mark at the end", f"A=1\n{LUA_MARK}", "line 2: expected JobSubmitPlugins with lua"),
    ("a mark of another entry", f"{DIR_MARK}PluginDir=/other:/stock\n", "line 1: expected"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), named(REFUSED))
def test_what_cannot_be_told_is_refused(text, words):
    with pytest.raises(PluginError, match=words):
        edits.enabled(of(text), SELECT)


#: Who changed the enabled file meanwhile, and what disabling leaves.
MEANWHILE = [
    ("another entry behind lua", "JobSubmitPlugins=throttle\n",
     ("throttle,lua", "throttle,lua,cray"), "JobSubmitPlugins=throttle,cray\n"),
    ("lua alone is left", "JobSubmitPlugins=throttle\n", ("throttle,lua", "lua"), ""),
    ("an entry beside a lua of ours", "", ("=lua", "=lua,cray"), "JobSubmitPlugins=cray\n"),
    ("a directory of the site's", "", ("/ours:/stock", "/ours:/site:/stock"),
     "PluginDir=/site:/stock\n"),
    ("one before ours", "PluginDir=/stock\n", ("/ours:/stock", "/site:/ours:/stock"),
     "PluginDir=/site:/stock\n"),
    ("ours by hand, too", "PluginDir=/stock\n", ("/ours:/stock", "/ours:/ours:/stock"),
     "PluginDir=/ours:/stock\n"),
    ("more lines", "A=1\n", ("A=1", "A=2\nB=3"), "A=2\nB=3\n"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "change", "after"), named(MEANWHILE))
def test_only_what_was_put_in_is_taken_out(before, change, after):
    text = edits.enabled(of(before), SELECT)[MAIN]
    assert change[0] in text
    assert edits.disabled(of(text.replace(*change)))[MAIN] == after


def test_what_is_wanted_may_change():
    """Another directory, or slots in place of select: what was put in before goes first."""
    before = "PluginDir=/stock\n"
    text = edits.enabled(of(before), SELECT)[MAIN]
    moved = edits.enabled(of(text), Wanted("/new", "/stock"))[MAIN]
    assert moved == f"{DIR_MARK}PluginDir=/ours:/stock\n".replace("/ours", "/new") + NEW_LUA
    slots = edits.enabled(of(moved), Wanted(None, "/stock"))[MAIN]
    assert slots == before + NEW_LUA
    assert edits.enabled(of(slots), Wanted(None, "/stock"))[MAIN] == slots


def test_slots_leave_a_plugin_dir_alone():
    text = "PluginDir=/ours:/stock\nJobSubmitPlugins=lua\n"
    assert edits.enabled(of(text), Wanted(None, "/stock")) == {MAIN: text}


def test_bytes_are_read_and_written_as_they_are(tmp_path):
    raw = bytes(set(range(1, 256))) + b"\r\nPluginDir=/x\r\n"
    (tmp_path / "slurm.conf").write_bytes(raw)
    assert store(load(tmp_path / "slurm.conf")) == raw


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "slurm.conf"
    with pytest.raises(PluginError, match=r"slurm.conf: cannot be read: No such file"):
        parse(path)
    os.mkfifo(path)
    with pytest.raises(PluginError, match=r"slurm.conf: expected a plain file"):
        parse(path)
    path.unlink()
    path.write_bytes(b"A=1\0\nPluginDir=/x\n")
    with pytest.raises(PluginError, match="NUL byte"):
        parse(path)
    path.write_text("A=1\nInclude gone.conf\n")
    with pytest.raises(PluginError, match=r"gone.conf: .* \(included in .*slurm.conf, line 2\)"):
        parse(path)


def test_the_value_that_counts_is_the_last(tmp_path):
    conf = of("JobSubmitPlugins=lua\nInclude more.conf\n", "JobSubmitPlugins=x\n")
    assert not edits.names_lua(conf)
    assert conf.last(JOB_SUBMIT).path == INCLUDED
