"""A file is replaced as a whole, and a disk that is full is not filled further."""

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policies.contract.interference import Kind
from policies.performance import Run, fit
from policies.performance.similarity import Traits
from slurm_plugin.act.defrag import record
from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import RowsFile
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide import decision_log
from slurm_plugin.decide.usual_jobs import learned as learned_shares
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.collected import Store
from slurm_plugin.learn.job_profiles.learned import Learned, Sort
from slurm_plugin.learn.part_marks import marks
from slurm_plugin.learn.speed_models.database import Database, Profile


def test_a_file_is_replaced_with_its_mode(tmp_path):
    path = tmp_path / "made" / "file"
    for content in (b"one", b"two"):
        whole_file.replace(path, content, 0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o640)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(PluginError, match="below: cannot be written: Not a directory"):
        whole_file.replace(path / "below" / "below", b"", 0o640)


def test_on_a_full_disk_the_old_one_stays_alone(tmp_path, monkeypatch, caplog):
    """What jobs taught is written again and again: one file left each time would add up."""
    path = tmp_path / "learned.json"
    path.write_text("[]")
    learned = Learned(path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    for seconds in (1.0, 2.0, 3.0):
        learned.add(Sort(Kind("md", 1, 2, 1000), True, None), seconds)
        learned.save()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "[]"
    assert len(caplog.records) == caplog.text.count("learned.json: cannot be written") == 1


_RUNS = tuple(Run(1, 1, local, 0.01 * local) for local in (16, 32, 64))
PROFILE = Profile(Traits("resnet50"), "training", fit("calibrated", _RUNS), _RUNS)

# -- root, in folders of others ---------------------------------------------------

OTHER = 12345
LINK = "is a link that others than root may have put there"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: it is about what root refuses"
)


