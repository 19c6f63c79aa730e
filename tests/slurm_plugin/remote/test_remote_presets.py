"""Middleware presets: what we ship is sound, and a mistake in a site's own is one clear line."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from slurm_plugin.config import settings as config
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.remote import presets
from slurm_plugin.remote.errors import RemoteError
from slurm_plugin.remote.node import preset
from slurm_plugin.remote.node.preset import Server

DONORS = (Server("n2", 5000, 2, 71, "7/71"), Server("n3", 5001, 1, 72, "7/72"))
GOOD = """
name: mine
server: [serve, "{bind}:{port}"]
environment: {MINE: "{servers}"}
"""


def test_the_presets_that_come_with_the_package():
    assert presets.names() == ["cricket", "echo", "echo-own", "lupine", "rcuda", "template"]


def test_what_is_not_configured_is_what_is_not_given():
    """The defaults stand twice: for who reads gputopo.yaml and for who makes the settings."""
    assert config.parse("", Path("gputopo.yaml")).remote == RemoteConfig(presets.load("echo"))


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_travels_to_the_nodes_unchanged(name):
    found = presets.load(name)
    assert found.name == name
    assert preset.from_json(json.loads(json.dumps(asdict(found)))) == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("echo", {"GPUTOPO_ECHO_SERVERS": "n2:5000,n3:5001"}),
        ("lupine", {"LUPINE_SERVER": "n2:5000,n3:5001"}),
        (
            "rcuda",
            {
                "RCUDA_DEVICE_COUNT": "3",
                "RCUDA_DEVICE_0": "n2@5000:0",
                "RCUDA_DEVICE_1": "n2@5000:1",
                "RCUDA_DEVICE_2": "n3@5001:0",
            },
        ),
    ],
)
def test_what_the_tasks_of_a_job_with_three_remote_gpus_are_told(name, expected):
    assert presets.load(name).client_environment(DONORS) == expected


def test_a_word_for_each_remote_gpu():
    words = preset.from_json(asdict(presets.load("echo")) | {"each_word": {"W": "{host}/{gpu}"}})
    assert words.client_environment(DONORS)["W"] == "n2/0 n2/1 n3/0"


def test_who_needs_a_trusted_network_says_why():
    why = {name: presets.load(name).needs_trust() for name in presets.names()}
    assert {name for name, text in why.items() if text} == {"cricket"}
    assert "takes no port" in why["cricket"]


def test_a_server_is_told_its_port():
    values = dict.fromkeys(preset.SERVER_FIELDS, "") | {"port": "5000"}
    assert presets.load("rcuda").command(values) == ["rCUDAd", "-i", "-p", "5000"]


def test_a_sites_own_lies_beside_its_configuration(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert presets.load("mine.yaml", tmp_path).server == ("serve", "{bind}:{port}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected keys and values"),
        ("a: [", "cannot be read: "),
        (GOOD + "speed: 5", "speed: unknown key; allowed: name, about, server,"),
        (GOOD.replace("mine", "a b"), "name: expected a word"),
        (GOOD + "loopback: maybe", "loopback: 'maybe'; expected yes or no"),
        (GOOD + "max_donors: -1", "max_donors: -1; expected a whole number from 0 to 64"),
        (GOOD + "ports: 9", "ports: 9; expected a whole number from 1 to 8"),
        (GOOD + "each_word: {W: '{servers}'}", "each_word.W: {servers} in '{servers}'; allowed"),
        (GOOD.replace("server:", "about:"), "server: expected a list of words"),
        (GOOD.replace(":{port}", ""), "server: expected {port} in it, or takes_port: no"),
        (GOOD.replace("{bind}:", ""), "server: expected {bind} in it"),
        (GOOD.replace("{bind}", "{bond}"), "server: {bond} in '{bond}:{port}'; allowed between"),
        (GOOD.replace("{bind}", "{bind"), "server: '{bind:{port}': "),
        (GOOD.replace("environment:", "about:"), "environment: missing"),
        (GOOD.replace("MINE", "MY VAR"), "environment: 'MY VAR' is no name of a variable"),
        (GOOD.replace("{servers}", "{port}"), "environment.MINE: {port} in '{port}'; allowed"),
        (GOOD.replace("{servers}", "{servers!r}"), "environment.MINE: {servers}"),
        (GOOD + 'each_gpu: {"A_{count}": x}', "each_gpu: {count} in 'A_{count}'; allowed"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_the_file_and_the_key(tmp_path, text, says):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RemoteError) as caught:
        presets.load("mine.yaml", tmp_path)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'mine.yaml'}: ")
    assert says in told
    assert "\n" not in told


def test_a_preset_that_is_not_there_is_named():
    with pytest.raises(RemoteError, match="'rkuda' is no preset; expected one of cricket, echo,"):
        presets.load("rkuda")
    with pytest.raises(RemoteError, match=r"/none/x\.yaml: cannot be read"):
        presets.load("x.yaml", Path("/none"))
