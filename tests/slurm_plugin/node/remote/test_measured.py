"""What own and lent GPUs take: fitted from a probe's lines, written, and read by `remote=auto`."""

import json
import random
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from policies.remote.r_queue import JobWork, NetworkSpeeds, execution_s
from policies.remote.r_queue.measured import Measured, Side
from slurm_plugin.cli import cli
from slurm_plugin.config import measured
from slurm_plugin.config import settings as config
from slurm_plugin.errors import ConfigError, RemoteError

#: Calls, GB, kernels of a probe's runs.
RUNS = [(20, 0.0, 0), (200, 0, 0), (8, 0.016, 0), (8, 0.128, 0), (8, 0, 3), (60, 0.03, 3)]
LOCAL, REMOTE = Side(5e-6, 4.0, 0.02), Side(180e-6, 0.5, 0.021)


def lines(side: Side, noise: float = 0.0) -> str:
    dice = random.Random(8)
    told = []
    for calls, gb, kernels in RUNS * 3:
        seconds = calls * side.call_s + gb / side.gb_s + kernels * side.kernel_s
        seconds *= 1 + dice.uniform(-noise, noise)
        told.append({"calls": calls, "gb": gb, "kernels": kernels, "seconds": seconds})
    return "".join(f"{json.dumps(one)}\n" for one in told)


def fitted(tmp_path: Path, text: str) -> Side:
    (tmp_path / "lines").write_text(text)
    return measured.fit("these", measured.runs(tmp_path / "lines"))


@pytest.mark.parametrize(("noise", "off"), [(0.0, 1e-6), (0.1, 0.1)])
def test_the_fit_finds_what_the_times_were_made_of(tmp_path, noise, off):
    side = fitted(tmp_path, lines(REMOTE, noise))
    assert (side.call_s, side.gb_s, side.kernel_s) == pytest.approx(
        (REMOTE.call_s, REMOTE.gb_s, REMOTE.kernel_s), rel=off
    )
    assert side.error <= 2 * noise + 1e-6


