"""GPU utilisation and memory: what exporters say, of which GPU it is, and who is told."""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from web_in_tests import ALICE, BOB, NOW, SCRIPT, Site, running

from gres_topology import catalog
from slurm_plugin.decide.machines import Machine
from slurm_plugin.errors import PluginError
from slurm_plugin.tell.web.feed import Feed
from slurm_plugin.tell.web.utilisation import prometheus
from slurm_plugin.tell.web.utilisation.exporters import (
    METRICS,
    Series,
    SeriesLabels,
    by_node,
    by_slurms_gpu,
)
from slurm_plugin.tell.web.utilisation.prometheus import EVERY_S, QUERY, Prometheus, checked_url
from slurm_plugin.tell.web.utilisation.shown import NOT_ANSWERED, OLDEST_S
from slurm_plugin.tell.why.reading import Reading

ASSETS = Path(__file__).parent / "assets"
#: Of GPU 0 to 7, in the order of PCI addresses.
BUSY = [97, 0, 12, 88, 5, 6, 7, 8]
PCI = tuple(f"0000:{bus}:00.0" for bus in ("06", "07", "0a", "0b", "85", "86", "89", "8a"))
MINORS = (2, 3, 0, 1, 6, 7, 4, 5)
KNOWN = replace(catalog.load("dgx1v"), pci=PCI, minors=MINORS)
UNKNOWN = catalog.load("dgx1v")
DCGM, JOBSTATS = "dcgm-exporter", "nvidia_gpu_prometheus_exporter"
AMD = "device-metrics-exporter"
LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def scraped(name: str, instance: str = "dgx1:9400", **changed: str) -> list[dict]:
    """The series that Prometheus makes of an exporter's page; labels that are empty are none."""
    found = []
    for line in (ASSETS / f"{name}.prom").read_text().splitlines():
        if line.startswith("#"):
            continue
        metric, labels, value = LINE.fullmatch(line).groups()
        own = {"__name__": metric, **dict(LABEL.findall(labels))}
        own |= {"instance": instance, "job": "gpus", **changed}
        labels = {label: text for label, text in own.items() if text}
        found.append({"metric": labels, "value": [NOW, value]})
    return found


def answer(*series: dict) -> dict:
    return {"status": "success", "data": {"resultType": "vector", "result": [*series]}}


def parsed(*series: dict) -> list[Series]:
    return prometheus._DECODER.decode(json.dumps(answer(*series)).encode()).data.result


def busy(series, machine=None, count: int = 8, node: str = "dgx1") -> dict[int, float | None]:
    """Slurm's index -> the utilisation that is told of this node's GPU."""
    exported = by_node(parsed(*series), {"dgx1", "dgx2"}).get(node, ())
    uses = by_slurms_gpu(exported, machine or Machine(KNOWN), count)
    return {gpu: use.busy_percent for gpu, use in uses.items()}


ALL = dict(enumerate(BUSY))


@pytest.mark.parametrize("name", [DCGM, JOBSTATS, AMD])
@pytest.mark.parametrize("topology", [KNOWN, UNKNOWN], ids=["addresses known", "not known"])
def test_each_exporters_page_is_understood(name, topology):
    exported = by_node(parsed(*scraped(name)), {"dgx1"})["dgx1"]
    uses = by_slurms_gpu(exported, Machine(topology), 8)
    assert {gpu: use.busy_percent for gpu, use in uses.items()} == ALL
    total = {DCGM: 32480, JOBSTATS: 34089730048 / 2**20, AMD: 196592}[name]
    assert (uses[0].used_mib, uses[0].total_mib) == (30120, total)
    assert uses[3].jobs == (frozenset() if name == DCGM else {7})


def test_the_query_names_every_metric():
    pattern = re.fullmatch(r'\{__name__=~"(.*)"\}', QUERY)[1]
    assert all(re.fullmatch(pattern, name) for name in METRICS)
    assert {re.match(r"\w+", line)[0] for name in (DCGM, JOBSTATS, AMD)
            for line in (ASSETS / f"{name}.prom").read_text().splitlines()
            if not line.startswith("#")} <= {*METRICS}  # fmt: skip


SWAPPED = (1, 0, *range(2, 8))


@pytest.mark.parametrize(
    ("name", "topology"), [(DCGM, KNOWN), (JOBSTATS, KNOWN), (AMD, KNOWN), (DCGM, UNKNOWN)]
)
def test_slurms_own_order_is_followed(name, topology):
    told = busy(scraped(name), Machine(topology, order=SWAPPED))
    assert told == {gpu: BUSY[SWAPPED[gpu]] for gpu in range(8)}


