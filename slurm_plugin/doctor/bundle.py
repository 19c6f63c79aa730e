"""What a report of a fault needs to be understood, in one file, without names and secrets."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from slurm_plugin.base import client
from slurm_plugin.config.sections import DecisionLogConfig, SlurmConfig
from slurm_plugin.config.settings import KEPT, Config, in_force, parse
from slurm_plugin.decide import decision_log
from slurm_plugin.doctor import texts
from slurm_plugin.doctor.checks import examine
from slurm_plugin.doctor.installation import SLURM_CONF, Installation
from slurm_plugin.doctor.placeholders import Placeholders
from slurm_plugin.doctor.secrets import Secrets
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.slurm import choose, slurm_conf
from slurm_plugin.slurm.clients import squeue_table
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.runner import ProcessRunner, Runner, run_bounded

#: Seconds that Slurm's commands may take together, and journalctl.
SLURM_S, JOURNAL_S = 60.0, 10.0
#: Bytes of a part, and of a log that are looked through for one.
MOST_SHOWN, MOST_READ = 1 << 20, 64 << 20
JOURNAL_LINES, LOG_LINES, RECORDS = 1_000, 1_000, 200
#: Of slurm.conf and the files that it includes, together.
MOST_INCLUDED = 4 << 20
#: The folder in the archive.
FOLDER = "gputopo-support"
_UNITS = (
    "gputopo.service",
    "gputopo@*.service",
    "gputopo-donors.service",
    "gputopo-donors@*.service",
)
_PACKAGES = ("slurm-gputopo", "numpy", "networkx", "PyYAML", "click", "msgspec", "rich")


@dataclass(frozen=True, slots=True)
class BundlePart:
    """One file of the bundle; without a text, `problem` says why."""

    name: str
    about: str
    text: str = ""
    problem: str = ""


class Patience:
    """Runs Slurm's commands; what shows that Slurm is down is waited for once."""

    def __init__(self, run: Runner, limit_s: float = SLURM_S) -> None:
        self._run = run
        self._ends = time.monotonic() + limit_s
        self.down = ""

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        """What `argv` prints; SlurmError where it fails or the time is over."""
        left = self._ends - time.monotonic()
        if not self.down and left <= 0:
            self.down = "the time for Slurm's commands is over"
        if self.down:
            raise SlurmError(self.down)
        try:
            return self._run(argv, stdin, min(left, timeout_s or left, 10.0))
        except SlurmError as error:
            # No slurmctld, whoever asks it; or no scontrol, and so no other command either.
            is_down = re.search(r"no answer within|[Uu]nable to contact", str(error))
            if is_down or (argv[0] == "scontrol" and "no such command" in str(error)):
                self.down = str(error)
            raise


