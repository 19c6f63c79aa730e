"""`gputopo web` on a live queue: what users see, how soon, and what that costs slurmctld."""

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from browser import opened
from live_harness import by_policy, topology_of
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]
PORT, LOG = 8081, "/tmp/web.log"
OPERATOR = "root"


@dataclass
class Served:
    """The page of the cluster, as a proxy on this machine sees it."""

    cluster: Cluster
    url: str
    gateway: str

    def start(self) -> None:
        options = f"--listen 0.0.0.0:{PORT} --user-header X-Remote-User --proxy {self.gateway}"
        # As SlurmUser, whom Slurm shows all jobs, too.
        line = f"setsid runuser -u slurm -- gputopo web {options} </dev/null >{LOG} 2>&1 &"
        self.cluster.run("ctl", line)
        until(self._answers, lambda: self.cluster.read("ctl", LOG), 30)

    def stop(self) -> None:
        self.cluster.run("ctl", "pkill -f 'gputopo [w]eb' || true")
        until(lambda: not self._answers(), "the page ends", 15)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            self.state()
            return True
        return False

    def get(self, path: str, user: str) -> Any:
        asked = urllib.request.Request(self.url + path, headers={"X-Remote-User": user})
        with urllib.request.urlopen(asked, timeout=15) as reply:
            return json.load(reply)

    def state(self, user: str = OPERATOR) -> Any:
        return self.get("api/state", user)


@pytest.fixture(scope="module")
def served(session_cluster: Cluster) -> Iterator[Served]:
    networks = session_cluster.container("ctl").attrs["NetworkSettings"]["Networks"]
    [network] = networks.values()
    url = f"http://{network['IPAddress']}:{PORT}/"
    page = Served(session_cluster, url, network["Gateway"])
    page.start()
    yield page
    page.stop()


def letters(page: Served, user: str, node: str) -> str:
    return str(page.state(user)["nodes"][node]["gpus"])


def test_a_job_shows_soon_to_its_user_and_as_busy_to_others(cluster, served):
    served.state()
    job = cluster.sbatch("-p", "dgx", "-w", "dgx1", "--gres=gpu:4", sleep_s=120)
    got = cluster.wait_running(job)
    until(lambda: served.state()["jobs"].get(str(job), {}).get("state") == "RUNNING", "job", 15)
    [(node, gpus)] = got.gpus.items()
    mine = served.state("alice")
    assert {n: sorted(g) for n, g in mine["jobs"][str(job)]["gpus"].items()} == {node: sorted(gpus)}
    waiting = cluster.sbatch("-p", "dgx", "-w", "dgx1", "--gres=gpu:8", sleep_s=1)

    def sentence() -> str:
        jobs = served.state("alice")["jobs"]
        return str(jobs.get(str(waiting), {}).get("sentence", ""))

    until(sentence, "the waiting job's sentence", 15)
    said = cluster.run("ctl", ["gputopo", "why", str(waiting)], user="alice").out
    assert sentence() == said.splitlines()[0]
    others = served.state("bob")
    assert not {str(job), str(waiting)} & others["jobs"].keys()
    assert not re.search(rf'"job": ({job}|{waiting})\b|alice', json.dumps(others))
    busy = {at for at, letter in enumerate(letters(served, "bob", node)) if letter == "b"}
    assert busy == set(gpus)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        served.get(f"api/job/{job}", "bob")


def test_without_a_proxy_each_user_of_the_host_sees_their_own(cluster, served):
    """Whose connection it is the kernel says; a header from the host itself is worth nothing."""
    job = cluster.sbatch("-p", "dgx", "--gres=gpu:1", sleep_s=60)
    cluster.wait_running(job)
    program = (
        "import json, urllib.request as r; print(sorted(json.load(r.urlopen(r.Request("
        f"'http://127.0.0.1:{PORT}/api/state', headers={{'X-Remote-User': 'root'}})))['jobs']))"
    )

    def told() -> dict[str, str]:
        return {
            user: cluster.run("ctl", ["python3", "-c", program], user=user).out.strip()
            for user in ("alice", "bob", "root")
        }

    # Jobs of the test before are on the page for a second more.
    until(lambda: told()["root"] == f"['{job}']", told, 15)
    assert told() == {"alice": f"['{job}']", "bob": "[]", "root": f"['{job}']"}


def look_of(page: Any, node: str) -> list[str]:
    """The class of each GPU on a node's tile."""
    tile = page.locator(f"a[href='#/node/{node}']").first
    return [one.get_attribute("class") for one in tile.locator("rect").all()]


