"""Dashboards and alert rules: they name metrics that exist, and promtool reads and tries the rules.

tests/cluster/operating/test_monitoring_live.py asks a real Prometheus for each of them.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_plugin.serve.metric_families import FAMILIES

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "slurm_plugin" / "tell" / "monitoring"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("dashboards/*.json")}
PANELS = [(name, panel) for name, board in DASHBOARDS.items() for panel in board["panels"]]
ALERTS = FOLDER / "alerts.yaml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]

#: What Prometheus shows of each metric, and its labels.
LABELS = {"up": {"job"}} | {
    family.exposed + suffix: {*family.labels, "instance", "le"}
    for family in FAMILIES
    for suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",))
}
_SELECTOR = re.compile(r"\b(gputopo_\w+|up)(?:\{([^}]*)\})?")

every_panel = pytest.mark.parametrize(
    ("name", "panel"), PANELS, ids=[f"{name}: {panel['title']}" for name, panel in PANELS]
)
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
with_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


def check(expression: str) -> None:
    """Its metrics are in the table, and have the labels that it selects by."""
    for metric, matchers in _SELECTOR.findall(expression):
        assert metric in LABELS, expression
        used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)))
        assert used <= LABELS[metric], expression


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_what_grafana_takes(name):
    board = DASHBOARDS[name]
    assert board["uid"] == f"gputopo-{name}"
    assert board["title"]
    assert board["schemaVersion"] >= 36
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "instance"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in board["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells), "panels lie on each other"
    assert max(x for x, _ in cells) < 24


@every_panel
def test_a_panel_asks_for_metrics_that_exist(name, panel):
    assert panel["description"].endswith(".")
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]
    for target in panel["targets"]:
        check(target["expr"])
        selectors = _SELECTOR.findall(target["expr"])
        # Memory and the like are those of our engine's process alone.
        assert all("$instance" in matchers for _, matchers in selectors if matchers)
        assert "$instance" in target["expr"]


@every_rule
def test_an_alert_asks_for_metrics_that_exist_and_says_what_to_do(rule):
    check(rule["expr"])
    assert rule["labels"]["severity"] in ("info", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert f"| `{rule['alert']}` |" in page


def test_every_metric_is_looked_at_by_a_panel_or_an_alert():
    asked = [target["expr"] for _, panel in PANELS for target in panel["targets"]]
    asked += [rule["expr"] for rule in RULES]
    used = {metric for text in asked for metric, _ in _SELECTOR.findall(text)}
    unused = [
        family.exposed
        for family in FAMILIES
        if not used & {family.exposed, f"{family.exposed}_bucket", f"{family.exposed}_count"}
    ]
    assert unused == []


#: Alert -> series a minute apart under which it fires in the end, and under which it does not.
TRIED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "GputopoEngineDown": ({'up{job="gputopo"}': "0x90"}, {'up{job="gputopo"}': "1x90"}),
    "GputopoSwitchedOff": ({"gputopo_switched_off": "1x90"}, {"gputopo_switched_off": "1x30 0x60"}),
    "GputopoNobodyInCharge": (
        {'gputopo_in_charge{job="gputopo",instance="a"}': "0x90",
         'gputopo_in_charge{job="gputopo",instance="b"}': "0x90"},
        {'gputopo_in_charge{job="gputopo",instance="a"}': "0x90",
         'gputopo_in_charge{job="gputopo",instance="b"}': "1x90"},
    ),
    "GputopoReloadFailed": (
        {"gputopo_config_reloaded": "0x90"},
        {"gputopo_config_reloaded": "0x10 1x80"},
    ),
    "GputopoAnswersLate": (
        {"gputopo_late_total": "0+2x90", 'gputopo_messages_total{verb="place"}': "0+100x90"},
        {"gputopo_late_total": "0+2x90", 'gputopo_messages_total{verb="place"}': "0+300x90"},
    ),
    "GputopoNotAsked": (
        {"gputopo_started_undecided_total": "0+6x90", "gputopo_started_total": "0+10x90"},
        {"gputopo_started_undecided_total": "0+4x90", "gputopo_started_total": "0+10x90"},
    ),
    "GputopoSlurmUnreachable": (
        {'gputopo_slurm_read_seconds_count{result="failed"}': "0+1x90",
         'gputopo_slurm_read_seconds_count{result="ok"}': "7x90"},
        {'gputopo_slurm_read_seconds_count{result="failed"}': "0+1x90",
         'gputopo_slurm_read_seconds_count{result="ok"}': "7+1x90"},
    ),
    "GputopoDecisionsNotLogged": (
        {"gputopo_log_lost_total": "0+1x90"},
        {"gputopo_log_lost_total": "9x90"},
    ),
    "GputopoDonorsLeft": (
        {"gputopo_donors_orphaned": "2x90"},
        {"gputopo_donors_orphaned": "0x85 1x5"},
    ),
    "GputopoLoansLost": (
        {'gputopo_loan_events_total{event="lost"}': "0x85 1x5"},
        {'gputopo_loan_events_total{event="lost"}': "3x90",
         'gputopo_loan_events_total{event="lent"}': "0+1x90"},
    ),
    "GputopoFoldersNotWritable": (
        {"gputopo_folders_not_writable": "1x90"},
        {"gputopo_folders_not_writable": "0x90"},
    ),
    "GputopoNodesLeftToSlurm": (
        {"gputopo_nodes_left_to_slurm": "1x90"},
        {"gputopo_nodes_left_to_slurm": "1x20 0x70"},
    ),
    "GputopoGpusStranded": (
        {"gputopo_gpus_stranded": "3x90", 'gputopo_gpus{state="used"}': "37x90",
         'gputopo_gpus{state="free"}': "3x90"},
        {"gputopo_gpus_stranded": "2x90", 'gputopo_gpus{state="used"}': "37x90",
         'gputopo_gpus{state="free"}': "3x90"},
    ),
}  # fmt: skip


#: The series of an alert that fires.
FIRING = 'ALERTS{alertname="%s",alertstate="firing"}'


def promtool(*words: object) -> None:
    done = subprocess.run(["promtool", *map(str, words)], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@with_promtool
def test_promtool_finds_nothing_wrong_with_the_rules():
    promtool("check", "rules", ALERTS)


@with_promtool
def test_each_alert_fires_by_the_series_of_its_fault_and_by_no_others(tmp_path):
    assert TRIED.keys() == {rule["alert"] for rule in RULES}
    tests: list[dict[str, Any]] = [
        {
            "interval": "1m",
            "input_series": [{"series": key, "values": text} for key, text in series.items()],
            "promql_expr_test": [
                {
                    "expr": f"count({FIRING % alert}) or vector(0)",
                    "eval_time": "90m",
                    "exp_samples": [{"labels": "{}", "value": int(is_faulty)}],
                }
            ],
        }
        for alert, pair in TRIED.items()
        for series, is_faulty in zip(pair, (True, False), strict=True)
    ]
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": tests}))
    promtool("test", "rules", path)
