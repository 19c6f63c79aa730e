"""`gputopo enable` and `disable` on an installation made in a directory: all of it or nothing."""

import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from commands_in_tests import refused, run
from machines_in_tests import named
from played_site import PlayedSite, in_slots_mode, plugin_file

from slurm_plugin.base import whole_file
from slurm_plugin.config.settings import SAMPLE
from slurm_plugin.doctor import engine, installation, slurms_lua
from slurm_plugin.enabling import apply
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.slurm import choose, slurm_conf

TEXT = b"ClusterName=c\r\nInclude more.conf\nJobSubmitPlugins=throttle # \xff"
MORE = b"PluginDir=%s/stock\n"
BACKUP = re.compile(r".*\.gputopo-\d{8}-\d{6}(-\d+)?$")


class Site:
    """A stock site: slurm.conf is a link, PluginDir stands in an included file."""

    def __init__(self, played: PlayedSite) -> None:
        self.played, self.folder = played, played.folder
        self.conf, self.more = self.folder / "real" / "site.conf", self.folder / "slurm/more.conf"
        self.script = played.script
        self.script.unlink()
        self.conf.parent.mkdir()
        self.conf.write_bytes(TEXT)
        self.conf.chmod(0o640)
        self.more.write_bytes(MORE % os.fsencode(self.folder))
        (self.folder / "slurm" / "slurm.conf").symlink_to("../real/site.conf")

    def files(self) -> dict[str, tuple[int, str | bytes]]:
        """Everything in the site's folders: mode, and content or target."""
        found: dict[str, tuple[int, str | bytes]] = {}
        for path in sorted(self.folder.rglob("*")):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[str(path)] = (mode, os.readlink(path))
            elif stat.S_ISREG(mode):
                found[str(path)] = (mode, path.read_bytes())
        return found

    @property
    def argv(self) -> list[str]:
        """Of `gputopo enable` here."""
        return ["enable", "--config", str(self.played.config), "--plugin-dir",
                str(self.folder / "ours")]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    played = PlayedSite(tmp_path, monkeypatch)
    monkeypatch.setattr(choose, "client", lambda settings: played.slurm)
    monkeypatch.setattr(slurms_lua, "obstacle", lambda folders: None)
    return Site(played)


def test_without_apply_the_edits_are_shown_and_nothing_is_changed(site):
    before = site.files()
    said = run(*site.argv)
    assert "+JobSubmitPlugins=throttle,lua # \\udcff" in said
    assert f"+PluginDir={site.folder}/ours:{site.folder}/stock" in said
    assert f"link {site.script} -> " in said
    assert said.endswith("nothing was changed: gputopo enable --apply does it\n")
    assert site.files() == before


def test_enabled_and_disabled_every_byte_is_as_before(site):
    before = site.files()
    said = run(*site.argv, "--apply")
    assert f"{site.folder}/ours, empty but here" in said
    assert "next: systemctl restart slurmctld; gputopo doctor\n" in said
    assert site.conf.read_bytes() == TEXT.replace(
        b"JobSubmitPlugins=throttle",
        b"# gputopo enable put lua into the next line; gputopo disable takes it out\r\n"
        b"JobSubmitPlugins=throttle,lua",
    )
    assert site.more.read_bytes().endswith(
        b"\nPluginDir=%b/ours:%b/stock\n" % ((os.fsencode(site.folder),) * 2)
    )
    assert stat.S_IMODE(site.conf.stat().st_mode) == 0o640
    assert site.script.resolve() == Path(__file__).parents[3] / "lua_bridge" / "job_submit.lua"
    there = site.files()
    new = there.keys() - before.keys() - {str(site.script)}
    assert len(new) == 2
    assert all(map(BACKUP.match, new))
    assert {there[name] for name in new} == {before[str(site.conf)], before[str(site.more)]}

    assert run(*site.argv, "--apply").startswith("nothing to do")
    assert site.files() == there
    assert "nothing was changed" in run("disable")
    assert site.files() == there
    assert f"done: {site.conf}: as before enable, byte for byte" in run("disable", "--apply")
    assert site.files() == before
    assert run("disable", "--apply").startswith("nothing to do")