def test_an_address_counts_before_a_number():
    """DCGM counts otherwise where a GPU was taken out and put back."""
    series = scraped(DCGM)
    for one in series:
        one["metric"]["gpu"] = str(7 - int(one["metric"]["gpu"]))
    assert busy(series) == ALL


def test_a_minor_number_counts_before_a_number():
    series = scraped(JOBSTATS)
    for one in series:
        one["metric"]["ordinal"] = str(7 - int(one["metric"]["ordinal"]))
    assert busy(series) == ALL


@pytest.mark.parametrize(("name", "label"), [(DCGM, "gpu"), (JOBSTATS, "ordinal"), (AMD, "gpu_id")])
def test_where_a_gpu_is_missing_its_number_says_nothing(name, label):
    """Without GPU 0 what was GPU 1 has the number 0."""
    series = [one for one in scraped(name) if one["metric"][label] != "0"]
    for one in series:
        one["metric"][label] = str(int(one["metric"][label]) - 1)
    assert busy(series, Machine(UNKNOWN)) == {}
    by_address = {gpu: value for gpu, value in ALL.items() if gpu}
    assert busy(series) == (by_address if name != AMD else {})


def test_an_address_that_is_no_gpus_of_the_node_says_nothing():
    series = scraped(DCGM)
    for one in series:
        one["metric"]["pci_bus_id"] = one["metric"]["pci_bus_id"].replace("00000000", "00000001")
    assert busy(series) == {}


@pytest.mark.parametrize(
    ("machine", "count"),
    [
        (Machine(KNOWN), 7),
        (Machine(KNOWN, problem="other hardware"), 8),
        (Machine(None, problem="not declared"), 8),
    ],
    ids=["other count", "problem", "no topology"],
)
def test_of_a_node_whose_gpus_are_in_doubt_nothing_is_told(machine, count):
    assert busy(scraped(DCGM), machine, count) == {}


def test_slices_are_told_of_by_nobody():
    """GPU 6 is cut into two slices: Slurm's 6 and 7; its own figures would be those of both."""
    machine = Machine(KNOWN, order=(0, 1, 2, 3, 4, 5, 6, 6), whole=0b111111)
    assert busy(scraped(DCGM), machine) == {gpu: BUSY[gpu] for gpu in range(6)}
    assert busy(scraped(DCGM), Machine(KNOWN, whole=0b10111111)).keys() == {*range(8)} - {6}
    parts = scraped(DCGM, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    assert busy(parts) == {}
    assert busy(scraped(AMD, gpu_compute_partition_type="cpx")) == {}
    assert busy(scraped(AMD, gpu_partition_id="3")) == {}


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"Hostname": "dgx1"}, "dgx1"),
        ({"Hostname": "dgx1.site.example"}, "dgx1"),
        ({"hostname": "dgx1"}, "dgx1"),
        ({"Hostname": "ee891a0c4bd5", "instance": "dgx1:9400"}, "dgx1"),
        ({"instance": "dgx1.site.example:9445"}, "dgx1"),
        ({"Hostname": "dgx2", "instance": "dgx1:9400"}, ""),
        ({"instance": "10.0.0.1:9400"}, ""),
        ({"instance": "[2001:db8::1]:9400"}, ""),
        ({"Hostname": "dgx11"}, ""),
        ({"Hostname": SCRIPT}, ""),
        ({}, ""),
    ],
)
def test_a_node_is_known_by_its_own_name_or_by_where_it_is_scraped(labels, node):
    said = Series(SeriesLabels(**{"metric": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", **{
        {"Hostname": "own_host"}.get(name, name): text for name, text in labels.items()
    }}), (NOW, "5"))  # fmt: skip
    assert set(by_node([said], {"dgx1", "dgx2", "10"})) == ({node} if node else set())


def test_two_values_that_contradict_each_other_count_both_for_nothing():
    """Two clusters of one Prometheus, say, have nodes of one name."""
    twice = scraped(DCGM)
    others = scraped(DCGM, cluster="other")
    for one in others:
        if one["metric"]["gpu"] == "3":
            one["value"] = [NOW, "50"]
    told = busy(twice + others)
    assert told == ALL | {3: None}


@pytest.mark.parametrize(
    "text",
    ["NaN", "+Inf", "-Inf", "-1", "100.5", "1e400", "9223372036854775794", "", "x", "9" * 5000],
)
def test_a_number_out_of_bounds_is_not_known(text):
    series = scraped(DCGM)
    for one in series:
        if one["metric"]["gpu"] == "2":
            one["value"][1] = text
    use = by_slurms_gpu(by_node(parsed(*series), {"dgx1"})["dgx1"], Machine(KNOWN), 8)
    memory = (use[2].used_mib, use[2].total_mib)
    assert use[2].busy_percent is None
    assert memory == ((100.5, 201.0) if text == "100.5" else (None, None))
    assert use[1].busy_percent == 0


