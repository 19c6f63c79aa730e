"""Debian's Prometheus on this machine, scraping the engine of a cluster every second."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from live_harness import CONFIG

import slurm_plugin
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from tests.processes import free_port

MONITORING = Path(slurm_plugin.__file__).parent / "tell" / "monitoring"
PORT = 9401
#: What gputopo.yaml says for these tests.
LINES = f"metrics_listen: 0.0.0.0:{PORT}\nmetrics_read_s: 1\n"
#: What stands for the variables of the dashboards.
VARIABLES = {"$instance": ".*", "$__rate_interval": "2m", "$__range": "10m"}
#: Windows of the alert rules in these tests, and how long a fault has to last.
WINDOW, FOR = "20s", "2s"
#: Where the packages of the engine lie in ctl.
SITE_PACKAGES = "/opt/gputopo/lib/python3*/site-packages"


class Prometheus:
    """One that runs, asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that a query gives now; those that are no number are left out."""
        url = f"{self._url}/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            found = json.load(reply)["data"]["result"]
        return [one for one in found if one["value"][1] != "NaN"]

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}


def panels() -> dict[str, list[str]]:
    """The queries of each panel of the dashboards, by `DASHBOARD: TITLE`."""
    found = {}
    for path in MONITORING.glob("dashboards/*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            queries = [target["expr"] for target in panel["targets"]]
            for name, value in VARIABLES.items():
                queries = [text.replace(name, value) for text in queries]
            found[f"{path.stem}: {panel['title']}"] = queries
    return found


def hasty_rules() -> dict[str, Any]:
    """The alert rules, with seconds for their minutes and hours."""
    rules: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = re.sub(r"\[\d+m\]", f"[{WINDOW}]", rule["expr"])
        if "for" in rule:
            rule["for"] = FOR
    return rules


@contextmanager
def prometheus(cluster: Cluster, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the engine, which must have LINES in its gputopo.yaml."""
    networks = cluster.container("ctl").attrs["NetworkSettings"]["Networks"]
    address = next(iter(networks.values()))["IPAddress"]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": "gputopo", "static_configs": [{"targets": [f"{address}:{PORT}"]}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (folder / "alerts.yaml").write_text(yaml.safe_dump(hasty_rules()))
    port = free_port()
    command = [
        *("prometheus", f"--config.file={folder}/prometheus.yaml"),
        *(f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"),
        "--log.level=warn",
    ]
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            made = Prometheus(port)
            until(lambda: is_scraping(made), lambda: (folder / "prometheus.log").read_text(), 60)
            yield made
        finally:
            process.terminate()


def is_scraping(asked: Prometheus) -> bool:
    try:
        return bool(asked.query("gputopo_build_info"))
    except OSError:
        return False


@contextmanager
def metrics_in(cluster: Cluster, lines: str = "") -> Iterator[None]:
    """The engine of the cluster with prometheus_client, LINES and these lines."""
    import prometheus_client

    site = cluster.run("ctl", f"echo {SITE_PACKAGES}").out.strip()
    before = cluster.read("ctl", CONFIG)
    source = Path(prometheus_client.__file__).parent
    cluster.put_folder("ctl", f"{site}/prometheus_client", source)
    cluster.put("ctl", CONFIG, before + LINES + lines)
    try:
        cluster.engine("restart")
        cluster.wait_reconciled()
        yield
    finally:
        cluster.put("ctl", CONFIG, before)
        cluster.run("ctl", f"rm -rf {site}/prometheus_client")
        cluster.engine("restart")
        cluster.wait_reconciled()
