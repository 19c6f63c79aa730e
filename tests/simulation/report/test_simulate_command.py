"""`gputopo simulate` answers in one table, one page, one CSV and one JSON."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from gres_topology import catalog
from policies.registry import DEFAULT
from simulation.stock import STOCK
from slurm_plugin.cli import cli
from slurm_plugin.learn.collected import NodeRecord, Store

ASSETS = Path(__file__).parent.parent / "traces" / "assets"
NODES = "nodes:\n  - {nodes: 'd[1-2]', topology: dgx1v}\n  - {nodes: p1, topology: pair.yaml}\n"
PAIR = "name: pair\nsource: a test\nmodel: T\nrates: {pcie: 3}\ngpus: 2\nother_links: PHB\n"


@pytest.fixture
def simulate(tmp_path):
    """Runs the command on the recorded export, or on other files."""
    (tmp_path / "cluster.yaml").write_text(NODES)
    (tmp_path / "pair.yaml").write_text(PAIR)

    def run(*more, rows="", log="log.csv", cluster=tmp_path / "cluster.yaml"):
        trace = tmp_path / log if rows else ASSETS / "sacct-24.11.json.gz"
        if rows:
            trace.write_text(f"job_id,submit_s,duration_s,gpus\n{rows}")
        arguments = ["simulate", "--trace", str(trace), "--cluster", str(cluster), *more]
        return CliRunner().invoke(cli, [*map(str, arguments)])

    return run


def test_every_policy_is_a_column_and_what_was_left_out_is_said(simulate):
    done = simulate("--policy", "mapa", "--policy", "first-fit")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "18 jobs on 3 nodes, 18 GPUs (sacct-json)"
    assert "  1 left out: still running" in lines
    assert next(line.split() for line in lines if "first-fit" in line) == ["mapa", "first-fit"]
    assert "(7 more figures: --html, --json)" in lines
    makespan = next(line for line in lines if line.startswith("makespan"))
    assert makespan.count(" s") == 2


def test_without_a_policy_the_default_stands_beside_stock_slurm(simulate):
    lines = simulate().output.splitlines()
    assert next(line.split() for line in lines if "stock" in line) == ["stock", DEFAULT]


def test_nodes_that_features_declare_are_those_that_the_engine_found(simulate, tmp_path):
    (tmp_path / "site.yaml").write_text(
        f"state_dir: {tmp_path}\nnodes:\n"
        "  - {features: v100, topology: dgx1v}\n  - {features: h100, topology: dgx1v}\n"
    )
    (tmp_path / "nodes-by-feature.json").write_text('{"v100": ["d1", "d2"]}')
    done = simulate("--policy", "best-fit", cluster=tmp_path / "site.yaml")
    assert "jobs on 2 nodes, 16 GPUs" in done.output
    assert "site.yaml:4: no node is known with h100; name them in a host list" in done.output


def test_nodes_that_were_collected_are_as_they_were_found(simulate, tmp_path):
    store = Store(tmp_path)
    key = store.keep(catalog.load("dgx1v"))
    store.save({name: NodeRecord(key, key, "2026-11-30") for name in ("d1", "d2")})
    (tmp_path / "site.yaml").write_text(
        f"state_dir: {tmp_path}\nnodes:\n  - {{nodes: 'd[1-3]', topology: collected}}\n"
    )
    done = simulate("--policy", "best-fit", cluster=tmp_path / "site.yaml")
    assert "jobs on 2 nodes, 16 GPUs" in done.output
    assert "site.yaml:3: 1 nodes are left out until gputopo topology collect" in done.output


def test_the_logs_own_waits_stand_beside_the_simulated_ones(simulate, tmp_path):
    """The recorded export's jobs waited seconds; here is a log whose jobs waited for hours."""
    head = "JobID|User|State|Submit|Start|End|AllocTRES\n"
    row = "{}|ada|COMPLETED|{}|{}|{}|gres/gpu=1\n"
    for start, said in (
        (50, "In the log itself they waited 0.0 s on average, 95 of 100 at most 0.0 s."),
        (7250, "Under the simulated stock it is 0.0 s: nodes, limits, outages or other jobs"),
    ):
        log = tmp_path / "log.txt"
        log.write_text(head + "".join(row.format(k, 50, start, start + 60) for k in range(1, 5)))
        found = simulate("--trace", log).output
        assert said in " ".join(found.split())
    assert json.loads(simulate("--json", "--trace", log).output)["log_waits"] == {
        "wait_mean_s": 7200.0,
        "wait_p95_s": 7200.0,
    }
    assert json.loads(simulate("--json", rows="1,0,5,2\n").output)["log_waits"] == {}


