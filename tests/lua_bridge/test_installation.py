"""The script is loaded by slurmctld: it must load, whatever is missing or misspelt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
GPU_JOB = {"tres_per_node": "gres/gpu:2"}
OK = "ok id={id} set.req_nodes=n1\n"


def test_without_its_modules_every_job_passes_and_the_log_says_so(installed, start_lua):
    shutil.rmtree(installed / "gputopo")
    lua = start_lua(installed / "job_submit.lua")
    result = lua.submit(**GPU_JOB, comment="gpu-topo: pattern=ring")
    assert (result.rc, result.writes) == (0, [])
    assert lua.modify({}, comment="gpu-topo: x").rc == 0


def test_the_script_may_be_a_link_to_where_its_modules_are(installed, engine, tmp_path, start_lua):
    etc = tmp_path / "it's etc"
    etc.mkdir()
    (etc / "job_submit.lua").symlink_to(installed / "job_submit.lua")
    (installed / "gputopo-bridge.conf").rename(etc / "gputopo-bridge.conf")
    engine.answers(OK)
    lua = start_lua(etc / "job_submit.lua")
    assert lua.submit(**GPU_JOB).job["req_nodes"] == "n1"


def test_without_luasocket_every_job_passes(installed, engine, start_lua):
    (installed / "socket").mkdir()
    (installed / "socket" / "unix.lua").write_text("error('LuaSocket is not installed')\n")
    lua = start_lua(installed / "job_submit.lua")
    assert lua.submit(**GPU_JOB).rc == 0
    assert engine.connections == 0


def test_an_error_inside_the_bridge_never_reaches_the_user(lua, engine):
    lua.evaluate("require('gputopo.request').line = function() error('a bug') end return ''")
    result = lua.submit(**GPU_JOB)
    assert (result.rc, result.user) == (0, [])
    assert "a bug" in result.log[0]


def test_a_slurm_without_the_fields_we_know_still_submits(lua):
    lua.evaluate("broken_job = setmetatable({}, {__index = function() error('x') end}) return ''")
    assert lua.evaluate("return slurm_job_submit(broken_job, {}, 0)") == "0"


def test_settings_are_read_from_the_file_beside_the_script(installed, start_lua):
    (installed / "gputopo-bridge.conf").write_text(
        "# a comment\n\nsocket = /tmp/elsewhere.sock   # not there\ndeadline_ms=20\n"
    )
    (line,) = start_lua(installed / "job_submit.lua").submit(**GPU_JOB).log
    assert "/tmp/elsewhere.sock" in line


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("deadline_ms = 0", "line 1: 'deadline_ms = 0', expected a number from 1 to 1000"),
        ("deadline_ms = inf", "expected a number"),
        ("\nsocket = engine.sock", "line 2: 'socket = engine.sock', expected an absolute path"),
        ("socket = /" + "x" * 200, "at most 107 bytes"),
        ("sokcet = /run/x", "expected one of budget_ms"),
        ("nonsense", "expected one of budget_ms"),
    ],
)
def test_a_bad_setting_is_named_with_its_line_and_ignored(lua, text, complaint):
    chunk = (
        "local settings, complaints = require('gputopo.config').parse([==[\n%s]==], 'bridge.conf')"
        "return table.concat(complaints, ';') .. '|' .. settings.deadline_ms .. settings.socket"
    )
    complaints, _, settings = lua.evaluate(chunk % text).partition("|")
    assert complaints.startswith("bridge.conf line ")
    assert complaint in complaints
    assert settings == "50/run/gputopo/engine.sock"


SITE_SCRIPT = """
package.path = "{etc}/?.lua;" .. package.path
local found, gputopo = pcall(require, "gputopo.bridge")
function slurm_job_submit(job_desc, part_list, submit_uid)
  if not job_desc.account then
    slurm.log_user("%s", "every job needs an account")
    return slurm.ERROR
  end
  job_desc.admin_comment = "site:" .. job_desc.account
  return found and gputopo.job_submit(job_desc, part_list, submit_uid) or slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, submit_uid)
  return found and gputopo.job_modify(job_desc, job_rec, part_list, submit_uid) or slurm.SUCCESS
end
return slurm.SUCCESS
"""


def test_a_sites_own_script_calls_the_bridge(installed, engine, start_lua):
    engine.answers("ok id={id} set.admin_comment=[gpu-topo:%20ring]\n")
    site = installed / "site.lua"
    site.write_text(SITE_SCRIPT.replace("{etc}", str(installed)))
    lua = start_lua(site)
    assert lua.submit(**GPU_JOB).user == ["every job needs an account"]
    result = lua.submit(**GPU_JOB, account="phys")
    assert result.job["admin_comment"] == "site:phys [gpu-topo: ring]"


def test_the_documented_site_script_is_the_tested_one():
    documented = (REPOSITORY / "docs" / "lua-bridge.md").read_text()
    calls = [line for line in SITE_SCRIPT.splitlines() if "gputopo" in line and "{etc}" not in line]
    assert len(calls) == 3
    for call in calls:
        assert call.strip() in documented
    # The modules of the package, lest an upgrade leave copies behind.
    line = 'package.path = "{}/?.lua;" .. package.path'
    assert line.format("/usr/lib/slurm-gputopo/lua_bridge") in documented
    assert line.format("/etc/slurm") not in documented


def test_the_no_op_script_of_the_benchmark_does_nothing(start_lua):
    lua = start_lua(
        REPOSITORY / "slurm_cluster" / "docker" / "image" / "etc" / "noop_job_submit.lua"
    )
    result = lua.submit(**GPU_JOB, comment="gpu-topo: x")
    assert (result.rc, result.reads, result.writes) == (0, [], [])
    assert lua.modify({}, comment="x").rc == 0
