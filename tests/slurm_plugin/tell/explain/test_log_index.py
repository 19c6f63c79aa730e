"""A job is found by the index as by reading the whole log, whatever happens to the log."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.base.log_lines import LineReader
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import rotated
from slurm_plugin.tell.explain import log_files, search
from slurm_plugin.tell.explain.log_files import LogFiles
from slurm_plugin.tell.explain.search import LogIndex, Stopped, attributed

JOBS = (1, 2, 3, 10, 11, 12)
#: What is no record, and what looks like one in parts.
GARBAGE = (
    b"",
    b"\xff\xfe",
    b'{"decision":"use","job":1,"arr',
    b'{"job":2,"array":10,"decision":3}',
    b'{"job":"3","decision":"use"}',
    b'{"x":',
    b"}",
    b'{"chosen":' + b"[" * 300,
    b'{"job":4294967296,"decision":"use"}',
    b'{"donors":[{"job":1}],"job":2}',
)
TIMES = itertools.count(1)


def line(job: int, array: int = 0, kind: str = "use", blanks: str = "") -> bytes:
    text = f'{{"decision":"{kind}","time":"{next(TIMES)}","job":{job},"array":{array}}}'
    return text.replace(":", f":{blanks}").replace(",", f",{blanks}").encode()


def whole_read(config: DecisionLogConfig, job: int) -> list[str]:
    """By every line of every file, as they are now."""

    def of(number: int):
        lines = [
            one
            for path in reversed(rotated(config))
            if path.exists()
            for one in path.read_bytes().split(b"\n")[:-1]
        ]
        return [one for one in LineReader().records(lines) if number in (one.job, one.array)]

    records = of(job)
    array = next((one.array for one in records if one.array not in (0, job)), 0)
    found = [one for one in attributed(of(array)) if one.job == job] if array else records
    return [(one.time, one.job) for one in (found if array else attributed(found))]


LINES = st.one_of(
    st.builds(
        line,
        st.sampled_from(JOBS),
        st.sampled_from((0, 0, 10)),
        st.sampled_from(("use", "pass", "started")),
        st.sampled_from(("", " ")),
    ),
    st.sampled_from(GARBAGE),
)
STEPS = st.one_of(
    st.tuples(st.just("written"), st.lists(LINES, min_size=1, max_size=8)),
    st.sampled_from((("rotated", []), ("emptied", []), ("moved away", []), ("half a line", []),
                     ("asked", []), ("restarted", []))),
)  # fmt: skip


def happens(config: DecisionLogConfig, what: str, lines: list[bytes]) -> None:
    path = config.path
    if what == "written":
        with path.open("ab") as log:
            log.write(b"".join(one + b"\n" for one in lines))
    elif what == "half a line":
        with path.open("ab") as log:
            log.write(b'{"decision":"use","job":1,')
    elif what == "emptied":
        # As logrotate's copytruncate does, and at once something is written again.
        path.write_bytes(b"")
        happens(config, "written", [line(3)] * 5)
    elif what == "rotated" and path.exists():
        names = rotated(config)
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)
    elif what == "moved away" and path.exists():
        path.unlink()


@pytest.mark.parametrize("sizes", [(1, 2000), (200, 2000), (64 << 10, 1 << 20)], ids=str)
def test_the_index_finds_what_a_whole_read_finds(tmp_path_factory, sizes, monkeypatch):
    monkeypatch.setattr(search, "BLOCK_BYTES", sizes[0])
    monkeypatch.setattr(log_files, "READ_BYTES", sizes[1])

    @settings(max_examples=60)
    @given(st.lists(STEPS, max_size=14))
    def holds(steps):
        config = DecisionLogConfig(tmp_path_factory.mktemp("log") / "decisions.jsonl", 1, 2)
        index = LogIndex(config)
        for what, lines in [*steps, ("asked", [])]:
            happens(config, what, lines)
            if what == "restarted":
                index = LogIndex(config)
            elif what == "asked":
                for job in JOBS:
                    found = [(one.time, one.job) for one in index.find(job)]
                    assert found == whole_read(config, job)

    holds()


def written(folder: Path, jobs, keep: int = 2) -> DecisionLogConfig:
    config = DecisionLogConfig(folder / "decisions.jsonl", 1, keep)
    with config.path.open("ab") as log:
        log.write(b"".join(line(job) + b"\n" for job in jobs))
    return config


def test_of_a_long_log_the_newest_jobs_are_known_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "MAX_NOTES", 1000)
    monkeypatch.setattr(search, "BLOCK_BYTES", 500)
    monkeypatch.setattr(log_files, "READ_BYTES", 4000)
    config = written(tmp_path, range(1, 3000))
    index = LogIndex(config)
    index.follow()
    for first in range(3000, 9000, 1000):
        happens(config, "rotated", [])
        written(tmp_path, range(first, first + 1000))
        index.follow()
        assert sum(map(len, index._notes.values())) <= 1000
    assert [len(index.find(job)) for job in (7500, 8999, 8100)] == [0, 1, 1]


def test_of_a_log_that_is_too_long_to_read_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "MAX_BYTES", 5000)
    config = written(tmp_path, range(1, 100))
    happens(config, "rotated", [])
    written(tmp_path, range(100, 110))
    index = LogIndex(config)
    assert [len(index.find(job)) for job in (1, 99, 105)] == [0, 1, 1]


def test_what_has_no_end_of_line_is_passed_over_and_never_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "READ_BYTES", 1000)
    config = written(tmp_path, [1])
    with config.path.open("ab") as log:
        log.write(b"x" * 5000 + b"\n" + line(2) + b"\n")
    index, reader = LogIndex(config), LineReader()
    assert [len(index.find(job, reader)) for job in (1, 2)] == [1, 1]
    [notes] = index._notes.values()
    sizes = [end - start for job in (1, 2) for start, end in notes.places(job)]
    assert max(sizes) < 2000


def test_each_byte_is_read_once_for_the_index(tmp_path, monkeypatch):
    """Who asks later goes by what is known, and reads the blocks of the job alone."""
    monkeypatch.setattr(search, "BLOCK_BYTES", 500)
    config = written(tmp_path, range(1, 1000))
    index = LogIndex(config)
    index.follow()
    read = []
    of = log_files.os.pread

    def counted(descriptor, count, at):
        data = of(descriptor, count, at)
        read.append(len(data))
        return data

    monkeypatch.setattr(log_files.os, "pread", counted)
    assert len(index.find(500)) == 1
    assert sum(read) < 2000 < config.path.stat().st_size
    happens(config, "rotated", [])
    written(tmp_path, [500])
    assert len(index.find(500)) == 2
    assert sum(read) < 5000


def test_nobody_waits_for_the_rest_any_more(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "BLOCK_BYTES", 100)
    index = LogIndex(written(tmp_path, [7] * 100))
    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        index.find(7, is_over=lambda: next(asked))
    assert next(asked, None) is None


def test_a_file_that_is_gone_is_let_go(tmp_path):
    """Else its space on the disk would not be free until the process ends."""
    config = written(tmp_path, [1], keep=1)
    index = LogIndex(config)
    index.find(1)

    def gone() -> int:
        links = Path("/proc/self/fd").iterdir()
        return sum(1 for one in links if one.is_symlink() and str(tmp_path) in str(one.readlink()))

    assert gone() == 1
    config.path.unlink()
    assert index.find(1) == []
    assert gone() == 0


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    config = DecisionLogConfig(tmp_path / "log", 1, 1)
    if kind == "pipe":
        log_files.os.mkfifo(config.path)
    else:
        config.path.mkdir()
    with pytest.raises(OSError, match="expected a plain file"):
        LogFiles(config).now()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root refuses")
def test_root_opens_nothing_that_others_links_name(tmp_path):
    """A device may act on being opened."""
    config = DecisionLogConfig(tmp_path / "theirs" / "log", 1, 1)
    config.path.parent.mkdir()
    os.chown(config.path.parent, 12345, 12345)
    config.path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="is a link that others than root may have put there"):
        LogFiles(config).now()


def test_an_object_over_several_lines_hides_none_of_them(tmp_path):
    """Half lines of two crashes around a record are one object, if line ends count as blanks."""
    config = DecisionLogConfig(tmp_path / "log", 1, 1)
    config.path.write_bytes(b'{"x":\n' + line(7) + b"\n}\n")
    assert [one.job for one in LogIndex(config).find(7)] == [7]
