"""Middleware presets: what we ship is sound, and a mistake in a site's own is one clear line."""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from slurm_plugin.base import preset
from slurm_plugin.base.preset import Server
from slurm_plugin.config import presets
from slurm_plugin.config import settings as config
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import RemoteError

DOCS = Path(__file__).parents[4] / "docs"
DONORS = (Server("n2", 5000, 2, 71, "7/71"), Server("n3", 5001, 1, 72, "7/72"))
GOOD = """
name: mine
server: [serve, "{bind}:{port}"]
environment: {MINE: "{servers}"}
"""


def test_the_presets_that_come_with_the_package():
    assert presets.names() == [
        *("cricket", "echo", "echo-own", "lupine", "pocl", "rcuda", "template")
    ]


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
        ("cricket", {"REMOTE_GPU_ADDRESS": "n2,n3", "CRICKET_RPCID": "71,72"}),
        (
            "rcuda",
            {
                "RCUDA_DEVICE_COUNT": "3",
                "RCUDA_DEVICE_0": "n2@5000:0",
                "RCUDA_DEVICE_1": "n2@5000:1",
                "RCUDA_DEVICE_2": "n3@5001:0",
            },
        ),
        (
            "pocl",
            {
                "OCL_ICD_VENDORS": "/etc/OpenCL/borrowed",
                "POCL_DEVICES": "remote remote remote",
                "POCL_REMOTE0_PARAMETERS": "n2:5000/0",
                "POCL_REMOTE1_PARAMETERS": "n2:5000/1",
                "POCL_REMOTE2_PARAMETERS": "n3:5001/0",
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


@pytest.mark.parametrize(
    ("name", "command", "program"),
    [
        ("rcuda", ["rCUDAd", "-i", "-p", "5000"], "rCUDAd"),
        ("lupine", ["env", "LUPINE_PORT=5000", "lupine_driver_server"], "lupine_driver_server"),
        ("cricket", ["cricket-rpc-server", "71"], "cricket-rpc-server"),
    ],
)
def test_a_server_is_told_its_port_or_its_job(name, command, program):
    values = dict.fromkeys(preset.SERVER_FIELDS, "") | {"port": "5000", "id": "71"}
    found = presets.load(name)
    assert found.command(values) == command
    assert found.program == program


def test_what_the_presets_say_of_the_servers():
    """None knows its user or can be told an address; how many donors a job may have."""
    found = {name: presets.load(name) for name in ("cricket", "lupine", "rcuda")}
    assert not any(one.authenticates or one.loopback for one in found.values())
    assert {name: one.max_donors for name, one in found.items()} == {
        "cricket": 1,
        "lupine": 7,
        "rcuda": 0,
    }
    assert "not run" in found["rcuda"].about


#: Words of the sources for what the presets and docs/remote-cuda.md say, file by file.
SOURCES = {
    "lupine": {
        "server.cpp": (
            r'getenv\("LUPINE_PORT"\)',
            "#define DEFAULT_PORT 14833",
            "s_addr = INADDR_ANY",
            "Fork a process per connection",
        ),
        "CMakeLists.txt": (
            r"add_executable\(lupine_driver_server",
            "OUTPUT_NAME cuda",
            r"MIN_CUDA_VERSION 11\.0",
        ),
        "server_checkpoint.cpp": (r"liblupinecr\.so", "restore\\(state"),
        "transport.cpp": (r'getenv\("LUPINE_SERVER"\)', "kBoundedRetryCount = 5"),
        "address_space.h": ("LUPINE_VA_ARENA_COUNT = 8",),
        "routing.cpp": (r"entry\.local = true",),
        "cuda_client.cpp": ("LUPINE_REAL_LIBCUDA", "LUPINE_DISABLE_LOCAL"),
        "LICENSE": ("Apache License",),
        "README.md": (r"LD_LIBRARY_PATH=/opt/lupine/lib", "LD_PRELOAD=", "plain HTTP/2 server"),
    },
    "cricket": {
        "cpu/cpu-server-runtime.c": (r"cr_dump_memory\(path\)", r"int server_runtime_restore"),
        "cpu/cpu-server.c": (
            *(r"svctcp_create\(RPC_ANYSOCK", "unable to register", "svc_run"),
            *("SIGUSR2, signal_checkpoint_stop", "CRICKET_RESTORE"),
        ),
        "cpu/server-exe.c": (r'"%lu", &vers', r"cricket_main\(RPC_CD_PROG, vers\)"),
        "cpu/cpu_rpc_prot.x": (r"^\} = 99;",),
        "cpu/cpu-client.c": (
            'envvar\\[\\] = "REMOTE_GPU_ADDRESS"',
            r'getenv\("CRICKET_RPCID"\)',
            r"strchr\(server, ':'\)",
            r"__attribute__\(\(constructor\)\) init_rpc",
            r"SIGUSR1, repair_connection",
        ),
        "cpu/cpu-client-driver.c": (r"DEF_FN\(CUresult, cuMemcpyDtoH,", r"cuMemAlloc\(CUdevice"),
        "cpu/cpu-client-runtime.c": ("cudaMemcpy",),
        "LICENSE": ("MIT License",),
        "README.md": ("`-cudart shared`", "cricket-client.so"),
    },
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_preset_names_the_source_that_it_was_read_in(name):
    """Repository, licence, one commit and the files; docs/remote-cuda.md names the same commit."""
    text = (presets.FOLDER / f"{name}.yaml").read_text()
    [commit] = re.findall(r"\b[0-9a-f]{40}\b", text)
    [repository] = re.findall(r"github\.com/([\w-]+/[\w-]+)", text)
    page = (DOCS / "remote-cuda.md").read_text()
    assert f"[{repository}](https://github.com/{repository}/tree/{commit})" in page
    named = set(re.findall(r"[\w/-]+\.(?:cpp|c|h|md)\b", text))
    assert named
    assert named <= set(SOURCES[name])


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_says_what_the_preset_says(name):
    """With GPUTOPO_SOURCES=/folder, in which checkouts of the repositories lie by these names."""
    folder = os.environ.get("GPUTOPO_SOURCES")
    if not folder:
        pytest.skip("GPUTOPO_SOURCES names no folder with the middlewares' sources")
    for file, patterns in SOURCES[name].items():
        text = (Path(folder) / name / file).read_text()
        for pattern in patterns:
            assert re.search(pattern, text, re.MULTILINE), f"{file}: {pattern}"


def test_the_table_in_the_documentation_says_what_the_presets_say():
    """The columns: preset, server, authentication, usable without trust_network."""
    lines = (DOCS / "remote-setup.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = {row[0].strip("`"): row for row in rows if len(row) == 4 and row[0].startswith("`")}
    assert set(table) >= set(presets.names())
    for name in set(presets.names()) - {"template"}:
        found, row = presets.load(name), table[name]
        assert found.program.format(program="gputopo-echo") in row[1] or name == "echo-own"
        own = row[2].startswith("its own")
        assert (own, row[3] == "no") == (found.authenticates, bool(found.needs_trust())), row


def test_a_sites_own_lies_beside_its_configuration(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert presets.load("mine.yaml", tmp_path).server == ("serve", "{bind}:{port}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected keys and values"),
        ("a: [", "cannot be read: "),
        ("ports: 2001-13-45", "cannot be read: month must be in 1..12"),
        ("ports: !!timestamp abc", "cannot be read"),
        ("[" * 5000, "cannot be read: maximum recursion"),
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
