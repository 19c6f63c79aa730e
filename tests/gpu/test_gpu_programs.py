"""The CUDA job of tests/gpu, on a stand-in for the driver library: its numbers, and the script."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PRESET = """
name: forward
server: [forward-server, "{port}", "{bind}"]
environment: {FORWARD_SERVERS: "{servers}"}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with job, stand-in and middleware."""
    if not (shutil.which("cc") and shutil.which("make")):
        pytest.skip("no cc and make here")
    out = tmp_path_factory.mktemp("gpu")
    done = subprocess.run(
        ["make", "-s", "-C", HERE, f"OUT={out}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def job(built: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        [built / "job", *words], capture_output=True, text=True, check=False, env=env, timeout=60
    )


def told(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def servers(built: Path) -> Iterator[str]:
    """Two servers, with the GPUs 2 and 5, and 7; their addresses."""
    running, addresses = [], []
    for gpus in ("2,5", "7"):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        env = {"CUDA_VISIBLE_DEVICES": gpus, "LD_LIBRARY_PATH": str(built / "stand-in")}
        words = [built / "forward-server", str(port), "127.0.0.1"]
        running.append(subprocess.Popen(words, env=env))
        addresses.append(f"127.0.0.1:{port}")
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert running[-1].poll() is None
            time.sleep(0.02)
    yield ",".join(addresses)
    for server in running:
        server.kill()
        server.wait()


def test_sum_and_product_are_right_on_every_gpu(built):
    lines = told(job(built, LD_LIBRARY_PATH=str(built / "stand-in"), CUDA_VISIBLE_DEVICES="3,0"))
    host = socket.gethostname()
    assert [line["name"] for line in lines] == [f"stand-in 3 of {host}", f"stand-in 0 of {host}"]
    assert {(line["sum"], line["product"]) for line in lines} == {(1000, 64)}


@pytest.mark.parametrize("size", ["1", "255", "257", "70000"])
def test_sizes_that_fill_no_block(built, size):
    [line] = told(job(built, size, LD_LIBRARY_PATH=str(built / "stand-in")))
    assert line["sum"] == int(size)


def test_the_same_through_a_middleware_counts_the_same_calls_and_bytes(built, servers):
    words = ("1000", "10", "1")
    [direct] = told(job(built, *words, LD_LIBRARY_PATH=str(built / "stand-in")))
    lent = told(job(built, *words, LD_LIBRARY_PATH=str(built / "forward"), FORWARD_SERVERS=servers))
    assert [str(line["name"]).split()[1] for line in lent] == ["2", "5", "7"]
    for line in lent:
        assert {key: line[key] for key in ("calls", "bytes")} == {
            key: direct[key] for key in ("calls", "bytes")
        }


@pytest.mark.parametrize(
    ("words", "variables", "says"),
    [
        ((), {}, "no driver library: libcuda.so.1: cannot open"),
        ((), {"CUDA_VISIBLE_DEVICES": ""}, "cuInit: CUDA error 100"),
        (("0",), {}, "SIZE: 0; expected 1 or more"),
        (("many",), {}, "usage: job [SIZE [CALLS [MIB]]]; read many"),
    ],
    ids=["no driver", "no GPU", "no numbers", "a word"],
)
def test_what_is_wrong_is_one_line(built, words, variables, says):
    if variables or words:
        variables |= {"LD_LIBRARY_PATH": str(built / "stand-in")}
    elif Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    done = job(built, *words, **variables)
    assert done.returncode == 1
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1


def test_a_server_that_dies_is_an_error_and_no_wrong_number(built, servers):
    dead = servers.rpartition(":")[0] + ":1"
    done = job(built, LD_LIBRARY_PATH=str(built / "forward"), FORWARD_SERVERS=dead)
    assert (done.returncode, done.stderr) == (1, "cuInit: CUDA error 999\n")


def test_numbers_that_are_wrong_are_noticed(built, tmp_path):
    """A driver that adds a little too much."""
    source = (HERE / "stand_in.c").read_text()
    wrong = source.replace("c[i] = a[i] + b[i];", "c[i] = a[i] + b[i] + (i == 700);")
    assert wrong != source
    (tmp_path / "stand_in.c").write_text(wrong)
    words = ["cc", "-std=gnu11", "-shared", "-fPIC", f"-I{HERE}", "-o"]
    subprocess.run([*words, tmp_path / "libcuda.so.1", tmp_path / "stand_in.c"], check=True)
    done = job(built, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("number 700 of the sum is ")


def test_the_stand_in_has_every_call_that_a_server_names(tmp_path):
    """A server that is linked to the whole driver library starts; what is not ours is refused."""
    if not (shutil.which("cc") and shutil.which("make") and shutil.which("nm")):
        pytest.skip("no cc, make and nm here")
    (tmp_path / "server.c").write_text(
        "int cuStreamCreate(void), cuInit(unsigned int);\n"
        "int run(void) { return cuStreamCreate() + cuInit(0); }\n"
    )
    server = tmp_path / "server.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", server, tmp_path / "server.c"], check=True, timeout=60
    )
    words = ["make", "-s", "-C", HERE, f"OUT={tmp_path}", f"FOR={server}"]
    subprocess.run([*words, f"{tmp_path}/stand-in/libcuda.so.1"], check=True, timeout=60)
    library = ctypes.CDLL(str(tmp_path / "stand-in/libcuda.so.1"))
    assert library.cuStreamCreate() == 801
    assert library.cuInit(1) == 1


def measure(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **variables}
    argv = [sys.executable, HERE / "measure.py", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=120)


@pytest.fixture
def forward(built: Path, tmp_path: Path) -> tuple[str | Path, ...]:
    """The script's words for our own middleware."""
    (tmp_path / "forward.yaml").write_text(PRESET)
    sizes = ("--numbers", "500", "--calls", "20", "--mib", "1")
    return (tmp_path / "forward.yaml", "--server", built / "forward-server", *sizes)