def test_a_backup_stays_where_somebody_changed_the_file_meanwhile(site):
    run(*site.argv, "--apply")
    site.conf.write_bytes(site.conf.read_bytes() + b"\nMore=1\n")
    assert f"done: {site.conf}: the old one is {site.conf}.gputopo-" in run("disable", "--apply")
    assert site.conf.read_bytes() == TEXT + b"\nMore=1\n"
    backups = [path.read_bytes() for path in site.conf.parent.iterdir() if BACKUP.match(str(path))]
    assert TEXT in backups
    assert len(backups) == 2


def test_with_slots_plugin_dir_stays(site):
    in_slots_mode(site.played)
    more = site.more.read_bytes()
    said = run(*site.argv, "--apply")
    assert "empty but here" not in said
    assert (b"throttle,lua" in site.conf.read_bytes(), site.more.read_bytes()) == (True, more)
    assert site.script.is_symlink()


def test_slots_in_place_of_select_take_the_plugin_out(site):
    more = site.more.read_bytes()
    run(*site.argv, "--apply")
    in_slots_mode(site.played)
    run(*site.argv, "--apply")
    assert (b"throttle,lua" in site.conf.read_bytes(), site.more.read_bytes()) == (True, more)


def slurm_says(**values: str) -> Callable[[Site], object]:
    return lambda site: site.played.slurm.values.update(values)


def a_script(text: str) -> Callable[[Site], object]:
    return lambda site: site.script.write_text(text)


def no_lua_socket(site: Site) -> None:
    slurms_lua.obstacle = lambda folders: "module 'socket.unix' not found"


def another_release(site: Site) -> None:
    plugin_file(site.folder / "ours" / "select_cons_tres.so", (25, 5, 3))


