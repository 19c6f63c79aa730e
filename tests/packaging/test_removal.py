"""Packages that go while Slurm still names what is theirs: the maintainer scripts, on a made root.

dpkg itself removes and purges below a folder of its own, in which nothing of this machine is
touched: DPKG_ROOT names it to the scripts.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
PLUGINS = "usr/lib/slurm-gputopo/slurm"
NAMED = f"PluginDir=/{PLUGINS}:/usr/lib/slurm\n"
SCONTROL = "#!/bin/sh\necho 'Configuration data'\necho '{line}'\n"


def script(name: str) -> str:
    """A maintainer script as debian/rules has debhelper write it, without debhelper's own part."""
    text = (PACKAGING / "debian" / name).read_text()
    rules = (PACKAGING / "debian" / "rules").read_text()
    for token, path in re.findall(r"--define (\w+)=@packaging/(\S+)", rules):
        text = text.replace(f"#{token}#", (PACKAGING / path).read_text())
    text = text.replace("#DEBHELPER#", "")
    assert not re.search(r"#[A-Z_]+#", text)
    return text


class Root:
    """The files of a host, and Slurm's command there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder / "root", folder / "bin"
        (self.folder / PLUGINS).mkdir(parents=True)
        self.slurm_says("PluginDir = /usr/lib/slurm")

    def slurm_says(self, line: str) -> None:
        self.bin.mkdir(exist_ok=True)
        (self.bin / "scontrol").write_text(SCONTROL.format(line=line))
        (self.bin / "scontrol").chmod(0o755)

    def put(self, path: str, text: str = NAMED) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, target: str) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    @property
    def environ(self) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "PATH": path, "DPKG_ROOT": str(self.folder), "LC_ALL": "C"}

    def sh(self, name: str, word: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", script(name), name, word]
        return subprocess.run(
            words, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


Makes = Callable[[Root], object]


def a_process(*words: str, environ: str = "") -> Makes:
    def make(root: Root) -> None:
        root.put("/proc/17/cmdline", "\0".join((*words, "")))
        root.put("/proc/17/environ", environ)

    return make


def files(**texts: str) -> Makes:
    """Paths and texts; the text "" is the line that names us."""

    def make(root: Root) -> None:
        for path, text in texts.items():
            root.put(path, text or NAMED)

    return make


def both(*makes: Makes) -> Makes:
    return lambda root: [make(root) for make in makes]


IN_SRV = files(**{"/srv/slurm/slurm.conf": ""})
#: Where it is named, how, and which file is to be said.
WHERE: list[tuple[str, Makes, str]] = [
    ("slurm.conf", files(**{"/etc/slurm/slurm.conf": ""}), "/etc/slurm/slurm.conf"),
    ("another cluster's", files(**{"/etc/slurm-b/slurm.conf": ""}), "/etc/slurm-b/slurm.conf"),
    ("below /usr/local", files(**{"/usr/local/etc/slurm/slurm.conf": ""}), "/usr/local/etc/slurm/"),
    ("in other letters, quoted",
     files(**{"/etc/slurm/slurm.conf": f' plugindir = "/usr/lib/slurm:/{PLUGINS}/" # ours\n'}),
     "/etc/slurm/slurm.conf"),
    ("under a name that links to it",
     both(files(**{"/etc/slurm/slurm.conf": "PluginDir=/usr/lib/slurm:/opt/gpus\n"}),
          lambda root: root.link("/opt/gpus", str(root.folder / PLUGINS))),
     "/etc/slurm/slurm.conf"),
    ("included beside slurm.conf",
     files(**{"/etc/slurm/slurm.conf": "A=1\ninclude  parts/one\n", "/etc/slurm/parts/one": ""}),
     "/etc/slurm/parts/one"),
    ("included by an included file, beside slurm.conf again",
     files(**{"/etc/slurm/slurm.conf": "Include /srv/parts/one\r\n",
              "/srv/parts/one": "Include two\n", "/etc/slurm/two": ""}),
     "/etc/slurm/two"),
    ("included by the cluster's name",
     files(**{"/etc/slurm/slurm.conf": "ClusterName=x\nInclude /srv/a b/%c.x\n", "/srv/x.x": "A=1",
              "/etc/slurm/more.conf": "Include /srv/%c/plugins\n", "/srv/x/plugins": ""}),
     "/srv/x/plugins"),
    ("slurmd -f", both(IN_SRV, a_process("/usr/sbin/slurmd", "-D", "-f", "/srv/slurm/slurm.conf")),
     "/srv/slurm/slurm.conf"),
    ("slurmctld -Df in one word", both(IN_SRV, a_process("slurmctld", "-Df/srv/slurm/slurm.conf")),
     "/srv/slurm/slurm.conf"),
    ("slurmd -f with a name in its own folder",
     both(IN_SRV, a_process("slurmd", "-f", "slurm.conf"),
          lambda root: root.link("/proc/17/cwd", "/srv/slurm")),
     "/srv/slurm/slurm.conf"),
    ("a daemon's environment",
     both(IN_SRV, a_process("/sbin/slurmd", environ="A=1\0SLURM_CONF=/srv/slurm/slurm.conf\0")),
     "/srv/slurm/slurm.conf"),
    ("a unit", both(IN_SRV, files(**{"/usr/lib/systemd/system/slurmd.service":
        "[Service]\nExecStart=/usr/sbin/slurmd -D -f /srv/slurm/slurm.conf $OPTIONS\n"})),
     "/srv/slurm/slurm.conf"),
    ("what an administrator added to a unit",
     both(IN_SRV, files(**{"/etc/systemd/system/slurmctld.service.d/our.conf":
        '[Service]\nEnvironment="A=1" "SLURM_CONF=/srv/slurm/slurm.conf"\n'})),
     "/srv/slurm/slurm.conf"),
    ("a unit's file of its environment",
     both(IN_SRV, files(**{
         "/etc/systemd/system/slurmctld.service.d/our.conf":
             "[Service]\nEnvironmentFile=-/srv/slurm/env\n",
         "/srv/slurm/env": 'SLURM_CONF="/srv/slurm/slurm.conf"\n'})),
     "/srv/slurm/slurm.conf"),
    ("/etc/default",
     both(IN_SRV, files(**{"/etc/default/slurmd": 'SLURMD_OPTIONS="-f /srv/slurm/slurm.conf"\n'})),
     "/srv/slurm/slurm.conf"),
    ("what slurmctld has read",
     both(IN_SRV, lambda root: root.slurm_says("SLURM_CONF = /srv/slurm/slurm.conf")),
     "/srv/slurm/slurm.conf"),
    ("a configless node's files", files(**{"/var/spool/slurmd/n1/conf-cache/slurm.conf": ""}),
     "/var/spool/slurmd/n1/conf-cache/slurm.conf"),
    ("a configless node's link",
     both(files(**{"/data/slurmd/conf-cache/slurm.conf": ""}),
          lambda root: root.link("/run/slurm/conf", "../../data/slurmd/conf-cache")),
     "/run/slurm/conf/slurm.conf"),
    ("slurmctld that runs", lambda root: root.slurm_says(f"PluginDir  = /{PLUGINS}:/usr/lib/slurm"),
     "the running slurmctld (scontrol show config)"),
]  # fmt: skip


@pytest.mark.parametrize(("makes", "who"), [pytest.param(*row, id=name) for name, *row in WHERE])
def test_purge_leaves_a_directory_that_slurm_needs_and_says_who_names_it(root, makes, who):
    makes(root)
    root.sh("slurm-gputopo-node.postinst", "configure")
    done = root.sh("slurm-gputopo-node.postrm", "purge")
    assert done.returncode == 0, done.stderr
    assert (root.folder / PLUGINS / "README").is_file()
    [line] = done.stderr.splitlines()
    assert who in line
    assert f"rm -r /{PLUGINS}" in line


#: What is no reason to keep it.
NOWHERE: list[tuple[str, Makes]] = [
    ("nothing at all", files()),
    ("comments and copies",
     files(**{"/etc/slurm/slurm.conf": f"#PluginDir=/{PLUGINS}\nPluginDir=/usr/lib/slurm # {NAMED}",
              "/etc/slurm/slurm.conf.gputopo-20260101-000000": ""})),
    ("another file of ours", files(**{"/etc/slurm/plugstack.conf":
        "optional /usr/lib/slurm-gputopo/spank/gputopo.so\n"})),
    ("a process that is not Slurm's",
     both(IN_SRV, a_process("/bin/x", "-f", "/srv/slurm/slurm.conf"))),
    ("files that are none", both(
        files(**{"/etc/slurm/slurm.conf": "Include pipe\nInclude gone\nInclude slurm.conf\n"}),
        lambda root: [os.mkfifo(root.folder / "etc/slurm" / name) for name in ("pipe", "x.conf")])),
    ("a name that sh would run", files(**{"/etc/slurm/slurm.conf":
        "Include $(touch$IFS/ran)\nInclude `x`\nInclude -x\nInclude ../../../../etc/*\n"})),
]  # fmt: skip


@pytest.mark.parametrize("makes", [pytest.param(makes, id=name) for name, makes in NOWHERE])
def test_purge_takes_a_directory_that_nobody_names(root, makes):
    makes(root)
    root.sh("slurm-gputopo-node.postinst", "configure")
    assert "gputopo disable --apply" in (root.folder / PLUGINS / "README").read_text()
    root.sh("slurm-gputopo-node.postrm", "remove")
    assert (root.folder / PLUGINS).is_dir()
    done = root.sh("slurm-gputopo-node.postrm", "purge")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (root.folder / "usr/lib/slurm-gputopo").exists()


def test_purge_leaves_what_others_put_there(root):
    root.sh("slurm-gputopo-node.postinst", "configure")
    root.put(f"{PLUGINS}/own.so", "x")
    assert root.sh("slurm-gputopo-node.postrm", "purge").returncode == 0
    assert [path.name for path in (root.folder / PLUGINS).iterdir()] == ["own.so"]


LUA = "/usr/lib/slurm-gputopo/lua_bridge"
OWN = f'package.path = "{LUA}/?.lua;" .. package.path\n'
#: What is beside which slurm.conf, the status of prerm, words of what it says.
SCRIPTS: list[tuple[str, Makes, int, str]] = [
    ("a link", lambda root: root.link("/etc/slurm/job_submit.lua", f"{LUA}/job_submit.lua"), 1,
     "gputopo disable --apply --slurm-conf /etc/slurm/slurm.conf"),
    ("a link of another cluster's", both(
        files(**{"/etc/slurm-b/slurm.conf": "A=1\n"}),
        lambda root: root.link("/etc/slurm-b/job_submit.lua", f"{LUA}/job_submit.lua")), 1,
     "gputopo disable --apply --slurm-conf /etc/slurm-b/slurm.conf"),
    ("a link beside slurmctld -f", both(
        IN_SRV, a_process("slurmctld", "-f", "/srv/slurm/slurm.conf"),
        lambda root: root.link("/srv/slurm/job_submit.lua", f"{LUA}/job_submit.lua")), 1,
     "/srv/slurm/job_submit.lua is a link to this package"),
    ("an own script with pcall", files(**{"/etc/slurm/job_submit.lua":
        OWN + 'local found, gputopo = pcall(require, "gputopo.bridge")\n'}), 0,
     "get Slurm's own choice"),
    ("an own script without pcall", files(**{"/etc/slurm/job_submit.lua":
        OWN + 'local gputopo = require("gputopo.bridge")\n'}), 1, "without pcall"),
    ("an own script with a copy", files(**{"/etc/slurm/job_submit.lua":
        'local gputopo = require("gputopo.bridge")\n'}), 0, ""),
    ("a comment", files(**{"/etc/slurm/job_submit.lua": f"-- {OWN}"}), 0, ""),
    ("a pipe", lambda root: (root.put("/etc/slurm/slurm.conf", ""),
                             os.mkfifo(root.folder / "etc/slurm/job_submit.lua")), 0, ""),
    ("none", files(), 0, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("makes", "status", "words"), [pytest.param(*row, id=name) for name, *row in SCRIPTS]
)
def test_the_engine_goes_only_where_slurmctld_starts_without_it(root, makes, status, words):
    makes(root)
    done = root.sh("slurm-gputopo.prerm", "remove")
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    assert len(done.stderr.splitlines()) == bool(words)
    assert root.sh("slurm-gputopo.prerm", "upgrade").returncode == 0


SPANK = "/usr/lib/slurm-gputopo/spank/gputopo.so"
REQUIRED = f"required   {SPANK} numa=off\n"
#: What is where, and the plugstack.conf for which the SPANK plugin stays; "" where it goes.
PLUGSTACKS: list[tuple[str, Makes, str]] = [
    ("required", files(**{"/etc/slurm/plugstack.conf": REQUIRED}), "/etc/slurm/plugstack.conf"),
    ("optional", files(**{"/etc/slurm/plugstack.conf": REQUIRED.replace("required", "optional")}),
     ""),
    ("a comment", files(**{"/etc/slurm/plugstack.conf": f"# {REQUIRED}"}), ""),
    ("another plugin", files(**{"/etc/slurm/plugstack.conf":
        "required /usr/lib/pyxis.so\nrequired private-tmp.so\n"}), ""),
    ("in a folder of parts", files(**{
        "/etc/slurm/plugstack.conf": "include plugstack.conf.d/*\n",
        "/etc/slurm/plugstack.conf.d/gputopo.conf": REQUIRED}),
     "/etc/slurm/plugstack.conf.d/gputopo.conf"),
    ("named in slurm.conf", files(**{
        "/etc/slurm/slurm.conf": "PlugStackConfig = /srv/stack\n", "/srv/stack": REQUIRED}),
     "/srv/stack"),
    ("beside slurmd -f", both(IN_SRV, a_process("slurmd", "-f", "/srv/slurm/slurm.conf"),
                              files(**{"/srv/slurm/plugstack.conf": REQUIRED})),
     "/srv/slurm/plugstack.conf"),
    ("a pipe", lambda root: (root.put("/etc/slurm/slurm.conf", ""),
                             os.mkfifo(root.folder / "etc/slurm/plugstack.conf")), ""),
    ("none", files(), ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("makes", "names"), [pytest.param(*row, id=name) for name, *row in PLUGSTACKS]
)
def test_the_spank_plugin_goes_only_where_jobs_start_without_it(root, makes, names):
    makes(root)
    done = root.sh("slurm-gputopo-spank.prerm", "remove")
    assert done.returncode == bool(names), done.stderr
    assert done.stderr.count("\n") == bool(names)
    assert names in done.stderr
    assert root.sh("slurm-gputopo-spank.prerm", "upgrade").returncode == 0


PROGRAM = "/usr/lib/slurm-gputopo/{}"
#: What is where, the package, and the file that calls one of its programs; "" where none does.
CALLS: list[tuple[str, Makes, str, str]] = [
    ("EpilogSlurmctld", files(**{"/etc/slurm/slurm.conf":
        f"EpilogSlurmctld={PROGRAM.format('lua_bridge/epilog-slurmctld')}\n"}),
     "slurm-gputopo", "/etc/slurm/slurm.conf"),
    ("TaskProlog in an included file", files(**{
        "/etc/slurm/slurm.conf": "Include conf.d/jobs.conf\n", "/etc/slurm/conf.d/jobs.conf":
        f"  taskprolog = {PROGRAM.format('launch/task-prolog')}\n"}),
     "slurm-gputopo-node", "/etc/slurm/conf.d/jobs.conf"),
    ("TaskProlog of loans", files(**{"/etc/slurm/slurm.conf":
        f"TaskProlog={PROGRAM.format('node/task-prolog')}\n"}),
     "slurm-gputopo-node", "/etc/slurm/slurm.conf"),
    ("another package's", files(**{"/etc/slurm/slurm.conf":
        f"EpilogSlurmctld={PROGRAM.format('lua_bridge/epilog-slurmctld')}\n"}),
     "slurm-gputopo-node", ""),
    ("PluginDir", files(**{"/etc/slurm/slurm.conf": NAMED}), "slurm-gputopo", ""),
    ("a comment", files(**{"/etc/slurm/slurm.conf":
        f"#TaskProlog={PROGRAM.format('launch/task-prolog')}\n"}), "slurm-gputopo-node", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("makes", "package", "names"), [pytest.param(*row, id=name) for name, *row in CALLS]
)
def test_programs_that_a_site_calls_stay(root, makes, package, names):
    """Without its EpilogSlurmctld slurmctld does not start, without its TaskProlog no task does."""
    makes(root)
    done = root.sh(f"{package}.prerm", "remove")
    assert done.returncode == bool(names), done.stderr
    assert done.stderr.count("\n") == bool(names)
    assert f"{names} calls" in done.stderr or not names
    assert root.sh(f"{package}.prerm", "upgrade").returncode == 0


CONTROL = """\
Package: {name}
Version: 1
Architecture: all
Maintainer: nobody <nobody@example.invalid>
Description: for a test
"""


class Dpkg:
    """dpkg below a folder, with packages of our maintainer scripts and a file or two."""

    def __init__(self, root: Root, folder: Path) -> None:
        self.root, self.base = root, folder
        for name in ("updates", "info"):
            (root.folder / "var/lib/dpkg" / name).mkdir(parents=True)
        (root.folder / "var/lib/dpkg/status").touch()

    def package(self, name: str, *paths: str) -> Path:
        tree = self.base / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(CONTROL.format(name=name))
        for path in (PACKAGING / "debian").glob(f"{name}.p*"):
            made = tree / "DEBIAN" / path.suffix[1:]
            made.write_text(script(path.name))
            made.chmod(0o755)
        for text in paths:
            (tree / text).parent.mkdir(parents=True, exist_ok=True)
            (tree / text).touch() if "." in text or "bin" in text else (tree / text).mkdir()
        deb = self.base / f"{name}.deb"
        build = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(deb)]
        subprocess.run(build, check=True, capture_output=True)
        return deb

    def __call__(self, *words: str, fails: bool = False) -> str:
        force = "--force-script-chrootless,not-root,bad-path"
        argv = ["dpkg", f"--root={self.root.folder}", force, "--log=/dev/null", *words]
        done = subprocess.run(
            argv,
            env=self.root.environ,
            text=True,
            timeout=60,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert bool(done.returncode) is fails, done.stdout
        return done.stdout

    def has(self, name: str) -> bool:
        words = ["dpkg-query", f"--admindir={self.root.folder}/var/lib/dpkg", "-W"]
        done = subprocess.run(
            [*words, "-f", "${Status}", name], capture_output=True, text=True, check=False
        )
        return done.stdout.endswith(" ok installed")


@pytest.fixture
def dpkg(root: Root, tmp_path: Path) -> Dpkg:
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg is not installed")
    dpkg = Dpkg(root, tmp_path / "packages")
    shutil.rmtree(root.folder / "usr")
    dpkg(
        "-i",
        str(dpkg.package("slurm-gputopo-node", PLUGINS, "usr/bin/gputopo-echo")),
        str(dpkg.package("slurm-gputopo", "usr/bin/gputopo", LUA.lstrip("/") + "/job_submit.lua")),
        str(dpkg.package("slurm-gputopo-select", f"{PLUGINS}/select_cons_tres.so")),
    )
    assert (root.folder / PLUGINS / "select_cons_tres.so").is_file()
    return dpkg


ALL = ("slurm-gputopo-select", "slurm-gputopo-node", "slurm-gputopo")


@pytest.mark.parametrize("order", [ALL, ALL[::-1]], ids=["in order", "in the wrong order"])
def test_dpkg_leaves_the_directory_until_nobody_names_it(root, dpkg, order):
    root.put("/etc/slurm/slurm.conf", "Include gpus\n")
    root.put("/etc/slurm/gpus")
    dpkg("--remove", *order)
    assert [path.name for path in (root.folder / PLUGINS).iterdir()] == ["README"]
    assert "PluginDir of /etc/slurm/gpus names it" in dpkg("--purge", *order)
    assert (root.folder / PLUGINS).is_dir()
    root.put("/etc/slurm/gpus", "PluginDir=/usr/lib/slurm\n")
    dpkg("-i", str(dpkg.base / "slurm-gputopo-node.deb"))
    dpkg("--purge", "slurm-gputopo-node")
    assert not (root.folder / "usr/lib/slurm-gputopo").exists()


@pytest.mark.parametrize("order", [ALL, ALL[::-1]], ids=["in order", "in the wrong order"])
def test_after_a_refusal_the_command_that_it_advises_is_there(root, dpkg, order):
    root.put("/etc/slurm/slurm.conf")
    root.link("/etc/slurm/job_submit.lua", f"{LUA}/job_submit.lua")
    said = dpkg("--purge", *order, fails=True)
    assert "gputopo disable --apply" in said
    assert dpkg.has("slurm-gputopo")
    assert (root.folder / "usr/bin/gputopo").is_file()
    assert (root.folder / LUA.lstrip("/") / "job_submit.lua").is_file()
    assert (root.folder / PLUGINS).is_dir()
    (root.folder / "etc/slurm/job_submit.lua").unlink()
    root.put("/etc/slurm/slurm.conf", "PluginDir=/usr/lib/slurm\n")
    dpkg("--purge", *order)
    assert not any(map(dpkg.has, ALL))
