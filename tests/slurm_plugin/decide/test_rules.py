"""Partition, account, user: whose word counts for a job."""

import logging
import os
import pwd
from pathlib import Path

import pytest
from engine_in_tests import written
from machines_in_tests import BASIC, basic_config

from slurm_plugin.decide.preferences import HintRefused, read_preferences
from slurm_plugin.decide.rules import MAX_KEPT, Rules
from slurm_plugin.serve import setup

ME = pwd.getpwuid(os.getuid()).pw_name
PERSONAL = """
accounts:
  physics:
    policy: mapa-preserve
    hints: {{pattern: tree, min-utility: 0.5}}
    users_may_set: [mem]
  empty: {{}}
users:
  "4711": {{hints: {{pattern: star}}}}
  %s: {{users_may_set: [pattern, bind], policy: best-fit}}
  nobody-by-this-name: {{policy: first-fit}}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(basic_config(tmp_path, BASIC + PERSONAL % ME))


def test_without_an_account_or_user_the_partition_speaks(rules):
    assert rules("picky").users_may_set == ("pattern",)
    assert rules("gpu", "unheard-of", 12345) == rules("gpu")
    assert rules("gpu", "empty") == rules("gpu")


def test_hints_are_laid_over_each_other_key_by_key_the_users_last(rules):
    assert rules("picky", "physics").hints == {"min-utility": "0.5", "pattern": "tree"}
    assert rules("picky", "physics", 4711).hints == {"min-utility": "0.5", "pattern": "star"}
    assert rules("picky", "", 4711).hints == {"min-utility": "0.9", "pattern": "star"}


def test_policy_and_limits_are_the_most_personal_ones(rules):
    assert rules("picky", "physics").policy == "mapa-preserve"
    assert rules("picky", "physics", os.getuid()).policy == "best-fit"
    assert rules("picky", "physics", 4711).users_may_set == ("mem",)
    assert rules("picky", "physics", os.getuid()).users_may_set == ("pattern", "bind")


def test_however_many_users_ask_few_rules_are_kept(rules):
    for uid in range(40_000, 40_000 + MAX_KEPT + 5):
        assert rules("gpu", "", uid) == rules("gpu")
    assert rules._rule.cache_info().currsize == MAX_KEPT


def test_the_policies_of_accounts_and_users_are_made_ready_with_those_of_partitions(tmp_path):
    path = written(tmp_path, BASIC + PERSONAL % ME)
    names = [policy.name for policy in setup.load(path).policies()]
    assert names == ["best-fit", "first-fit", "mapa", "mapa-preserve"]
    path.write_text(path.read_text().replace("  plain: {policy: first-fit}\n", ""))
    # The user whom nobody knows still names it.
    assert [policy.name for policy in setup.load(path).policies()] == names


#: A few may try what everybody else's jobs are only observed for, and one stays out.
PILOTS = f"""
accounts:
  pilots: {{{{mode: enforce}}}}
users:
  {ME}: {{{{mode: "off"}}}}
"""


def test_the_mode_is_the_most_personal_one(tmp_path):
    rules = Rules(basic_config(tmp_path, BASIC + PILOTS))
    assert rules("watched", "physics").mode == "observe"
    assert rules("watched", "pilots").mode == "enforce"
    assert rules("watched", "pilots", os.getuid()).mode == "off"
    assert rules("gpu", "", os.getuid()).mode == "off"


def test_who_is_served_in_a_partition_that_is_off_has_its_policy_made_ready(tmp_path):
    off = (
        BASIC[: BASIC.index("partitions:")]
        + """partitions:
  default: {{mode: "off", policy: best-fit}}
"""
    )
    path = written(tmp_path, off)
    assert setup.load(path).policies() == []
    path.write_text(path.read_text() + PILOTS.format())
    assert [policy.name for policy in setup.load(path).policies()] == ["best-fit"]


def test_a_user_nobody_knows_costs_a_warning_only(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        Rules(basic_config(tmp_path, BASIC + PERSONAL % ME))
    assert "users.nobody-by-this-name: no such user" in caplog.text


def test_a_limit_counts_for_launch_keys_too(rules):
    assert read_preferences("mem=interleave", rules("gpu", "physics")).text == "mem=interleave"
    with pytest.raises(
        HintRefused, match="bind: not allowed for this job; expected one of mem, off"
    ):
        read_preferences("bind=none", rules("gpu", "physics"))


def test_launch_keys_reach_no_policy(rules):
    preferences = read_preferences("bind=none,mem=bind,pattern=tree", rules("gpu"))
    assert not preferences.request((2,), 1).options


def test_addresses_are_read(tmp_path):
    found = basic_config(tmp_path, "explain_listen: '[::1]:9400'\nmetrics_listen: localhost:9401")
    assert (found.explain_listen, found.metrics_listen) == (("::1", 9400), ("localhost", 9401))
