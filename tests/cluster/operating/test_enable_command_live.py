"""`gputopo enable` and `disable` on a stock controller: jobs get our GPUs, then Slurm's again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_harness import got_by
from select_harness import stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult
from slurm_plugin.slurm.slurm_conf import PLUGIN_DIR, parse

pytestmark = [pytest.mark.cluster]

PAIR = ("-w", "dgx1", "--gres=gpu:2")
#: Without clusterctl, which would put job_submit.lua where the variant wants it.
RESTART = """clusterctl slurmctld stop && slurmctld && touch /run/cluster-wanted/slurmctld
for try in $(seq 300); do scontrol ping | grep -q 'is UP' && exit; sleep 0.1; done; exit 1"""
#: The folders of slurm.conf with every file's checksum or target.
FILES = r"""cd /; for f in cluster etc/slurm; do
find $f -maxdepth 1 -type l -printf '%p %l\n' -o -type f -printf '%p %m %u ' -exec sha256sum {} \;
done | sort"""


@pytest.fixture
def stock(cluster: Cluster) -> Iterator[Cluster]:
    """Nothing of ours in slurmctld; the engine runs. The reset behind the test undoes the rest."""
    cluster.switch("stock")
    yield cluster
    cluster.switch("stock")


def gputopo(cluster: Cluster, *args: str, check: bool = True) -> CommandResult:
    return cluster.run("ctl", ["gputopo", *args], check=check)


def wrong(cluster: Cluster) -> list[str]:
    """What doctor finds to fix."""
    output = json.loads(gputopo(cluster, "doctor", "--json", check=False).out)
    return [finding["text"] for finding in output["findings"] if finding["level"] == "fail"]


@pytest.mark.select_plugin
def test_enable_restart_disable_restart(stock):
    """Every byte, owner and mode of slurm.conf's folders is as before; so are the GPUs of a job."""
    before = stock.run("ctl", FILES).out
    assert got_by(stock, *PAIR) == stock_pair(stock)
    shown = gputopo(stock, "enable").out
    assert "+PluginDir=/usr/local/lib:" in shown
    assert stock.run("ctl", FILES).out == before
    done = gputopo(stock, "enable", "--apply").out
    assert done.endswith("next: systemctl restart slurmctld; gputopo doctor\n")
    # Not restarted yet, slurmctld goes on as it was.
    assert got_by(stock, *PAIR) == stock_pair(stock)
    stock.run("ctl", RESTART)
    assert wrong(stock) == []
    assert got_by(stock, *PAIR) == {"dgx1": (0, 3)}
    assert gputopo(stock, "enable", "--apply").out.startswith("nothing to do")
    gputopo(stock, "disable", "--apply")
    assert stock.run("ctl", FILES).out == before
    stock.run("ctl", RESTART)
    assert got_by(stock, *PAIR) == stock_pair(stock)


@pytest.mark.select_plugin
def test_a_controller_that_could_not_start_is_not_made(stock):
    """No LuaSocket, or a job_submit.lua of the site's own: refused, and nothing is changed."""
    with stock.temporarily(
        "for v in /usr/lib/*/lua/5.*/socket; do mv $v $v.away; done",
        "for v in /usr/lib/*/lua/5.*/socket.away; do mv $v ${v%.away}; done",
    ):
        refused = gputopo(stock, "enable", "--apply", check=False)
        assert refused.code == 2
        assert "module 'socket.unix' not found" in refused.out
    before = stock.run("ctl", FILES).out
    with stock.temporarily(
        "echo 'return slurm.SUCCESS' >/etc/slurm/job_submit.lua", "rm /etc/slurm/job_submit.lua"
    ):
        refused = gputopo(stock, "enable", "--apply", check=False)
        assert refused.code == 2
        assert "/etc/slurm/job_submit.lua is there and does not load ours" in refused.out
    assert stock.run("ctl", FILES).out == before


