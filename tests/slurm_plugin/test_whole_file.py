"""A file is replaced as a whole, and a disk that is full is not filled further."""

import errno
import os

import pytest

from policies.contract.interference import Kind
from slurm_plugin import whole_file
from slurm_plugin.errors import PluginError
from slurm_plugin.job_profiles.learned import Learned, Sort


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