@pytest.mark.long("a real browser")
def test_a_submitted_job_appears_with_its_gpus_and_its_ring(cluster, served, chromium):
    headers = {"X-Remote-User": OPERATOR}
    with opened(chromium, served.url, extra_http_headers=headers) as page:
        page.wait_for_selector(".tile")
        job = cluster.sbatch("-p", "dgx", "-w", "dgx1", "--gres=gpu:3", sleep_s=120)
        if enforcement() == "slots":
            # Behind its gate it waits for GPUs that just came free; that is no time of the page's.
            cluster.wait_running(job)
        began = time.monotonic()
        label = f"jobs {job} of alice"
        page.wait_for_selector(f"a[href='#/node/dgx1'][aria-label*='{label}']", timeout=15_000)
        print(f"on the page after {time.monotonic() - began:.2f} s")
        gpus = sorted(cluster.wait_running(job).gpus["dgx1"])
        looks = look_of(page, "dgx1")
        assert [at for at, look in enumerate(looks) if re.fullmatch(r"c\d", look)] == gpus
        page.evaluate(f"location.hash = '#/job/{job}'")
        drawn = page.locator(".pictures svg").first
        drawn.wait_for()
        words = drawn.locator("desc").text_content()
        assert f"job {job} holds {', '.join(map(str, gpus))}" in words
        chosen = by_policy({}, (3,), ["dgx1"])["dgx1"]
        ranks = re.search(r"ranks on ([\d, ]+)", words)
        assert ranks is not None
        order = tuple(map(int, ranks[1].split(", ")))
        assert sorted(order) == gpus == sorted(chosen)
        assert len(drawn.locator(".gt-ring").all()) >= 3
        slowest = min(
            float(topology_of("dgx1").bandwidth_gbps[a, b])
            for a, b in zip(order, (*order[1:], order[0]), strict=True)
        )
        assert f"slowest hop {slowest:g} GB/s" in words


@pytest.mark.long("a real browser")
def test_another_users_browser_shows_nothing_but_busy(cluster, served, chromium):
    headers = {"X-Remote-User": "bob"}
    job = cluster.sbatch("-p", "dgx", "-w", "dgx1", "--gres=gpu:2", sleep_s=120)
    gpus = set(cluster.wait_running(job).gpus["dgx1"])
    with opened(chromium, served.url, extra_http_headers=headers) as page:
        tile = "a[href='#/node/dgx1'][aria-label*='busy']"
        page.wait_for_selector(tile, timeout=15_000)
        busy = {at for at, look in enumerate(look_of(page, "dgx1")) if look == "busy"}
        assert busy == gpus
        for view in ("node/dgx1", f"job/{job}", "jobs", "queue", "decisions"):
            page.evaluate("view => { location.hash = `#/${view}` }", view)
            page.wait_for_timeout(1000)
            shown = page.locator("main").inner_text().lower()
            assert "alice" not in shown
            told = shown.count(f"job {job}")
            # The reader's own question is the heading, and the answer that there is none such.
            assert told == (2 if view.startswith("job/") else 0), shown
        assert "busy" in page.evaluate(
            "fetch('api/node/dgx1').then(reply => reply.json())"
            ".then(found => found.pictures[0].svg)"
        )


@pytest.mark.long("a real browser")
def test_an_engine_or_page_that_dies_is_told_and_comes_back_without_a_reload(
    cluster, served, chromium
):
    headers = {"X-Remote-User": OPERATOR}
    with opened(chromium, served.url, extra_http_headers=headers) as page:
        page.wait_for_selector(".tile")
        page.evaluate("window.neverReloaded = true")
        cluster.engine("kill")
        page.wait_for_selector("text=The engine does not answer", timeout=10_000)
        cluster.engine("start")
        page.wait_for_selector("text=The engine does not answer", state="detached", timeout=20_000)
        served.stop()
        page.wait_for_selector("text=No connection to the page's server", timeout=20_000)
        served.start()
        page.wait_for_selector(
            "text=No connection to the page's server", state="detached", timeout=30_000
        )
        job = cluster.sbatch("-p", "dgx", "-w", "dgx2", "--gres=gpu:1", sleep_s=60)
        label = f"a[href='#/node/dgx2'][aria-label*='jobs {job} of alice']"
        page.wait_for_selector(label, timeout=15_000)
        assert page.evaluate("window.neverReloaded")


def asked_of_slurmctld(cluster: Cluster) -> int:
    """Requests that slurmctld got since its counts began."""
    text = cluster.run("ctl", ["sdiag"]).out
    part = text.partition("by message type")[2].partition("by user")[0]
    return sum(int(count) for count in re.findall(r"count:(\d+)", part))


@pytest.mark.long("counts for half a minute")
def test_a_hundred_viewers_cost_slurmctld_what_one_costs(cluster, served):
    """Counted for ten readings: a busy machine takes longer for them."""
    ended, readings = threading.Event(), set[bytes]()

    def view(user: str) -> None:
        asked = urllib.request.Request(served.url + "api/events", headers={"X-Remote-User": user})
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=30) as events:
            while not ended.is_set() and (line := events.readline()):
                if line.startswith(b"id:"):
                    readings.add(line.split()[1])

    def cost(viewers: int) -> float:
        ended.clear()
        # No more of one user than are let in.
        names = [("root", "alice", "bob", "mallory")[at % 4] for at in range(viewers)]
        threads = [threading.Thread(target=view, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        time.sleep(3)
        readings.clear()
        until(lambda: readings, "a reading is shown", 30)
        before, first = asked_of_slurmctld(cluster), len(readings)
        until(lambda: len(readings) >= first + 10, "ten readings are shown", 60)
        found, read = asked_of_slurmctld(cluster) - before, len(readings) - first
        ended.set()
        for thread in threads:
            thread.join()
        print(f"{viewers} viewers: {found} requests for {read} readings")
        return found / read

    job = cluster.sbatch("-p", "dgx", "--gres=gpu:1", sleep_s=300)
    cluster.wait_running(job)
    one, hundred = cost(1), cost(100)
    assert one > 1
    assert hundred <= 1.25 * one