@dataclass(slots=True)
class Bundle:
    """Gathers the parts; `path` is gputopo.yaml's, and `run` runs Slurm's commands."""

    path: Path
    names: Placeholders
    run: Runner | None = None
    secrets: Secrets = field(default_factory=Secrets)
    config: Config = field(init=False)
    #: `scontrol show config`.
    slurm: dict[str, str] = field(default_factory=dict)

    def parts(self) -> Iterator[BundlePart]:
        """Every part, each whatever becomes of the others."""
        try:
            self.config = in_force(self.path)
        except PluginError:
            # The part of doctor has what is wrong with it.
            self.config = parse("", self.path)
        run = self.run or ProcessRunner(self.config.slurm.bin_dir)
        patience = Patience(run)
        for one in self._parts(patience, self._ask_slurm(patience)):
            yield replace(one, problem=self.names.text(one.problem))

    def _parts(self, patience: Patience, slurm_problem: str) -> Iterator[BundlePart]:
        # Whoever is named in one text is known in all of them.
        raw = {name: self._raw(read) for name, (_, read) in self._logs().items()}
        for text, _ in raw.values():
            self.names.learn(text)
        yield BundlePart(
            "versions.txt",
            "versions of gputopo, Slurm, Python and the system",
            self._cleaned(self._versions(patience)),
        )
        yield self._file("gputopo.yaml", "the site's settings", self.path, texts.yaml_text)
        kept = self.config.state_dir / KEPT
        yield self._file(
            "gputopo-in-force.yaml", "what the engine read of them last", kept, texts.yaml_text
        )
        beside = Path(self.slurm.get("SLURM_CONF") or os.environ.get("SLURM_CONF") or SLURM_CONF)
        for name in ("gputopo-bridge.conf", "gputopo-select.conf"):
            about = f"settings of the {name[8:-5]} plugin".replace("bridge plugin", "Lua bridge")
            yield self._file(name, about, beside.with_name(name), texts.settings_text)
        shown = "\n".join(f"{key} = {value}" for key, value in self.slurm.items())
        yield BundlePart(
            "scontrol-show-config.txt",
            "Slurm's settings in force",
            texts.settings_text(shown, self.names, self.secrets),
            slurm_problem,
        )
        yield self._slurm_conf(beside)
        yield self._json("status.json", "what the engine says of itself", self._status)
        yield self._json(
            "doctor.json", "what gputopo doctor finds", partial(self._doctor, patience)
        )
        for name, (about, _) in self._logs().items():
            text, problem = raw[name]
            cleaned = self._records(text) if name.endswith(".jsonl") else self._cleaned(text, True)
            yield BundlePart(name, about, cleaned, problem)

    def _ask_slurm(self, patience: Patience) -> str:
        """Learn Slurm's settings and who is who there; why not, '' for nothing."""
        slurm = SlurmClient(patience)
        try:
            self.slurm = dict(slurm.config())
            user = self.slurm.get("SlurmUser", "").partition("(")[0]
            self.names.keep([user] if user else [])
            hosts = [v for k, v in self.slurm.items() if k.startswith("SlurmctldHost")]
            self.names.know_nodes(host.partition("(")[0] for host in hosts)
            self.names.know_nodes(node.name for node in slurm.nodes())
            for row in squeue_table.read(patience, ("UserName", "Account", "Name", "Comment")):
                for kind, name in zip(("user", "account", "job", "text"), row, strict=True):
                    self.names.know(kind, [name])
        except SlurmError as error:
            return str(error)
        finally:
            self.names.know_nodes(name for one in self.config.nodes for name in one.nodes)
            self.names.know_nodes([platform.node().partition(".")[0]])
        return ""

    def _logs(self) -> dict[str, tuple[str, Callable[[], list[str]]]]:
        """The logs by the part's name: what it is, and what reads its lines."""
        log = self.config.decision_log
        there = self.slurm.get("SlurmctldLogFile") or "/var/log/slurm/slurmctld.log"
        of_ours = partial(texts.lines_of, Path(there), MOST_READ, LOG_LINES, b"gputopo")
        return {
            "journal.txt": ("the last lines of the engine's log", _journal),
            "decisions.jsonl": ("the last decisions", partial(_decisions, log)),
            "slurmctld.log": ("lines of slurmctld's log that name gputopo", of_ours),
        }

    def _raw(self, read: Callable[[], list[str]]) -> tuple[str, str]:
        """A log's text, or why there is none."""
        try:
            lines = read()
        except (PluginError, OSError) as error:
            return "", str(error)
        return "\n".join(_last(lines)), "" if lines else "no such lines, or not for this user"

    def _file(
        self, name: str, about: str, path: Path, clean: Callable[[str, Placeholders, Secrets], str]
    ) -> BundlePart:
        """A file of settings as a part of the bundle, without secrets and names."""
        try:
            text, problem = _settings(path)
        except PluginError as error:
            return BundlePart(name, about, problem=str(error))
        return BundlePart(name, about, clean(text, self.names, self.secrets) + "\n", problem)

    def _slurm_conf(self, path: Path) -> BundlePart:
        """The lines that matter of slurm.conf and of the files that it includes."""
        problems, found = list[str](), dict[Path, str]()

        def text_of(file: Path) -> str:
            if sum(map(len, found.values())) > MOST_INCLUDED:
                raise PluginError(f"{file}: left out, as what is included further on")
            found[file], problem = _settings(file)
            problems.extend([f"{file}: {problem}"] if problem else [])
            self.names.learn(found[file])
            return found[file]

        try:
            slurm_conf.parse(path, text_of)
        except PluginError as error:
            problems.append(str(error))
        shown = "\n".join(
            f"# {self.names.text(str(file))}\n{_that_matter(text, self.names, self.secrets)}\n"
            for file, text in found.items()
        )
        about = "its lines that matter to gputopo, and those of included files"
        return BundlePart("slurm.conf", about, shown[:MOST_SHOWN], "; ".join(problems))

    def _json(self, name: str, about: str, told: Callable[[], object]) -> BundlePart:
        try:
            shown = self.names.tree(json.loads(json.dumps(told())))
        except PluginError as error:
            return BundlePart(name, about, problem=str(error))
        text = self.secrets.text(json.dumps(shown, indent=2))
        return BundlePart(name, about, text[:MOST_SHOWN] + "\n")

    def _status(self) -> object:
        return client.status(self.config.socket)

    def _doctor(self, patience: Patience) -> object:
        def make(settings: SlurmConfig) -> SlurmClient:
            return choose.client(SlurmConfig() if patience.down else settings, patience)

        return {"findings": [asdict(one) for one in examine(Installation(self.path, make))]}

    def _records(self, text: str) -> str:
        lines = texts.records(text.splitlines(), self.names, self.secrets)
        return "".join(f"{line}\n" for line in lines)

    def _cleaned(self, text: str, is_log: bool = False) -> str:
        return self.names.text(self.secrets.text(text), is_log=is_log) + "\n" if text else ""

    def _versions(self, run: Runner) -> str:
        """Of what runs here; Slurm's is what its controller says."""
        found = {}
        for name in _PACKAGES:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "not installed"
        try:
            found["system"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
        except OSError:
            found["system"] = platform.system()
        found |= {"kernel": platform.release(), "machine": platform.machine()}
        found |= {"Python": platform.python_version(), "runs as uid": str(os.geteuid())}
        found["slurmctld"] = self.slurm.get("SLURM_VERSION", "not known")
        try:
            found["scontrol"] = run(["scontrol", "--version"]).strip()
        except SlurmError as error:
            found["scontrol"] = str(error)
        return "\n".join(f"{name}: {version}" for name, version in found.items())


def packed(parts: list[BundlePart], words: str) -> bytes:
    """The archive of the parts, and a README.txt of these words."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in [("README.txt", words), *((one.name, one.text) for one in parts)]:
            if text:
                content = text.encode(errors="replace")
                member = tarfile.TarInfo(f"{FOLDER}/{name}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
                archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _settings(path: Path) -> tuple[str, str]:
    """A file of settings and, where that is its end alone, that it is.

    PluginError where it cannot be read.
    """
    lines = texts.lines_of(path, MOST_SHOWN, texts.MOST_LINES)
    try:
        is_whole = path.stat().st_size <= MOST_SHOWN and len(lines) < texts.MOST_LINES
    except OSError as error:
        raise PluginError(f"{path}: {error.strerror}") from error
    return "\n".join(lines), "" if is_whole else "the end of a file that is too long"


def _that_matter(text: str, names: Placeholders, secrets: Secrets) -> str:
    return texts.settings_text(texts.that_matter(text), names, secrets)


def _journal() -> list[str]:
    """The last lines that systemd has of our units; PluginError where it cannot be asked."""
    if shutil.which("journalctl") is None:
        raise PluginError("journalctl is not here")
    argv = ["journalctl", "--quiet", "--no-pager", "--no-hostname", "--output=short-iso"]
    argv += [f"--lines={JOURNAL_LINES}", *(f"--unit={unit}" for unit in _UNITS)]
    try:
        done = run_bounded(argv, JOURNAL_S, MOST_READ)
    except subprocess.TimeoutExpired:
        raise PluginError(f"journalctl: no answer within {JOURNAL_S:g} s") from None
    if done is None:
        raise PluginError(f"journalctl printed more than {MOST_READ >> 20} MiB")
    if done.code != 0:
        raise PluginError(f"journalctl: exit {done.code}: {done.err.strip()[:200]}")
    return texts.last_lines(io.BytesIO(done.out.encode()), MOST_READ, JOURNAL_LINES)


def _decisions(log: DecisionLogConfig) -> list[str]:
    """The last lines, of the log itself or, where that has just begun, of the one before."""
    found: list[str] = []
    for path in decision_log.rotated(log)[:2]:
        left = RECORDS - len(found)
        if left and (path == log.path or path.exists()):
            before = texts.lines_of(path, MOST_READ, left, longest=texts.LONGEST_RECORD)
            found = [*before, *found]
    return found


def _last(lines: list[str]) -> list[str]:
    """The last of the lines that are not too much for a part."""
    room = MOST_SHOWN
    for count, line in enumerate(reversed(lines)):
        room -= len(line) + 1
        if room < 0:
            return lines[len(lines) - count :]
    return lines