def test_more_used_than_there_is_says_nothing_of_memory():
    series = scraped(AMD)
    for one in series:
        if one["metric"]["__name__"] == "gpu_total_vram":
            one["value"][1] = "8"
    use = by_slurms_gpu(by_node(parsed(*series), {"dgx1"})["dgx1"], Machine(KNOWN), 8)
    assert {gpu for gpu, one in use.items() if one.used_mib is not None} == {1}


def test_of_two_exporters_on_a_node_one_counts():
    others = scraped(AMD)
    for one in others:
        one["value"][1] = "1"
    assert busy(scraped(DCGM) + others) == ALL


# -- asking -----------------------------------------------------------------


class Asked:
    """A Prometheus that answers as it is told, and counts."""

    def __init__(self, *series: dict) -> None:
        self.answer: object = answer(*series)
        self.status = 200
        self.queries: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []

    async def query(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        self.headers.append(dict(request.headers))
        if callable(self.answer):
            return await self.answer(request)
        if isinstance(self.answer, bytes):
            return web.Response(body=self.answer, status=self.status)
        return web.json_response(self.answer, status=self.status)

    @asynccontextmanager
    async def served(self):
        app = web.Application()
        app.add_routes([web.get("/api/v1/query", self.query)])
        server = TestServer(app)
        await server.start_server()
        try:
            yield str(server.make_url("/")).rstrip("/")
        finally:
            await server.close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


async def test_one_query_serves_all_for_fifteen_seconds(clock):
    played = Asked(*scraped(DCGM))
    async with played.served() as url:
        asked = Prometheus(url, clock, lambda: NOW)
        many = await asyncio.gather(*(asked.exported({"dgx1"}) for _ in range(20)))
        assert all(one is many[0] for one in many)
        clock.now = EVERY_S - 0.1
        assert await asked.exported({"dgx1"}) is many[0]
        assert len(played.queries) == 1
        clock.now = EVERY_S
        await asked.exported({"dgx1"})
    assert len(played.queries) == 2
    assert played.queries[0]["query"] == QUERY
    assert many[0].asked_at == NOW
    assert {*many[0].nodes} == {"dgx1"}


async def test_who_leaves_takes_the_answer_from_nobody(clock):
    begun = asyncio.Event()
    played = Asked()

    async def slowly(request):
        begun.set()
        await asyncio.sleep(0.2)
        return web.json_response(answer(*scraped(DCGM)))

    played.answer = slowly
    async with played.served() as url:
        asked = Prometheus(url, clock)
        first = asyncio.create_task(asked.exported({"dgx1"}))
        await begun.wait()
        first.cancel()
        assert (await asked.exported({"dgx1"})).nodes
    assert len(played.queries) == 1


async def problem(played: Asked, clock) -> str:
    async with played.served() as url:
        found = await Prometheus(url, clock).exported({"dgx1"})
    assert not found.nodes
    assert found.problem.isprintable()
    assert len(found.problem) <= 200
    return found.problem


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>a login page</html>",
        b'{"status": "error", "errorType": "bad_data", "error": "' + b"x" * 5000 + b'"}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
        b'{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}',
        b'{"status": "success", "data": {"resultType": "vector", "result": [{"metric":'
        b' {"__name__": 5}, "value": [1, "1"]}]}}',
        b'{"status": "success", "data": {"resultType": "vector", "result": "'
        + b"\\u001b[2J" * 9
        + b'"}}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"\x1f\x8b\x08\x00packed",
    ],
    ids=["nothing", "HTML", "an error", "matrix", "no name", "a number for a name",
         "control characters", "deep", "no UTF-8", "packed"],
)  # fmt: skip
async def test_an_answer_that_is_none_is_one_line(clock, text):
    played = Asked()
    played.answer = text
    assert await problem(played, clock)


async def test_a_failure_is_asked_for_again_after_fifteen_seconds_alone(clock):
    played = Asked()
    played.status, played.answer = 503, b"busy"
    async with played.served() as url:
        asked = Prometheus(url, clock)
        for now in (0.0, 5.0, 14.9):
            clock.now = now
            assert (await asked.exported({"dgx1"})).problem == "it answers with status 503"
        assert len(played.queries) == 1
        played.status, played.answer = 200, answer(*scraped(DCGM))
        clock.now = 15.0
        assert (await asked.exported({"dgx1"})).nodes