def test_what_the_driver_compiles_once_is_not_in_the_figures(built, forward, tmp_path):
    """NVIDIA's keeps it in a folder of the user: whichever way came first would pay for both."""
    source = (HERE / "stand_in.c").read_text()
    compiled = tmp_path / "compiled"
    slow = source.replace(
        "*module = &modules;",
        f'if (!fopen("{compiled}", "r")) sleep(1), fopen("{compiled}", "w"); *module = &modules;',
    )
    assert slow != source
    (tmp_path / "stand_in.c").write_text("#include <unistd.h>\n" + slow)
    words = ["cc", "-w", "-std=gnu11", "-shared", "-fPIC", f"-I{HERE}", "-o"]
    subprocess.run([*words, tmp_path / "libcuda.so.1", tmp_path / "stand_in.c"], check=True)
    done = measure(*forward, "--client", built / "forward", LD_LIBRARY_PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert compiled.exists()
    [line] = [line for line in done.stdout.splitlines() if "sum and product, ms" in line]
    assert float(line.split(" | ")[2]) < 1000


def test_without_a_gpu_the_script_says_so_in_one_line(built, forward):
    """On a machine that has GPUs, too: none is visible."""
    done = measure(*forward, "--client", built / "forward", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("measure: no NVIDIA GPU to measure here: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"--client": "/none"}, "measure: no client library: /none/libcuda.so.1 (--client)\n"),
        ({"--server": "/none"}, "measure: no server: /none (--server)\n"),
        ({"--server": "false"}, "measure: the server ended (exit 1): it said nothing\n"),
    ],
)
def test_what_else_is_missing_is_said_in_one_line(built, forward, change, says):
    words = [*forward, "--client", built / "forward"]
    for option, value in change.items():
        words[words.index(option) + 1] = value
    driver = {"LD_LIBRARY_PATH": str(built / "stand-in")}
    done = measure(*words, **driver)
    assert (done.returncode, done.stderr) == (1, says)


def test_the_page_has_date_versions_and_figures_of_both_ways(built, forward):
    done = measure(
        *forward,
        *("--client", built / "forward"),
        LD_LIBRARY_PATH=str(built / "stand-in"),
        CUDA_VISIBLE_DEVICES="4,6",
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert lines[0] == f"# A CUDA job directly and through forward, {today}"
    host = socket.gethostname()
    assert f"| GPUs | stand-in 4 of {host}, stand-in 6 of {host}; driver for CUDA 12.0 |" in lines
    assert "SHA-256 of forward-server " in done.stdout
    calls = [line.split(" | ") for line in lines if " | calls, bytes | " in line]
    assert [words[0] for words in calls] == ["| 0", "| 1"]
    assert all(words[2] == words[3] for words in calls)
    small = [line.split(" | ") for line in lines if "4 bytes from the GPU" in line]
    # Through a socket a call takes longer than in the process.
    assert all(float(words[3]) > float(words[2]) > 0 for words in small)
    assert int(done.stdout.partition("loopback carried ")[2].split()[0]) > 2 * 500 * 3 * 4
