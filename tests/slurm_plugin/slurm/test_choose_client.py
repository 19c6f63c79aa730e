"""Which Slurm client the configuration gives, and what is said where it is not there."""

import logging
from pathlib import Path

import pytest

from slurm_plugin.config import settings as config
from slurm_plugin.doctor.checks import check_slurm
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.errors import SlurmError
from slurm_plugin.serve import setup
from slurm_plugin.slurm import choose
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.clients.rest import Rest


def written(folder: Path, slurm: str) -> Path:
    path = folder / "gputopo.yaml"
    path.write_text(f"slurm: {slurm}\nnodes: [{{nodes: n1, topology: minsky}}]\npartitions: {{}}\n")
    return path


def test_the_commands_are_the_default_and_rest_is_had_by_its_name(tmp_path):
    plain = config.load(written(tmp_path, "{}")).slurm
    assert isinstance(choose.client(plain), SlurmClient)
    rest = config.load(written(tmp_path, "{client: rest, rest_socket: x.sock}")).slurm
    assert rest.rest_socket == tmp_path / "x.sock"
    assert isinstance(choose.client(rest), Rest)


def test_pyslurm_without_a_slurm_conf_is_refused_before_its_import_ends_the_process(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    path = written(tmp_path, "{client: pyslurm}")
    with pytest.raises(SlurmError, match=r"which needs .*none on this host"):
        choose.client(config.load(path).slurm)
    with pytest.raises(SlurmError, match=r"set slurm\.client: command"):
        setup.load(path)


def test_pyslurm_that_is_not_installed_is_one_clear_error_of_doctor_and_of_the_engine(
    tmp_path, monkeypatch
):
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    path = written(tmp_path, "{client: pyslurm}")
    with pytest.raises(SlurmError, match="package pyslurm is not installed"):
        setup.load(path)
    here = Installation(path, choose.client)
    with pytest.raises(SlurmError, match="package pyslurm is not installed"):
        list(check_slurm(here))


def test_a_slurmrestd_that_is_not_there_yet_does_not_stop_the_engine(tmp_path, caplog):
    with caplog.at_level(logging.ERROR):
        setup.load(written(tmp_path, "{client: rest, rest_socket: none.sock}"))
    assert "start slurmrestd or set slurm.rest_socket" in caplog.text


def test_without_a_configuration_slurms_commands_are_asked(tmp_path):
    assert type(Installation(tmp_path / "none.yaml", choose.client).slurm) is SlurmClient


def test_doctor_says_that_nobody_listens_on_the_rest_socket(tmp_path):
    path = written(tmp_path, "{client: rest, rest_socket: none.sock}")
    here = Installation(path, choose.client)
    with pytest.raises(SlurmError, match="nobody listens there"):
        list(check_slurm(here))