def test_the_json_names_every_rejected_row_and_the_table_how_many(simulate):
    rows = "1,0,5,2\n2,0,5,9\n3,0,x,1\n"
    assert "  2 rows cannot be used" in simulate("--policy", "mapa", rows=rows).output.splitlines()
    found = json.loads(simulate("--json", "--policy", "mapa", rows=rows).output)
    assert found["jobs"] == 1
    assert found["rejected"] == [
        {"where": "line 4", "reason": "duration_s is 'x'; expected seconds, 0 or more"},
        {"where": "job 2", "reason": "9 GPUs on 1 nodes: not on this cluster"},
    ]
    assert found["policies"]["mapa"]["makespan_s"] == 5.0
    assert found["policies"]["mapa"]["bandwidth_share"] == 1.0


def test_under_a_slurm_conf_cpus_limits_and_partitions_count(simulate, tmp_path):
    """Two jobs of one GPU on a node of four CPUs: three and two of them are too many at once."""
    (tmp_path / "one.yaml").write_text("nodes: [{nodes: d1, topology: dgx1v}]\n")
    (tmp_path / "slurm.conf").write_text(
        "NodeName=d1 CPUs=4 RealMemory=1000\nPartitionName=a Nodes=d1 Default=YES MaxTime=2\n"
    )
    log = tmp_path / "cpus.csv"
    log.write_text("job_id,submit_s,duration_s,gpus,cpus\n1,0,500,1,3\n2,0,50,1,2\n")
    words = ["simulate", "--trace", log, "--cluster", tmp_path / "one.yaml", "--policy", "mapa"]
    conf = ["--slurm-conf", tmp_path / "slurm.conf"]
    free, bound = (
        json.loads(CliRunner().invoke(cli, [*map(str, [*words, *more, "--json"])]).output)
        for more in ([], conf)
    )
    assert free["policies"]["mapa"]["wait_mean_s"] == 0
    assert bound["policies"]["mapa"]["wait_mean_s"] == 60  # job 1 is killed at its limit of 120 s
    said = CliRunner().invoke(cli, [*map(str, words + conf)]).output
    assert "not simulated" not in said
    assert "not modelled" not in said
    conf_text = (tmp_path / "slurm.conf").read_text()
    (tmp_path / "slurm.conf").write_text(f"SchedulerParameters=defer,max_job_bf=5,x\n{conf_text}")
    told = CliRunner().invoke(cli, [*map(str, words + conf)])
    assert told.exit_code == 0
    assert "not modelled of SchedulerParameters: max_job_bf, x" in told.stderr
    log.write_text("job_id,submit_s,duration_s,gpus,walltime_s\napplication_7,0,500,1,999\n")
    over = CliRunner().invoke(cli, [*map(str, words + conf)])
    assert "job application_7 asks for 999 s; its partition's MaxTime is 120 s" in over.output
    (tmp_path / "slurm.conf").write_text("PartitionName=a MaxTime=soon\n")
    wrong = CliRunner().invoke(cli, [*map(str, words + conf)])
    assert wrong.exit_code
    assert "line 1: 'soon' is no time" in wrong.output


def test_the_table_has_what_is_stranded_and_the_largest_job_that_fits(simulate, tmp_path):
    """Two of eight run for 10 s, then three nodes' 8, 8 and 2 are free, and two 8-GPU jobs fit."""
    rows = "1,0,10,2\n2,20,5,1\n"
    found = json.loads(simulate("--json", "--policy", "best-fit", rows=rows).output)
    figures = found["policies"]["best-fit"]
    assert figures["largest_gpus"] == 16
    assert figures["stranded_share"] == 0
    said = simulate("--policy", "best-fit", rows=rows).output
    assert re.search(r"^largest job that fits +16$", said, re.MULTILINE)
    together = json.loads(simulate("--json", rows="1,3,5,2\n").output)["policies"]["stock"]
    assert together["stranded_share"] is together["largest_gpus"] is None


def test_jobs_of_several_nodes_hang_together_where_the_cluster_names_its_network(
    simulate, tmp_path
):
    cluster, out = tmp_path / "four.yaml", tmp_path / "out.csv"
    cluster.write_text("nodes: [{nodes: 'd[1-4]', topology: dgx1v}]\ntopology_conf: blocks.conf\n")
    (tmp_path / "log.csv").write_text(
        "job_id,submit_s,duration_s,gpus,nodes\n1,0,99,8,1\n2,1,9,16,2\n"
    )
    options = ("--csv", out, "--policy", "mapa", "--trace", tmp_path / "log.csv")

    def nodes_of_both() -> list[set[str]]:
        done = simulate(*options, cluster=cluster)
        assert done.exit_code == 0, done.output
        said.append(done.output)
        rows = csv.DictReader(out.open())
        return [{part.split(":")[0] for part in row["gpus"].split(" ")} for row in rows]

    said: list[str] = []
    assert nodes_of_both() == [{"d1"}, {"d2", "d3"}]
    assert f"{tmp_path / 'blocks.conf'}: not there; all nodes are alike" in said[0]
    (tmp_path / "blocks.conf").write_text("BlockName=a Nodes=d[1-2]\nBlockName=b Nodes=d[3-4]\n")
    assert nodes_of_both() == [{"d1"}, {"d3", "d4"}]


