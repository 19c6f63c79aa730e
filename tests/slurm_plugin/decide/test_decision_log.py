"""The decision log: nothing lost quietly, nothing blocks, every line is whole."""

import io
import json
import logging
from pathlib import Path

from slurm_plugin.base.log_lines import Line, StartedLine, UseLine
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide import decision_log
from slurm_plugin.decide.decision_log import DecisionLog


def config(tmp_path: Path, max_mb: int = 1, keep: int = 2) -> DecisionLogConfig:
    return DecisionLogConfig(tmp_path / "log" / "decisions.jsonl", max_mb, keep)


def write(settings: DecisionLogConfig, records: list[Line]) -> DecisionLog:
    log = DecisionLog(settings)
    for record in records:
        log.append(record)
    log.close()
    return log


def test_records_come_back_in_order_across_restarts(tmp_path):
    settings = config(tmp_path)
    write(settings, [UseLine(job=1), UseLine(job=2)])
    write(settings, [StartedLine(job=3, gpus={"n1": (0, 3)})])
    assert [r.job for r in decision_log.read(settings)] == [1, 2, 3]


def test_a_half_line_of_a_crash_costs_that_line_only(tmp_path):
    settings = config(tmp_path)
    write(settings, [UseLine(job=1)])
    with settings.path.open("ab") as file:
        file.write(b'{"job": 2, "gp')
    write(settings, [UseLine(job=3)])
    assert [r.job for r in decision_log.read(settings)] == [1, 3]


def test_the_file_is_rotated_by_size_and_the_oldest_dropped(tmp_path):
    settings = config(tmp_path, max_mb=1, keep=2)
    write(settings, [UseLine(job=i, why="x" * 100_000) for i in range(60)])
    names = sorted(path.name for path in settings.path.parent.iterdir())
    assert names == ["decisions.jsonl", "decisions.jsonl.1", "decisions.jsonl.2"]
    jobs = [r.job for r in decision_log.read(settings)]
    assert jobs == list(range(jobs[0], 60))
    assert all(path.stat().st_size <= 1 << 20 for path in settings.path.parent.iterdir())


def test_with_nothing_to_keep_the_file_starts_anew(tmp_path):
    settings = config(tmp_path, max_mb=1, keep=0)
    write(settings, [UseLine(job=i, why="x" * 300_000) for i in range(8)])
    assert [path.name for path in settings.path.parent.iterdir()] == ["decisions.jsonl"]
    assert settings.path.stat().st_size <= 1 << 20


def test_a_file_moved_away_by_somebody_else_is_made_again(tmp_path):
    settings = config(tmp_path)
    log = DecisionLog(settings)
    log.append(UseLine(job=1))
    while log.written < 1:
        pass
    settings.path.rename(tmp_path / "elsewhere")
    log.append(UseLine(job=2))
    log.close()
    assert json.loads((tmp_path / "elsewhere").read_text())["job"] == 1
    assert [r.job for r in decision_log.read(settings)] == [2]


def test_two_engines_in_turn_write_one_file_and_rotate_it_once(tmp_path):
    """Each engine keeps the file open while the other one is in charge."""
    settings = config(tmp_path, max_mb=1, keep=2)
    logs = [DecisionLog(settings), DecisionLog(settings)]
    for turn in range(10):
        log, before = logs[turn % 2], logs[turn % 2].written
        log.append(UseLine(job=turn, why="x" * 300_000))
        while log.written == before:
            pass
    for log in logs:
        log.close()
    names = sorted(path.name for path in settings.path.parent.iterdir())
    assert names == ["decisions.jsonl", "decisions.jsonl.1", "decisions.jsonl.2"]
    assert [r.job for r in decision_log.read(settings)] == list(range(3, 10))


def test_a_full_disk_is_said_once_and_the_log_goes_on_after(tmp_path, monkeypatch, caplog):
    full = [True]
    real = DecisionLog._open

    def opened(self: DecisionLog) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        real(self)

    monkeypatch.setattr(DecisionLog, "_open", opened)
    settings = config(tmp_path)
    log = DecisionLog(settings)
    with caplog.at_level(logging.WARNING):
        for job in range(5):
            log.append(UseLine(job=job))
        while log.dropped < 5:
            pass
        full[0] = False
        log.append(UseLine(job=5))
        log.close()
    assert [r.job for r in decision_log.read(settings)] == [5]
    assert [r.getMessage().count("No space left") for r in caplog.records] == [1, 0]
    assert (log.written, log.dropped) == (1, 5)


def test_a_line_that_a_full_disk_cuts_is_lost_alone_and_counted(tmp_path):
    """The kernel takes what there is room for, and says so by the number of bytes alone."""

    class Cuts(io.FileIO):
        is_first = True

        def write(self, line: bytes) -> int:
            is_first, self.is_first = self.is_first, False
            return super().write(line[:5] if is_first else line)

    settings = config(tmp_path)
    settings.path.parent.mkdir()
    log = DecisionLog(settings)
    log._file = Cuts(settings.path, "ab")
    for job in (1, 2, 3):
        log.append(UseLine(job=job))
    log.close()
    assert [r.job for r in decision_log.read(settings)] == [2, 3]
    assert (log.written, log.dropped) == (2, 1)


def test_a_disk_that_hangs_costs_lines_never_time(tmp_path, monkeypatch):
    monkeypatch.setattr(decision_log, "MAX_QUEUED", 3)
    monkeypatch.setattr(DecisionLog, "_run", lambda self: None)
    log = DecisionLog(config(tmp_path))
    for job in range(10):
        log.append(UseLine(job=job))
    assert log.dropped == 7