async def test_it_leads_nowhere_else_and_nothing_is_unpacked(clock):
    played, other = Asked(), Asked(*scraped(DCGM))

    async with other.served() as elsewhere:

        async def away(request):
            raise web.HTTPFound(f"{elsewhere}/api/v1/query")

        played.answer = away
        assert await problem(played, clock) == "it answers with status 302"
    assert other.queries == []
    assert played.headers[0]["Accept-Encoding"] == "identity"


async def test_an_answer_has_a_most_and_a_deadline(clock, monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_REPLY", 1 << 20)
    monkeypatch.setattr(prometheus, "DEADLINE_S", 0.3)
    sent, played = [], Asked()

    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(1 << 16))
            sent.append(1 << 16)

    played.answer = endless
    assert await problem(played, clock) == "its answer is larger than 1 MiB"
    assert sum(sent) < 8 << 20

    async def drop_by_drop(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    played.answer = drop_by_drop
    assert await problem(played, clock) == "no whole answer within 0.3 s"


async def test_nobody_there_is_one_line(clock):
    async with Asked().served() as url:
        pass
    found = await Prometheus(url, clock).exported({"dgx1"})
    assert "Cannot connect" in found.problem
    assert found.problem.isprintable()


@pytest.mark.parametrize(
    "url", ["http://prom:9090", "https://prom.example/prometheus/", "http://[::1]:9090/"]
)
def test_an_address_of_a_prometheus(url):
    assert checked_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    ["prom:9090", "file:///etc/passwd", "http://", "http://prom:0", "http://prom:99999",
     "http://prom/?x=1", "http://prom/#x", "http://prom /", "http://prom\n", "http://[::1"],
)  # fmt: skip
def test_no_address_of_a_prometheus_is_one_clear_line(url):
    with pytest.raises(PluginError, match="expected http://HOST:PORT") as caught:
        checked_url(url)
    assert len(str(caught.value).splitlines()) == 1


def test_a_password_in_the_address_is_refused_and_not_repeated():
    with pytest.raises(PluginError, match="without a name and a password") as caught:
        checked_url("http://me:secret@prom:9090")
    assert "secret" not in str(caught.value)


# -- who is told ------------------------------------------------------------

LONG_AGO = int(NOW - OLDEST_S)


def runs(number: int, uid: int, gpus: dict[str, tuple[int, ...]], start: int = LONG_AGO, **more):
    return replace(running(number, uid, gpus, **more), start=start)


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    site.slurm.jobs[:2] = [
        runs(7, BOB, {"dgx1": (0, 3)}),
        runs(8, ALICE, {"dgx1": (4,), "dgx2": (0, 1)}, name=f"8_{SCRIPT}"),
    ]
    return site


def told(site: Site, uid: int | None, path: str, played: Asked) -> tuple[int, str]:
    """Status and text of one answer to one user, with this Prometheus."""

    async def ask() -> tuple[int, str]:
        async with played.served() as url:
            one = site.as_user(uid)
            one.page.prometheus = Prometheus(url, wall_clock=lambda: NOW)
            async with (
                one.served() as page,
                ClientSession() as client,
                client.get(page.make_url(path)) as reply,
            ):
                return reply.status, await reply.text()

    return asyncio.run(ask())


def seen(site: Site, uid: int | None, path: str, *series: dict) -> dict:
    status, text = told(site, uid, path, Asked(*series))
    assert status == 200, text
    return json.loads(text)


def gpus(found: dict) -> list[tuple[str, int]]:
    return [(row["node"], row["gpu"]) for row in found["gpus"]]


@pytest.mark.parametrize(
    ("uid", "shown"), [(0, [*range(8)]), (BOB, [0, 3]), (ALICE, [4])], ids=["root", "bob", "alice"]
)
def test_users_see_the_gpus_of_their_own_jobs_and_operators_all(site, uid, shown):
    found = seen(site, uid, "/api/use/node/dgx1", *scraped(DCGM))
    assert gpus(found) == [("dgx1", gpu) for gpu in shown]
    assert [row["busy_percent"] for row in found["gpus"]] == [BUSY[gpu] for gpu in shown]
    assert found["problem"] == ""


def test_what_was_answered_after_slurm_was_read_is_told_to_nobody(site, monkeypatch):
    """Slurm does not answer any more: who holds the GPUs now may be somebody else."""

    async def no_other(_feed: Feed, _moment: float, reading: Reading) -> Reading:
        return replace(reading, snapshot=replace(reading.snapshot, began=-1.0))

    monkeypatch.setattr(Feed, "after", no_other)
    assert gpus(seen(site, 0, "/api/use/node/dgx1", *scraped(DCGM))) == []