@pytest.mark.slots
def test_with_slots_job_submit_alone_is_written(cluster):
    """GRES types and the bridge's settings are there; lua and the script are what is missing."""
    with cluster.variant_as("gputopo-slots"):
        cluster.run(
            "ctl", "rm /etc/slurm/job_submit.lua; sed -i /^JobSubmitPlugins/d /cluster/slurm.conf"
        )
        before = cluster.run("ctl", FILES).out
        shown = gputopo(cluster, "enable", "--apply").out
        assert "+JobSubmitPlugins=lua" in shown
        assert "PluginDir" not in shown
        cluster.run("ctl", RESTART)
        assert wrong(cluster) == []
        assert got_by(cluster, "-w", "dgx1", "--gres=gpu:v100:2") == {"dgx1": (0, 3)}
        left = cluster.run("ctl", ["gputopo", "disable", "--apply"], check=False)
        assert left.code == 1
        assert "EpilogSlurmctld names " in left.out
        assert cluster.run("ctl", FILES).out == before


#: PluginDir as people write it. What Slurm took it for stands in its complaint about that folder.
ODD = {
    "any case": "PLUGINDIR=/zz/1\n",
    "spaces and a comment": " PluginDir \t= /zz/1\t# ours: later\n",
    "a comment without a space": "PluginDir=/zz/1#:/old\n",
    "quotes": 'PluginDir="/zz/1:/a b"\n',
    "given twice": "PluginDir=/zz/old\nPluginDir=/zz/1\n",
    "a key in a continued line": "PriorityFlags= \\\nPluginDir=/zz/no\nPluginDir=/zz/1\n",
    "a comment that ends in a backslash": "# A \\\nPluginDir=/zz/1\n",
    "lines as Windows ends them": "PluginDir=/zz/1\r\nMaxJobCount=5\r\n",
    "included": "include\t/tmp/odd/more.inc\nMaxJobCount=5\n",
    "included by ClusterName": "INCLUDE %cre.inc # x\n",
    "included by a joined line": "Include \\\n  more.inc\n",
    "set behind the included file": "Include more.inc\nPluginDir=/zz/1\n",
    "an escaped #": "SlurmctldParameters=a\\#1 \\\\# x\nPluginDir=/zz/1\n",
}


def test_slurm_conf_is_read_as_slurm_reads_it(cluster):
    """Our parser and Slurm's take the same PluginDir out of the same text."""
    head = "ClusterName=Mo\nSlurmctldHost=ctl\nNodeName=n1\nPartitionName=p Nodes=n1\n"
    with cluster.temporarily("mkdir /tmp/odd", "rm -r /tmp/odd"):
        cluster.put("ctl", "/tmp/odd/more.inc", "PluginDir=/zz/included\n")
        texts = {Path("/tmp/odd/more.inc"): "PluginDir=/zz/included\n"}
        for name, text in ODD.items():
            cluster.put("ctl", "/tmp/odd/slurm.conf", head + text)
            said = cluster.run("ctl", "SLURM_CONF=/tmp/odd/slurm.conf scontrol ping", check=False)
            ours = parse(
                Path("/tmp/odd/slurm.conf"),
                (texts | {Path("/tmp/odd/slurm.conf"): head + text}).__getitem__,
            ).last(PLUGIN_DIR)
            assert ours, name
            assert f'"{ours.value}"' in said.err, f"{name}: {said.err}"


def test_init_names_the_gpu_nodes_that_slurm_has(stock):
    """In a file of its own, which is a configuration that observes."""
    try:
        gputopo(stock, "init", "--config", "/tmp/first.yaml", "--apply")
        rows = json.loads(stock.run("ctl", "scontrol show nodes --json").out)["nodes"]
        with_gpus = {row["name"] for row in rows if "gpu:" in row["gres"]}
        check = gputopo(stock, "config", "check", "/tmp/first.yaml", "--json")
        assert json.loads(check.out)["nodes"] == len(with_gpus)
        text = stock.run("ctl", "cat /tmp/first.yaml").out
        assert "{mode: observe}" in text
        assert "dgx[1-2]" in text
        again = gputopo(stock, "init", "--config", "/tmp/first.yaml", "--apply", check=False)
        assert "names nodes already" in again.err
        assert stock.run("ctl", "cat /tmp/first.yaml").out == text
    finally:
        stock.run("ctl", "rm -f /tmp/first.yaml")