ONE = '{"calls": 9, "gb": 1, "kernels": 1, "seconds": 1}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 lines; expected 1 to 10000"),
        (ONE * 10_001, "10001 lines; expected 1 to 10000"),
        (f"{ONE}calls 9\n", "lines:2: 'calls 9': JSON is malformed"),
        ("[" * 9999, "expected numbers as"),
        (ONE.replace("9", "true"), "expected numbers as"),
        (ONE.replace("9", "-9"), "expected numbers as"),
        (ONE.replace("9", "NaN"), "expected numbers as"),
        (ONE.replace('s": 1}', 's": 0}'), "Expected `float` > 0.0 - at `$.seconds`; expected"),
        (f'{ONE[:-2]}, "jobs": 0}}\n', "Expected `float` >= 1.0 - at `$.jobs`; expected"),
        (f'{ONE[:-2]}, "gpu_gb": "9"}}\n', "expected numbers as"),
        (ONE * 4, "the runs do not tell calls, bytes and kernels apart"),
        (lines(Side(0.05, -0.5, 0.1)), "times do not grow with gb"),
    ],
)
def test_lines_that_tell_nothing_are_refused(tmp_path, text, said):
    with pytest.raises(RemoteError) as error:
        fitted(tmp_path, text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_what_the_command_writes_is_what_the_model_computes_with(tmp_path):
    """Own and lent times of a job are those that the probe's runs would have taken."""
    for name, side in (("local", LOCAL), ("remote", REMOTE)):
        (tmp_path / name).write_text(lines(side))
    words = [str(tmp_path / name) for name in ("local", "remote")]
    out = tmp_path / "measured.yaml"
    done = CliRunner().invoke(
        cli, ["remote", "measure", *words, "--preset", "echo", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "0.005 ms" in done.output
    assert "0.180 ms" in done.output
    text = "nodes: []\nremote: {measured: measured.yaml, network_gb_s: 10}\n"
    wires = config.parse(text, tmp_path / "gputopo.yaml").remote.wires
    work = JobWork(1.0, gpu_calls=1000, gpu_cpu_gb=2.0)
    assert execution_s(work, wires, False) == pytest.approx(1 + 1000 * 5e-6 + 2 / 4.0, rel=1e-3)
    assert execution_s(work, wires, True) == pytest.approx(1 + 1000 * 180e-6 + 2 / 0.5, rel=1e-3)


def test_where_its_file_cannot_be_written_is_one_line(tmp_path):
    for name, side in (("local", LOCAL), ("remote", REMOTE)):
        (tmp_path / name).write_text(lines(side))
    words = [str(tmp_path / name) for name in ("local", "remote")]
    words += ["--preset", "echo", "--out"]
    for folder in ("new", "local"):
        path = tmp_path / folder / "x"
        done = CliRunner().invoke(cli, ["remote", "measure", *words, str(path)])
        assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
        assert f"{path}: the folder {path.parent} is not there" in done.output


def test_bytes_among_gpus_other_jobs_and_kernels_count_as_they_were_measured(tmp_path):
    """Eqs. 4 to 6 with what the probe's lines were made of: GPU to GPU, two jobs at once."""
    local, lent = Side(5e-6, 4.0, 0.02, 0, 8.0), Side(180e-6, 0.5, 0.03, 0, 2.0, 0.25)
    runs = [
        (20, 0, 0, 0, 1),
        (9, 0.5, 0, 0, 1),
        (9, 0.5, 0, 0, 2),
        (9, 0, 3, 0, 1),
        (9, 0, 0, 1, 1),
    ]
    for name, side in (("local", local), ("remote", lent)):
        told = []
        for calls, gb, kernels, gpu_gb, jobs in runs:
            seconds = calls * side.call_s + gb / side.gb_s * (1 + (side.shared or 0) * (jobs - 1))
            seconds += kernels * side.kernel_s + gpu_gb / (side.gpu_gb_s or 1)
            line = {"calls": calls, "gb": gb, "kernels": kernels, "seconds": seconds}
            told.append(json.dumps({**line, "gpu_gb": gpu_gb, "jobs": jobs}))
        (tmp_path / name).write_text("\n".join(told) + "\n")
    words = [str(tmp_path / name) for name in ("local", "remote")]
    words += ["--preset", "echo", "--where", "here", "--out", str(tmp_path / "measured.yaml")]
    done = CliRunner().invoke(cli, ["remote", "measure", *words])
    assert done.exit_code == 0, done.output
    assert "GPU to GPU 2 GB/s, beside another job bytes take 1.25 times as long" in done.output
    found = measured.load(tmp_path / "measured.yaml")
    assert found.where == "here"
    wires = found.speeds(NetworkSpeeds())
    work = JobWork(1.0, gpu_calls=1000, gpu_cpu_gb=2.0, gpu_gpu_gb=4.0, gpu_kernel_s=10.0)
    alone = execution_s(work, wires, False, 3)
    assert alone == pytest.approx(1 + 1000 * 5e-6 + 2 / 4 + 4 / 8 + 10, rel=1e-3)
    beside_two = execution_s(work, wires, True, 3)
    expected = 1 + 1000 * 180e-6 + 2 / 0.5 * 1.5 + 4 / 2 + 10 * 0.03 / 0.02
    assert beside_two == pytest.approx(expected, rel=1e-3)


def test_bytes_that_stay_there_may_take_nothing_beside_slow_calls(tmp_path):
    runs = [(100, 0, 0, 0, 1.0), (9, 0.5, 0, 0, 1.1), (9, 0, 3, 0, 0.4), (16, 0, 0, 1, 0.15)]
    keys = ("calls", "gb", "kernels", "gpu_gb", "seconds")
    text = "".join(json.dumps(dict(zip(keys, run, strict=True))) + "\n" for run in runs)
    assert fitted(tmp_path, text).gpu_gb_s == pytest.approx(1e6)


def test_without_a_file_the_model_has_the_papers_figures(tmp_path):
    site = config.parse("nodes: []\n", tmp_path / "gputopo.yaml").remote
    assert site.wires == NetworkSpeeds()


SIDE = {"call_s": 1e-3, "gb_s": 1.0, "kernel_s": 0.1, "error": 0.0}
EXPECTED = "expected what `gputopo remote measure` writes"
GOOD = {"preset": "echo", "local": SIDE, "remote": SIDE}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"preset": "pocl"}, "measured: of the preset pocl; expected echo"),
        ({"preset": 7}, f"Expected `str`, got `int` - at `$.preset`; {EXPECTED}"),
        ({"local": 1}, f"Expected `object`, got `int` - at `$.local`; {EXPECTED}"),
        ({"where": 7}, f"Expected `str`, got `int` - at `$.where`; {EXPECTED}"),
        ({"local": {**SIDE, "gpu_gb_s": 0}}, f"`float` > 0.0 - at `$.local.gpu_gb_s`; {EXPECTED}"),
        ({"remote": {**SIDE, "gb_s": None}}, f"got `null` - at `$.remote.gb_s`; {EXPECTED}"),
        ({"more": 1}, f"Object contains unknown field `more`; {EXPECTED}"),
        ({"remote": {**SIDE, "gb_s": 0}}, f"`float` > 0.0 - at `$.remote.gb_s`; {EXPECTED}"),
        ({"local": {**SIDE, "call_s": float("inf")}}, "1000000000000.0 - at `$.local.call_s`; ex"),
        ({"local": {**SIDE, "call_s": float("nan")}}, "`float` >= 0.0 - at `$.local.call_s`; ex"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_refused(tmp_path, change, said):
    (tmp_path / "measured.yaml").write_text(yaml.safe_dump({**GOOD, **change}))
    with pytest.raises(ConfigError) as error:
        config.parse("nodes: []\nremote: {measured: measured.yaml}\n", tmp_path / "gputopo.yaml")
    assert said in str(error.value)
    assert "gputopo.yaml:2: remote.measured: " in str(error.value)


@pytest.mark.parametrize("text", ["[" * 9999, "{", "", "when: 2026-99-99"])
def test_what_is_no_yaml_of_ours_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "measured.yaml").write_text(text)
    with pytest.raises(RemoteError, match=EXPECTED) as error:
        measured.load(tmp_path / "measured.yaml")
    assert "\n" not in str(error.value)


def test_a_file_is_read_as_it_was_written(tmp_path):
    both = Measured("pocl", LOCAL, Side(1e-4, 0.5, 0.02, 0.1, 9.0, 0.4), "a machine, a day")
    (tmp_path / "measured.yaml").write_text(measured.text(both))
    assert measured.load(tmp_path / "measured.yaml") == both