def test_a_gpu_that_two_users_share_is_told_to_operators_alone(site):
    site.slurm.jobs.append(runs(11, ALICE, {"dgx1": (3,)}))
    assert gpus(seen(site, BOB, "/api/use/node/dgx1", *scraped(DCGM))) == [("dgx1", 0)]
    assert ("dgx1", 3) in gpus(seen(site, 0, "/api/use/node/dgx1", *scraped(DCGM)))


def test_a_job_is_told_with_the_mean_of_its_gpus(site):
    found = seen(site, BOB, "/api/use/job/7", *scraped(DCGM))
    assert gpus(found) == [("dgx1", 0), ("dgx1", 3)]
    assert found["mean_percent"] == 92.5
    assert found["gpus"][0]["used_mib"] == 30120


def test_a_mean_is_that_of_all_gpus_or_none(site):
    """Nothing is known of dgx2."""
    found = seen(site, ALICE, "/api/use/job/8", *scraped(DCGM))
    assert gpus(found) == [("dgx1", 4)]
    assert found["mean_percent"] is None


@pytest.mark.parametrize(("uid", "number"), [(ALICE, 7), (ALICE, 999), (BOB, 8)])
def test_another_users_job_and_none_get_the_same_answer(site, uid, number):
    status, text = told(site, uid, f"/api/use/job/{number}", Asked(*scraped(DCGM)))
    assert (status, text) == (404, f"job {number}: none that you may see\n")


@pytest.mark.parametrize("uid", [BOB, 0])
def test_of_a_job_that_just_started_nothing_is_told(site, uid):
    """What was scraped last may be of the job before it, another user's."""
    site.slurm.jobs[0] = runs(7, BOB, {"dgx1": (0, 3)}, start=LONG_AGO + 1)
    found = seen(site, uid, "/api/use/job/7", *scraped(DCGM))
    assert found["gpus"] == []


@pytest.mark.parametrize("name", [JOBSTATS, AMD])
def test_what_an_exporter_says_of_another_job_is_told_to_nobody(site, name):
    site.slurm.jobs[0] = runs(70, BOB, {"dgx1": (0, 3)})
    assert gpus(seen(site, BOB, "/api/use/node/dgx1", *scraped(name))) == []
    # Jobs that a label names give nobody anything.
    assert gpus(seen(site, ALICE, "/api/use/node/dgx1", *scraped(name))) == [("dgx1", 4)]


def test_a_label_is_told_to_nobody_and_a_name_is_no_markup(site):
    series = scraped(DCGM, modelName=SCRIPT, UUID=SCRIPT, pod=SCRIPT)
    status, text = told(site, 0, "/api/use/node/dgx1", Asked(*series))
    assert status == 200
    [row] = [row for row in json.loads(text)["gpus"] if row["gpu"] == 4]
    assert row["jobs"] == {"8": f"8_{SCRIPT}"}
    assert text.count("<script>") == 1


def test_a_failure_is_one_line_whose_reason_operators_get(site):
    played = Asked()
    played.status = 503
    for uid, line in ((0, "Prometheus: it answers with status 503"), (BOB, NOT_ANSWERED)):
        status, text = told(site, uid, "/api/use/node/dgx1", played)
        assert (status, json.loads(text)["problem"]) == (200, line)
        assert json.loads(text)["gpus"] == []


@pytest.mark.parametrize("path", ["/api/use/node/dgx1", "/api/use/job/7"])
def test_nobody_unknown_is_told_and_nobody_is_asked_for_them(site, path):
    played = Asked(*scraped(DCGM))
    assert told(site, None, path, played)[0] == 403
    assert played.queries == []


@pytest.mark.parametrize("path", ["/api/use/node/dgx1", "/api/use/job/7"])
def test_without_a_prometheus_nothing_is_asked_and_nothing_told(site, path):
    async def ask() -> dict:
        one = site.as_user(BOB)
        async with (
            one.served() as page,
            ClientSession() as client,
            client.get(page.make_url(path)) as reply,
        ):
            return await reply.json()

    assert asyncio.run(ask()) == {"is_asked": False}


@pytest.mark.parametrize(("path", "status"), [("/api/use/node/none", 404), ("/api/use/job/0", 404)])
def test_what_is_not_there_is_not_found(site, path, status):
    assert told(site, BOB, path, Asked(*scraped(DCGM)))[0] == status