def test_the_csv_has_every_job_under_every_policy(simulate, tmp_path):
    out = tmp_path / "out.csv"
    simulate("--csv", out, "--policy", "mapa", "--policy", "best-fit")
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 36
    for row in rows:
        assert float(row["end_s"]) >= float(row["start_s"]) >= float(row["submit_s"])
        assert row["gpus"].split(":")[0] in {"d1", "d2", "p1"}


def pictures_of(page):
    return ["<svg" + part.split("</svg>")[0] + "</svg>" for part in page.split("<svg")[1:]]


def titles(page):
    return [re.search("<title>(.*?)</title>", picture).group(1) for picture in pictures_of(page)]


def test_the_page_stands_alone_and_begins_with_words(simulate, tmp_path):
    out = tmp_path / "report.html"
    assert simulate("--html", out, "--policy", "mapa", "--policy", "best-fit").exit_code == 0
    text = out.read_text()
    advice = text.index("No recommendation: 18 jobs are too few")
    assert advice < text.index("<table>")
    for picture in pictures_of(text):
        ElementTree.fromstring(picture)
        text = text.replace(picture, "")
    for word in ("http://", "https://", "<script", "<link"):
        assert word not in text
    assert "1 left out: still running" in text
    assert "The rows" not in text


def test_few_jobs_are_drawn_by_gpu_and_many_by_node_in_natural_order(simulate, tmp_path):
    out, cluster = tmp_path / "report.html", tmp_path / "many.yaml"
    cluster.write_text("nodes: [{nodes: 'h[1-12]', topology: dgx1v}]\n")
    few = "".join(f"{n},{n},60,4\n" for n in range(20))
    assert simulate("--html", out, "--policy", "mapa", rows=few).exit_code == 0
    assert titles(out.read_text())[-1] == "Who held which GPU: mapa"
    assert simulate("--html", out, "--policy", "mapa", rows=few, cluster=cluster).exit_code == 0
    page = out.read_text()
    assert titles(page)[-1] == "GPUs in use: mapa"
    names = re.findall(r">(h\d+)</text>", pictures_of(page)[-1])
    assert names == [f"h{n}" for n in range(1, 13)]


def test_where_durations_hold_on_any_gpus_no_slowdown_is_drawn(simulate, tmp_path):
    """Thirds of seconds as durations: the ends' rounding made slowdowns of 1 + 1e-16."""
    out = tmp_path / "report.html"
    rows = "".join(f"{n},{n / 3},{n / 7 + 1},3\n" for n in range(50))
    assert simulate("--html", out, "--policy", "first-fit", rows=rows).exit_code == 0
    assert "Run time against the best GPUs" not in titles(out.read_text())
    assert simulate("--html", out, "--communication", "0.9", rows=rows).exit_code == 0
    assert "Run time against the best GPUs" in titles(out.read_text())


def test_months_are_told_in_days(simulate, tmp_path):
    out = tmp_path / "report.html"
    rows = "".join(f"{n},{n * 86400},86400,8\n" for n in range(90))
    assert simulate("--html", out, rows=rows).exit_code == 0
    axes = re.findall(r'text-anchor="middle">(\w+)</text>', out.read_text())
    assert "days" in axes
    assert "seconds" not in axes


def test_names_from_a_log_cannot_write_html(simulate, tmp_path):
    """A file's name, a job's (it stands in the picture), a bad field."""
    out = tmp_path / "report.html"
    rows = "<i>$x_$y,0,5,2\n2,0,<script>,1\n"
    assert simulate("--html", out, log="<b>log.csv", rows=rows).exit_code == 0
    text = out.read_text()
    assert not {word for word in ("<script>", "<b>log", "<i>") if word in text}
    assert "line 3: duration_s is &#x27;&lt;script&gt;&#x27;; expected" in text