@pytest.fixture
def theirs(tmp_path) -> Path:
    """A folder that is not root's, with a file of its owner's."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "file").write_text("old")
    for path in (folder, folder / "file"):
        os.chown(path, OTHER, OTHER)
    return folder


@pytest.fixture
def roots(tmp_path) -> Path:
    """A file that only root may write."""
    path = tmp_path / "profile"
    path.write_text("root's")
    return path


def owner(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_uid, stat.S_IMODE(info.st_mode)


@needs_root
def test_root_follows_no_link_of_others(theirs, roots):
    (theirs / "link").symlink_to(roots)
    (theirs / "inner").symlink_to(roots.parent)
    for path in (theirs / "link", theirs / "inner" / "profile"):
        for what in (
            lambda path=path: whole_file.replace_contents(path, b"ours"),
            lambda path=path: whole_file.read(path, 99),
            lambda path=path: whole_file.resolved(path),
        ):
            with pytest.raises(PluginError, match=LINK):
                what()
    through = theirs / "inner" / "new"
    like = roots.stat()
    for what in (
        lambda: whole_file.replace(through, b"ours", 0o644),
        lambda: whole_file.create(through, b"ours", like),
        lambda: whole_file.link(through, roots),
        lambda: whole_file.remove(theirs / "inner" / "profile"),
        lambda: whole_file.folder_of(through).__enter__(),
    ):
        with pytest.raises(PluginError, match=LINK):
            what()
    assert (roots.read_text(), sorted(path.name for path in roots.parent.iterdir())) == (
        "root's",
        ["profile", "state"],
    )
    # A link of the file's own name is replaced where no old text is asked for.
    whole_file.replace(theirs / "link", b"ours", 0o644)
    assert (roots.read_text(), (theirs / "link").read_text()) == ("root's", "ours")
    assert not (theirs / "link").is_symlink()


@needs_root
def test_what_root_leaves_in_anothers_folder_is_its_owners(theirs, roots):
    (theirs / "file").chmod(0o4640)
    whole_file.replace_contents(theirs / "file", b"new")
    whole_file.replace(theirs / "made" / "file", b"new", 0o600)
    whole_file.create(theirs / "copy", b"new", roots.stat())
    assert owner(theirs / "file") == (OTHER, 0o640)
    assert owner(theirs / "made" / "file") == (OTHER, 0o600)
    assert owner(theirs / "copy") == (OTHER, stat.S_IMODE(roots.stat().st_mode))
    assert (theirs / "made").stat().st_uid == OTHER
    whole_file.remove(theirs / "copy")
    assert not (theirs / "copy").exists()


@needs_root
def test_root_takes_no_second_name_of_a_file_for_anothers(theirs, roots):
    os.link(roots, theirs / "hard")
    for what in (whole_file.replace_contents, whole_file.read):
        with pytest.raises(PluginError, match="has several names"):
            what(theirs / "hard", b"ours" if what is whole_file.replace_contents else 9)
    os.mkfifo(theirs / "pipe")
    with pytest.raises(PluginError, match="expected a plain file"):
        whole_file.read(theirs / "pipe", 9)
    with pytest.raises(PluginError, match="expected a plain file"):
        whole_file.opened(theirs / "pipe")
    assert whole_file.opened(theirs / "file").read() == b"old"


@needs_root
def test_what_opens_files_by_their_names_has_no_more_rights_than_the_folders_owner():
    """A model database beside a link to where only root may write: SQLite would make one there."""
    with TemporaryDirectory(prefix="gputopo-test-") as name:
        os.chmod(name, 0o755)
        state, cron = Path(name, "state"), Path(name, "cron")
        state.mkdir()
        os.chown(state, OTHER, OTHER)
        cron.mkdir()
        models = Database(state / "models.db")
        models.path.symlink_to(cron / "job")
        with pytest.raises(PluginError, match="unable to open database file"):
            models.put(PROFILE)
        assert list(cron.iterdir()) == []
        assert (os.geteuid(), os.getegid()) == (0, 0)
        models.path.unlink()
        models.put(PROFILE)
        assert models.path.stat().st_uid == OTHER
        assert [one.traits.name for one in models.all()] == ["resnet50"]


@needs_root
def test_logs_are_read_only_where_they_are_plain_files(theirs, roots):
    """The engine keeps them: a pipe in their place would be waited for without end."""
    log = DecisionLogConfig(path=theirs / "decisions.jsonl")
    os.mkfifo(log.path)
    assert learned_shares(log) == ()
    with pytest.raises(PluginError, match="expected a plain file"):
        list(decision_log.read(log))


@needs_root
def test_root_gives_away_no_file_in_place_of_a_folder_that_it_made(theirs, roots, monkeypatch):
    """The folder's owner replaces the new folder by a second name of root's file."""
    mkdir = os.mkdir

    def and_replaced(*args: object, **options: object) -> None:
        mkdir(*args, **options)
        (theirs / "made").rmdir()
        os.link(roots, theirs / "made")

    monkeypatch.setattr(os, "mkdir", and_replaced)
    with pytest.raises(PluginError, match="cannot be written: Not a directory"):
        whole_file.replace(theirs / "made" / "file", b"new", 0o644)
    assert roots.stat().st_uid == 0


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@needs_root
@pytest.mark.timeout(20)
@pytest.mark.parametrize("puts", [_pipe, _zeros])
def test_nothing_in_the_engines_folder_keeps_root_waiting(theirs, puts, caplog):
    """A pipe never ends, nor does /dev/zero, which fills the memory, too."""
    key = f"{'0' * 16}-{'0' * 8}"
    (theirs / "topologies" / "kinds").mkdir(parents=True)
    for path in (f"topologies/kinds/{key}.json", "topologies/nodes.json", record.NAME, "rows.json"):
        puts(theirs / path)
    store = Store(theirs)
    for what in (
        store.nodes,
        lambda: store.topology(key),
        lambda: record.read(record.path_in(theirs)),
    ):
        with pytest.raises(PluginError, match=f"expected a plain file|{LINK}"):
            what()
    assert RowsFile(theirs / "rows.json", list[int], 1 << 20, 0o600).read() == []
    assert re.search(f"expected a plain file|{LINK}", caplog.text)


@needs_root
def test_root_follows_its_own_links(tmp_path, roots):
    (tmp_path / "site").mkdir()
    inner = tmp_path / "site" / "slurm.conf"
    inner.symlink_to("../profile")
    (tmp_path / "through").symlink_to(tmp_path / "site")
    asked = tmp_path / "through" / "slurm.conf"
    whole_file.replace_contents(asked, b"new")
    assert (roots.read_text(), inner.is_symlink()) == ("new", True)
    assert whole_file.resolved(asked) == roots.resolve()
    assert whole_file.resolved(tmp_path / "site" / ".." / "profile") == roots.resolve()
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(PluginError, match="cannot be read: Too many levels of symbolic links"):
        whole_file.read(circle, 9)


@needs_root
@pytest.mark.parametrize(
    ("mode", "uid", "is_followed"),
    [(0o755, 0, True), (0o775, 0, False), (0o777, 0, False), (0o1777, 0, True), (0o1777, 9, False)],
)
def test_a_folder_that_others_may_write_has_links_of_theirs(
    tmp_path, roots, mode, uid, is_followed
):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(roots)
    os.chown(folder / "link", uid, uid, follow_symlinks=False)
    folder.chmod(mode)
    if is_followed:
        assert whole_file.read(folder / "link", 99) == b"root's"
    else:
        with pytest.raises(PluginError, match=LINK):
            whole_file.read(folder / "link", 99)


def test_everybody_else_follows_all_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "file").write_text("old")
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "link").symlink_to(tmp_path / "file")
    whole_file.replace_contents(folder / "link", b"new")
    assert ((tmp_path / "file").read_text(), (folder / "link").is_symlink()) == ("new", True)


@pytest.fixture
def flipping(theirs, roots) -> Iterator[Path]:
    """A name that is a file of the folder's owner and a link to root's, in turn."""
    path, over = theirs / marks.NAME, threading.Event()

    def flip() -> None:
        beside = theirs / "beside"
        while not over.is_set():
            with suppress(OSError):
                beside.symlink_to(roots)
                beside.replace(path)
            with suppress(OSError):
                beside.write_bytes(b"")
                beside.replace(path)

    thread = threading.Thread(target=flip)
    thread.start()
    yield path
    over.set()
    thread.join()


@needs_root
def test_no_race_leads_a_mark_into_a_file_of_roots(flipping, roots):
    refused = 0
    mark = marks.Mark("n1", "gpu 1", "broken", why="echo mine >> /root/.bashrc")
    for _ in range(300):
        try:
            marks.change(flipping, lambda _: False, [mark])
        except PluginError:
            refused += 1
    assert roots.read_text() == "root's"
    assert refused, "the link was never seen"


#: What writes otherwise, and why root cannot be led astray by it.
OTHERS_THAT_WRITE = {
    "cli/files.py": "where its user says, as a shell would",
    "cli/manual.py": "where its user says",
    "doctor/bundle.py": "an archive in memory, which whole_file writes",
    "learn/link_calibration/model_file.py": "where its user says",
    "node/program.py": "in a folder that it makes for itself",
    "act/profiling/progress.py": "a lock without contents",
    "decide/decision_log.py": "the engine's own, which is not root",
    "act/lending/acting/serve.py": "a socket in a folder that is to be root's",
    "serve/server.py": "the engine's own socket",
    "serve/run.py": "takes the file of its own status away, beside that socket",
}
WRITES = re.compile(
    r"\.write_(text|bytes)\(|\bopen\([^)]*[\"'][wax]|O_CREAT|os\.(replace|rename|symlink|link|unlink)\("
    r"|\.(unlink|rename|symlink_to|hardlink_to|touch)\(|mkstemp|TemporaryFile"
)


def test_nothing_else_writes_where_root_may_be_led_astray():
    root = Path(whole_file.__file__).parents[1]
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if WRITES.search(path.read_text()) and path != Path(whole_file.__file__)
    }
    assert found == OTHERS_THAT_WRITE.keys()