#: What is wrong, how it comes about, words of what is said.
WRONG: list[tuple[str, Callable[[Site], object], str]] = [
    ("no gputopo.yaml", lambda site: site.played.config.unlink(), "gputopo init shows"),
    ("a wrong gputopo.yaml", lambda site: site.played.config.write_text("sockte: /x"),
     "sockte: unknown key"),
    ("a plugin for another release", another_release, "is built for 25.05.3, slurmctld is 24.11.5"),
    ("no plugin of ours", lambda site: (site.folder / "ours/select_cons_tres.so").unlink(),
     "no select_cons_tres.so of ours in PluginDir"),
    ("no plugin of Slurm's", lambda site: (site.folder / "stock/select_cons_tres.so").unlink(),
     "needs Slurm's own behind it"),
    ("another select plugin", slurm_says(SelectType="select/linear"), "SelectType is select/lin"),
    ("a job_submit.lua of the site's", a_script("return slurm.SUCCESS"),
     "is there and does not load ours"),
    ("a link to nowhere", lambda site: site.script.symlink_to("gone.lua"), "does not load ours"),
    ("no LuaSocket", no_lua_socket, "the bridge would not work: module 'socket.unix'"),
    ("the bridge set to slots", lambda site: site.played.bridge.write_text("enforcement = slots"),
     "gputopo-bridge.conf says enforcement = slots"),
    ("a line that Slurm cannot read", lambda site: site.conf.write_bytes(b"PluginDir=\n"),
     "read 'PluginDir=', expected PluginDir=VALUE"),
    ("a slurm.conf on another host", slurm_says(SLURM_CONF="/run/other/slurm.conf"),
     "/run/other/slurm.conf: cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("breaks", "words"), named(WRONG))
def test_nothing_is_changed_unless_all_would_work(site, monkeypatch, breaks, words):
    monkeypatch.setattr(slurms_lua, "obstacle", lambda folders: None)
    breaks(site)
    before = site.files()
    assert words in " ".join(run(*site.argv, "--apply", code=2).split())
    assert site.files() == before


def test_a_job_submit_lua_that_calls_ours_is_good(site):
    """And so is a copy of the modules beside it; whoever disables reads that both stay."""
    site.script.write_text('local gputopo = require("gputopo.bridge")')
    run(*site.argv, "--apply")
    assert "gputopo/ is a copy" not in run("disable", "--apply", code=1)
    assert "require" in site.script.read_text()
    assert site.conf.read_bytes() == TEXT
    copy = site.script.parent / "gputopo"
    copy.mkdir()
    (copy / "bridge.lua").touch()
    said = run("disable", "--apply", code=1)
    assert f"{site.script} loads ours" in said
    assert f"rm -r {copy}" in said
    site.script.write_text("return slurm.SUCCESS -- not gputopo\n")
    assert "loads ours" not in run("disable", "--apply", code=1)
    (copy / "bridge.lua").unlink()
    assert run("disable", "--apply").startswith("nothing to do")


def test_a_script_with_which_slurmctld_would_not_start_is_refused(site, monkeypatch):
    site.script.write_text('local gputopo = require("gputopo.bridge")\nretrun 0\n')
    why = f"{site.script}:2: syntax error near '0'"
    monkeypatch.setattr(slurms_lua, "mistake_in", lambda script, folders: why)
    before = site.files()
    assert why in " ".join(run(*site.argv, "--apply", code=2).split())
    assert site.files() == before
    monkeypatch.setattr(engine, "may_read", lambda path, uid: path != site.script)
    monkeypatch.setattr(engine, "slurm_user", lambda values: 64030)
    assert "cannot be read by SlurmUser: slurmctld does not start" in run(*site.argv, code=2)
    assert site.files() == before


def test_whoever_disables_while_slurmctld_is_down_reads_which_file_is_looked_at(monkeypatch):
    monkeypatch.delenv("SLURM_CONF", raising=False)

    def down(settings: object) -> None:
        raise SlurmError("down")

    monkeypatch.setattr(choose, "client", down)
    monkeypatch.setattr(installation, "SLURM_CONF", "/nowhere/slurm.conf")
    said = run("disable", code=2)
    assert "note: slurmctld does not say which slurm.conf it reads: /nowhere/slurm.conf" in said


def test_whoever_disables_reads_which_lines_call_programs_of_ours(site):
    run(*site.argv, "--apply")
    calls = "EpilogSlurmctld=/usr/lib/slurm-gputopo/lua_bridge/epilog-slurmctld"
    site.conf.write_bytes(site.conf.read_bytes() + f"\n{calls}\n#{calls}\n".encode())
    said = run("disable", "--apply", code=1)
    assert said.count("EpilogSlurmctld names /usr/lib/slurm-gputopo/lua_bridge/epilog-") == 1
    assert site.conf.read_bytes().count(calls.encode()) == 2


def test_a_link_to_another_installation_of_ours_is_named(site):
    other = site.folder / "venv" / "job_submit.lua"
    other.parent.mkdir()
    other.write_text('require("gputopo.bridge")')
    site.script.symlink_to(other)
    assert f"{site.script} loads ours" in run("disable", code=1)
    assert site.script.is_symlink()


@pytest.mark.parametrize("folder", ["relative", "/a b", "/a:b", "/a#b", '/a"b', "/a\nb", "/a\\b"])
def test_a_directory_that_slurm_conf_cannot_name_is_refused(site, folder):
    said = refused(*site.argv[:-1], folder, "--apply")
    assert "expected an absolute path of letters" in said


def test_slurm_down(site, monkeypatch):
    """Enabling needs to know which Slurm it is; disabling does not."""
    run(*site.argv, "--apply")

    def down() -> None:
        raise SlurmError("scontrol: no answer within 10 s; is slurmctld up?")

    monkeypatch.setattr(site.played.slurm, "config", down)
    assert "is slurmctld up?" in refused(*site.argv)
    monkeypatch.setenv("SLURM_CONF", str(site.folder / "slurm" / "slurm.conf"))
    run("disable", "--apply")
    assert site.conf.read_bytes() == TEXT


class Power(BaseException):
    """What no handler of errors expects."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Power()])
@pytest.mark.parametrize("at", [1, 2], ids=["the first file", "the second file"])
def test_what_is_half_done_is_undone(site, monkeypatch, error, at):
    """It breaks off behind the backup, when a file is to be put in its place."""
    before, calls, replace = site.files(), [], os.replace

    def breaks(*paths: object, **folders: object) -> None:
        calls.append(paths)
        if len(calls) == at:
            raise error
        replace(*paths, **folders)

    monkeypatch.setattr(os, "replace", breaks)
    if isinstance(error, OSError):
        said = run(*site.argv, "--apply", code=2)
        assert "cannot be written: No space left on device" in said
    else:
        with pytest.raises(Power):
            run(*site.argv, "--apply")
    assert len(calls) >= at
    assert site.files() == before


def test_a_file_that_changes_meanwhile_is_left_alone(site, monkeypatch):
    back_up = apply._back_up

    def and_edit(*args: object) -> Path:
        site.conf.write_bytes(TEXT + b"\n")
        return back_up(*args)

    monkeypatch.setattr(apply, "_back_up", and_edit)
    assert "changed meanwhile" in run(*site.argv, "--apply", code=2)
    assert site.conf.read_bytes() == TEXT + b"\n"
    assert not os.path.lexists(site.script)


def test_what_a_killed_call_left_is_completed_or_removed(site):
    """The link is made first: slurmctld does not start while it is missing and lua is named."""
    link = Path(__file__).parents[3] / "lua_bridge" / "job_submit.lua"
    site.script.symlink_to(link)
    run("disable", "--apply")
    assert not os.path.lexists(site.script)
    site.script.symlink_to(link)
    run(*site.argv, "--apply")
    assert b"throttle,lua" in site.conf.read_bytes()


def test_what_somebody_else_wrote_stays_and_is_named(site):
    """The lines of ours that no call of enable put there."""
    site.more.write_bytes(
        b"PluginDir=%b/ours:%b/stock\nJobSubmitPlugins=lua\n" % ((os.fsencode(site.folder),) * 2)
    )
    site.conf.write_bytes(b"Include more.conf\n")
    site.script.symlink_to(Path(__file__).parents[3] / "lua_bridge" / "job_submit.lua")
    before = site.files()
    said = run("disable", "--apply", code=1)
    assert f"more.conf, line 1 names {site.folder}/ours, where our select plugin is" in said
    assert "more.conf, line 2 names lua, so job_submit.lua stays linked" in said
    assert site.files() == before


def test_a_file_keeps_owner_mode_and_attributes(tmp_path):
    path, link = tmp_path / "slurm.conf", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o604)
    if os.getuid() == 0:
        os.chown(path, 12345, 54321)
    with suppress(OSError):  # where the file system has none
        os.setxattr(path, "user.site", b"x")
    old, names = path.stat(), os.listxattr(path)
    link.symlink_to(path)
    whole_file.replace_contents(link, b"new")
    new = path.stat()
    assert (link.is_symlink(), path.read_bytes()) == (True, b"new")
    assert (new.st_mode, new.st_uid, new.st_gid) == (old.st_mode, old.st_uid, old.st_gid)
    assert os.listxattr(path) == names


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root refuses")
def test_root_writes_through_no_link_in_a_folder_of_slurms(site):
    """Whoever has SlurmUser could link slurm.conf to any file of root's."""
    os.chown(site.folder / "slurm", 12345, 12345)
    before = site.files()
    said = run(*site.argv, "--apply", code=2)
    assert "slurm.conf is a link that others than root may have put there" in said
    assert site.files() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root refuses")
def test_root_reads_and_copies_no_file_that_slurms_link_names(tmp_path):
    """The link could stand there for the moment of reading, and the copy tell what it led to."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    (tmp_path / "secret").write_text("root's")
    path = folder / "slurm.conf"
    path.symlink_to(tmp_path / "secret")
    assert slurm_conf.load(path) == "root's"  # root's own link
    os.chown(folder, 12345, 12345)
    with pytest.raises(PluginError, match="is a link that others than root may have put there"):
        slurm_conf.load(path)
    path.unlink()
    path.write_text("A=1\n")
    with pytest.raises(PluginError, match="changed meanwhile"):
        apply.write([apply.Change(path, "root's", "ours")], datetime(2026, 1, 1))
    assert list(folder.iterdir()) == [path]


def test_no_copy_is_made_of_a_file_that_changed_meanwhile(tmp_path, monkeypatch):
    path = tmp_path / "slurm.conf"
    path.write_text("A=1\n")
    copied = []
    monkeypatch.setattr(apply, "_back_up", lambda *args: copied.append(args))
    with pytest.raises(PluginError, match="changed meanwhile"):
        apply.write([apply.Change(path, "A=2\n", "A=3\n")], datetime(2026, 1, 1))
    assert not copied


def test_the_sample_is_a_good_configuration():
    first, second = run("config", "check", str(SAMPLE)).splitlines()
    assert first == f"{SAMPLE}: 0 nodes, 1 rules"
    assert second.startswith(f"{SAMPLE}: no nodes are declared, so Slurm places every job")
    assert "{mode: observe}" in SAMPLE.read_text()


def test_lua_socket_is_looked_for_by_the_lua_of_slurmctld(tmp_path):
    assert slurms_lua.obstacle([tmp_path]) == "no directory of PluginDir has job_submit_lua.so"
    plugin = tmp_path / slurms_lua.PLUGIN
    plugin.write_bytes(b"\x7fELF..liblua-none.so\0liblua5.9.so.0\0")
    why = slurms_lua.obstacle([tmp_path / "other", tmp_path])
    assert why == "none of liblua-none.so, liblua5.9.so.0 can be loaded"


def test_nobodys_modules_are_run_where_root_stands(tmp_path, monkeypatch):
    """Python looks for modules where it is started, and so does Lua."""
    (tmp_path / slurms_lua.PLUGIN).write_bytes(b"liblua5.9.so.0\0")
    (tmp_path / "ctypes.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert "can be loaded" in str(slurms_lua.obstacle([tmp_path]))
    assert not (tmp_path / "ran").exists()


def test_a_lua_without_lua_socket_says_so(tmp_path, monkeypatch):
    (tmp_path / slurms_lua.PLUGIN).write_bytes(b"liblua5.1.so.0\0liblua5.4.so.0\0")
    why = slurms_lua.obstacle([tmp_path])
    if why and "can be loaded" in why:
        pytest.skip("there is no library of Lua on this machine")
    monkeypatch.setenv("LUA_CPATH", "/nowhere/?.so")
    monkeypatch.setenv("LUA_PATH", "/nowhere/?.lua")
    assert "module 'socket.unix' not found" in str(slurms_lua.obstacle([tmp_path]))


def test_a_script_is_read_and_not_run_by_the_lua_of_slurmctld(tmp_path):
    (tmp_path / slurms_lua.PLUGIN).write_bytes(b"liblua5.1.so.0\0liblua5.4.so.0\0")
    if "can be loaded" in str(slurms_lua.obstacle([tmp_path])):
        pytest.skip("there is no library of Lua on this machine")
    script = tmp_path / 'it\'s "mine".lua'
    script.write_text(f"io.open({str(tmp_path / 'ran')!r}, 'w')\nreturn slurm.SUCCESS\n")
    assert slurms_lua.mistake_in(script, [tmp_path]) is None
    script.write_text("retrun slurm.SUCCESS\n")
    assert ":1: " in str(slurms_lua.mistake_in(script, [tmp_path]))
    assert not (tmp_path / "ran").exists()


def test_where_no_lua_can_be_asked_no_mistake_is_known(tmp_path):
    assert slurms_lua.mistake_in(tmp_path / "job_submit.lua", [tmp_path]) is None