def test_communication_makes_bad_links_cost_time(simulate, tmp_path):
    def makespan(policy, *more):
        output = simulate("--json", "--policy", policy, *more, rows="1,0,100,2\n").output
        return json.loads(output)["policies"][policy]["makespan_s"]

    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{nodes: d1, topology: dgx1v}]\n")
    assert makespan("first-fit") == 100.0
    assert makespan("mapa", "--communication", "0.4") == 100.0
    assert makespan("first-fit", "--communication", "0.4") > 110.0


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("nodes: []", "no list `nodes`; expected nodes:"),
        ("nodes: [{nodes: a}]", "bad.yaml:1: nodes[0].topology: missing; A machine of the catalog"),
        ("nodes: [{nodes: 'a[', topology: dgx1v}]", "nodes[0].nodes:"),
        ("nodes: [{nodes: a, topology: nothing}]", "nothing"),
        ("nodes: [{nodes: 'a,a', topology: dgx1v}, {nodes: a, topology: dgx1v}]", "a was already"),
        ("nodes: [", "not YAML"),
    ],
)
def test_a_bad_cluster_file_is_one_line(simulate, tmp_path, nodes, said):
    bad = tmp_path / "bad.yaml"
    bad.write_text(nodes)
    done = simulate(cluster=bad)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.count("\n") == 1


def test_an_unknown_policy_lists_the_known_ones(simulate):
    done = simulate("--policy", "best")
    assert done.exit_code == 2
    assert "no policy named 'best': expected one of mapa" in done.output


@pytest.mark.parametrize("kind", STOCK)
def test_stock_slurm_is_a_column_of_its_own(simulate, kind):
    """On an empty DGX-1V it is 0,1,2; with Links and `--gpus` 0,2,3, whose links are the best."""
    done = simulate("--json", "--policy", kind, rows="1,0,5,3\n")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["policies"][kind]
    best = kind == "stock-gpus"
    assert (found["bandwidth_share"] == 1.0) is best


def test_a_log_of_jobs_without_gpus_says_so(simulate):
    done = simulate(rows="1,0,5,0\n")
    assert done.exit_code == 2
    assert "no job can be simulated (1 left out: jobs without GPUs)" in done.output


def test_a_log_without_a_usable_job_says_why(simulate):
    done = simulate(rows="1,0,5,99\n")
    assert done.exit_code == 2
    assert "no job can be simulated (job 1: 99 GPUs on 1 nodes: not on this cluster)" in done.output


def test_the_same_log_gives_the_same_answer(simulate):
    first, second = (
        json.loads(simulate("--json", "--policy", "mapa").output)["policies"]["mapa"]
        for _ in range(2)
    )
    for metric in set(first) - {"decision_median_s", "decision_max_s"}:
        assert first[metric] == second[metric]


WALLTIMES = "job_id,submit_s,duration_s,gpus,walltime_s,user\n"
#: On a pair of GPUs: one is in use, the next job wants both, two short ones come, one long one.
QUEUE = "1,0,1000,1,1000,a\n2,10,50,2,500,b\n3,20,30,1,600,c\n4,21,30,1,601,c\n5,60,30,1,600,c\n"


def starts(simulate, tmp_path, *more):
    """When each job of the queue starts, strictly first in, first out but for what `more` says."""
    (tmp_path / "pair-alone.yaml").write_text("nodes:\n  - {nodes: p1, topology: pair.yaml}\n")
    (tmp_path / "queue.csv").write_text(WALLTIMES + QUEUE)
    arguments = ["--trace", tmp_path / "queue.csv", "--csv", tmp_path / "out.csv"]
    done = simulate(
        "--queue",
        "fifo",
        "--policy",
        "mapa",
        *arguments,
        *more,
        cluster=tmp_path / "pair-alone.yaml",
    )
    assert done.exit_code == 0, done.output
    with (tmp_path / "out.csv").open() as file:
        return done.output, {row["job_id"]: float(row["start_s"]) for row in csv.DictReader(file)}


def test_shorter_work_passes_where_the_order_is_predicted(simulate, tmp_path):
    _, arrival = starts(simulate, tmp_path)
    said, predicted = starts(simulate, tmp_path, "--order", "predicted")

    assert arrival["2"] == predicted["2"] == 1000
    assert (predicted["3"], predicted["5"]) == (20, 60)
    # Its limit is a second longer than the bound.
    assert predicted["4"] == arrival["4"] == 1050
    assert "Run times as predicted at" in said


def test_by_predictions_a_limit_that_is_too_long_does_not_count(simulate, tmp_path):
    told = ("--order", "predicted", "--reckon", "predictions")
    _, predicted = starts(simulate, tmp_path, *told)

    # At the submits of 3 and 4 nothing had ended yet, at that of 5 job 3 of the same user had.
    assert predicted["4"] == 1050
    assert predicted["5"] == 60


def test_without_limits_nobody_passes_and_it_is_said(simulate):
    done = simulate("--order", "predicted", rows="1,0,10,1\n2,1,10,8\n3,2,10,1\n")

    assert "no job of the log has a time limit" in done.output
