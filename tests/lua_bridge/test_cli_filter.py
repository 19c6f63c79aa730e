"""The script for srun and salloc: a model in the options becomes a constraint."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "lua_bridge" / "cli_filter.lua"
CALL = """
slurm = { SUCCESS = 0 }
dofile(arg[1])
local options = {}
for i = 2, #arg do
  local name, value = arg[i]:match("^([^=]+)=(.*)$")
  options[name] = value
end
assert(slurm_cli_setup_defaults(options, false) == 0)
assert(slurm_cli_pre_submit(options, 0) == 0)
assert(slurm_cli_post_submit(0, 1, 0) == 0)
for name, value in pairs(options) do print(name .. "=" .. value) end
"""


def filtered(*options: str, script: Path = SCRIPT, **env: str) -> set[str]:
    """The options after the script."""
    done = subprocess.run(
        ["lua5.1", "-", str(script), *options],
        input=CALL,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["gpus=v100:2"], {"gpus=2", "constraint=v100"}, id="--gpus"),
        pytest.param(["gpus-per-node=v100"], {"gpus-per-node=1", "constraint=v100"}, id="per node"),
        pytest.param(
            ["gpus-per-task=v100:1", "constraint=ib"],
            {"gpus-per-task=1", "constraint=ib&v100"},
            id="with a constraint",
        ),
        pytest.param(
            ["gres=nvme:1,gpu:v100:2"], {"gres=nvme:1,gpu:2", "constraint=v100"}, id="--gres"
        ),
        pytest.param(["gpus=2", "gres=gpu:2"], {"gpus=2", "gres=gpu:2"}, id="no model"),
        pytest.param(["ntasks=4"], {"ntasks=4"}, id="no GPUs"),
        pytest.param(["gpus=v100:1,a100:1"], {"gpus=v100:1,a100:1"}, id="two models"),
        pytest.param(["gpus=v100.s3:1"], {"gpus=v100.s3:1"}, id="a particular GPU"),
        pytest.param(["gres=gpu:1g.5gb:1"], {"gres=gpu:1g.5gb:1"}, id="MIG"),
        pytest.param(
            ["gpus=v100:2", "constraint=[a|b]"],
            {"gpus=v100:2", "constraint=[a|b]"},
            id="a constraint that cannot be joined",
        ),
    ],
)
def test_options_become(options: list[str], expected: set[str]) -> None:
    assert filtered(*options) == expected


def test_a_step_inside_a_job_gets_no_constraint() -> None:
    """Its nodes are chosen; Slurm would wait for others for ever."""
    assert filtered("gpus=v100:1", SLURM_JOB_ID="7") == {"gpus=1"}


def test_without_its_modules_the_options_stay(tmp_path: Path) -> None:
    alone = tmp_path / "cli_filter.lua"
    alone.write_text(SCRIPT.read_text())
    assert filtered("gpus=v100:2", script=alone) == {"gpus=v100:2"}
