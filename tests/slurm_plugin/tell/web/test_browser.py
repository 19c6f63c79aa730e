"""The page in a real browser: the recorded day, and 1,000 nodes."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import axe, opened, violations

from tests.processes import free_port

ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.long("a real browser")
VIEWS = ("cluster", "jobs", "queue", "decisions", "gain", "node/dgx3", "node/nosuch", "job/1")
#: A user's own text that would be a script if the page took it for markup.
SCRIPT = "<img src=x onerror=alert(1)>"
#: The tile that changes, of the thousand.
TILE = 'a[href="#/node/n0001"]'
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1300, "height": 900}


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    path = f"{ROOT}:{ROOT / 'tests' / 'slurm_plugin'}"
    running = subprocess.Popen([sys.executable, *words], env={**os.environ, "PYTHONPATH": path})
    try:
        yield running
    finally:
        running.terminate()
        running.wait(15)


def answered(url: str, limit_s: float = 60.0) -> str:
    end = time.monotonic() + limit_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return url
        except OSError:
            assert time.monotonic() < end, url
            time.sleep(0.1)


@pytest.fixture(scope="module")
def demo():
    port = free_port()
    line = (
        f"from slurm_plugin.cli import cli; cli(['web', '--demo', '--listen', '127.0.0.1:{port}'])"
    )
    with process("-c", line):
        yield answered(f"http://127.0.0.1:{port}/")


def to(page, view):
    """Go there, and wait until its heading and what is asked for beside it are shown."""
    page.evaluate("view => { location.hash = `#/${view}` }", view)
    page.wait_for_function("() => document.querySelector('main h1')")
    page.wait_for_timeout(700)


def over_in(page):
    """A job that was decided about, and that is in the queue no more."""
    return page.evaluate(
        "() => fetch('api/state').then(reply => reply.json()).then(view => "
        "Object.values(view.decisions).map(row => row.job).find(job => !(job in view.jobs)))"
    )


def job_of(page, state):
    """A job of several GPUs, or the last of those that wait: a minute there takes a second."""
    return page.evaluate(
        "state => fetch('api/state').then(reply => reply.json()).then(view => "
        "Object.entries(view.jobs).filter(([, job]) => job.state === state && job.nodes === 1"
        " && (state === 'PENDING' || job.gpus[Object.keys(job.gpus)[0]].length > 2))"
        ".sort(([, a], [, b]) => (b.place || b.start) - (a.place || a.start))[0][0])",
        state,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_no_view_breaks_a_rule_of_accessibility(chromium, demo, tmp_path, scheme, size):
    source, found = axe(tmp_path), {}
    with opened(chromium, demo, viewport=size, color_scheme=scheme) as page:
        views = (*VIEWS, *(f"job/{job_of(page, state)}" for state in ("RUNNING", "PENDING")))
        for view in views:
            to(page, view)
            if wrong := violations(page, source):
                found[view] = wrong
            # Nothing but wide tables and pictures, by themselves, is scrolled sideways.
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], view
        page.fill("#find-text", "1")
        page.keyboard.press("ArrowDown")
        if wrong := violations(page, source):
            found["suggestions"] = wrong
    assert found == {}


def test_a_job_shows_its_gpus_its_ring_and_why(chromium, demo):
    with opened(chromium, demo) as page:
        number = job_of(page, "RUNNING")
        to(page, f"job/{number}")
        picture = page.locator(".pictures svg").first
        assert f"job {number} on" in picture.get_attribute("aria-label")
        assert "ranks on" in picture.locator("desc").text_content()
        assert page.locator("text=Why these GPUs").count() == 1
        assert not re.search(r"T\d\d:\d\d:", page.locator("main").inner_text())
        number = job_of(page, "PENDING")
        to(page, f"job/{number}")
        assert page.locator(".sentence").inner_text().startswith(f"Job {number} ")
        to(page, f"job/{over_in(page)}")
        assert page.locator(".sentence").inner_text().startswith("This job is over")
        assert page.locator("text=Why these GPUs").count() == 1


def test_the_chart_has_no_line_over_a_time_in_which_nobody_looked(chromium, demo):
    with opened(chromium, demo) as page:
        path = page.evaluate(
            "async () => (await import('/static/chart.js'))"
            ".line([[0, .5, 1, 2], [60, .5, 1, 2], [7200, .2, 1, 2], [7260, .3, 1, 2]])"
            ".querySelector('.line').getAttribute('d')"
        )
    assert path.count("M") == 2
    assert path.count("L") == 2


def test_the_week_has_no_line_over_a_time_in_which_the_engine_noted_nothing(chromium, demo):
    """Free, largest and stranded; the axis is the whole week, whatever was noted of it."""
    with opened(chromium, demo) as page:
        paths = page.evaluate(
            "async () => [...(await import('/static/chart.js')).weekOfFree({apart_s: 1500, from: 0,"
            " to: 604800, points: [0, 600, 1200, 7200, 7800].map(at => [at, 16, 8, 2, 4])})"
            ".querySelectorAll('.line')].map(path => path.getAttribute('d'))"
        )
    assert [(path.count("M"), path.count("L")) for path in paths] == [(2, 3)] * 3
    assert max(float(x) for x in re.findall(r"L([\d.]+)", paths[0])) < 100


def test_a_view_that_was_opened_while_the_server_was_down_is_filled_once_it_is_back(chromium, demo):
    with opened(chromium, demo) as page:
        to(page, "cluster")
        page.route("**/api/gain", lambda route: route.abort())
        to(page, "gain")
        assert "Failed to fetch" in page.locator(".problem").last.inner_text()
        page.unroute("**/api/gain")
        page.wait_for_selector("text=times the effective bandwidth", timeout=15_000)
        assert "Failed to fetch" not in page.locator("main").inner_text()


def boxes(words) -> list[tuple[float, float]]:
    """Where each begins, and how high it is: all at one moment, as the page may draw them anew."""
    text = "all => all.map(one => one.getBoundingClientRect()).map(one => [one.x, one.height])"
    return [(x, height) for x, height in words.evaluate_all(text)]


def test_on_a_narrow_window_drawings_can_still_be_read(chromium, demo):
    """In CSS pixels: what a drawing says is at least 7 high, its frame is scrolled by itself."""
    with opened(chromium, demo, viewport=PHONE) as page:
        to(page, "cluster")
        page.wait_for_selector(".chart text")
        to(page, f"job/{job_of(page, 'RUNNING')}")
        frame = page.locator(".pictures .wide").first
        assert frame.bounding_box()["width"] <= PHONE["width"]
        assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
        assert min(height for _, height in boxes(frame.locator("svg text"))) >= 7
        to(page, "cluster")
        page.wait_for_selector(".chart text")
        found = boxes(page.locator(".chart text"))
        assert min(height for _, height in found) >= 9
        assert min(x for x, _ in found) >= 0


def test_all_of_it_can_be_reached_by_keyboard(chromium, demo):
    with opened(chromium, demo) as page:
        to(page, "cluster")
        reached = []
        for _ in range(24):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
        assert {"To the content", "Cluster", "Jobs", "Queue", "Decisions", "Gain"} <= set(reached)
        assert any(text.startswith("dgx") or text.startswith("amd") for text in reached)
        page.focus("nav a[href='#/queue']")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:text('Queue')")
        page.focus("#find-text")
        page.keyboard.type("dgx3")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:text('Node dgx3')")


def cells(page, head: str) -> list[str]:
    """A column of the list, as it is shown at one moment."""
    return page.locator(f"tbody [data-head='{head}']").all_inner_texts()


@pytest.mark.parametrize("view", ["jobs", "queue", "decisions"])
def test_a_list_is_filtered_and_sorted_and_its_link_shows_the_same(chromium, demo, view):
    with opened(chromium, demo) as page:
        to(page, view)
        page.fill("#filter-text", "amd")
        page.select_option("#filter-partition", "amd")
        page.focus("th button:text-is('job')")
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=ascending]").inner_text().startswith("job")
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("job")
        link = page.evaluate("location.href")
        assert link.endswith(f"#/{view}?text=amd&partition=amd&sort=-job")
        with opened(chromium, demo) as other:
            other.goto(link)
            other.reload()
            other.wait_for_selector("tbody tr")
            assert other.input_value("#filter-text") == "amd"
            assert set(cells(other, "partition")) == {"amd"}
            numbers = [int(text) for text in cells(other, "job")]
            assert numbers == sorted(numbers, reverse=True)
            other.click(".clear")
            other.wait_for_function("() => !document.querySelector('#filter-text').value")
            assert set(cells(other, "partition")) > {"amd"}


def test_a_long_list_is_drawn_page_by_page(chromium, demo):
    with opened(chromium, demo, viewport=PHONE) as page:
        to(page, "decisions")
        assert page.locator("tbody tr").count() == 25
        assert page.evaluate("document.documentElement.scrollHeight") < 8000
        page.focus(".more")
        page.keyboard.press("Enter")
        assert page.locator("tbody tr").count() == 50
        # Who came by keyboard is at the first of the new rows.
        assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 26


def test_an_update_takes_the_focus_from_no_link_of_a_list(chromium, demo):
    with opened(chromium, demo) as page:
        to(page, "jobs?state=RUNNING&sort=since")
        link = page.locator("tbody th a").first
        name = link.inner_text()
        link.focus()
        before = cells(page, "since")
        page.wait_for_function(
            "before => [...document.querySelectorAll(\"tbody [data-head='since']\")]"
            ".map(one => one.innerText).join() !== before.join()",
            arg=before,
        )
        # Unless the job itself has ended: then its row is gone.
        if name in cells(page, "job"):
            assert page.evaluate("document.activeElement.innerText") == name


def test_texts_of_users_are_put_in_as_text_whatever_finds_them(chromium, demo):
    job = {
        "name": "7", "job_name": SCRIPT, "user": SCRIPT, "partition": SCRIPT, "state": "PENDING",
        "asked": SCRIPT, "nodes": 1, "place": 1, "submit": 1, "reason": SCRIPT, "sentence": SCRIPT,
    }  # fmt: skip
    with opened(chromium, demo) as page:
        to(page, "cluster")
        page.evaluate(
            "async job => { (await import('/static/store.js')).view.jobs[7] = job }", {**job}
        )
        for view in ("jobs", "queue"):
            page.evaluate("view => { location.hash = view }", f"#/{view}?text=7&user={SCRIPT}")
            page.wait_for_selector("tbody tr")
            page.fill("#find-text", SCRIPT)
            assert SCRIPT in page.locator("tbody").inner_text()
            assert SCRIPT in page.locator("#found").inner_text()
            assert page.locator("main img, header img").count() == 0


def test_one_box_finds_jobs_users_and_nodes_by_keyboard(chromium, demo):
    with opened(chromium, demo) as page:
        to(page, "cluster")
        page.focus("#find-text")
        box, options = page.locator("#find-text"), page.locator("#found [role=option]")
        page.keyboard.type("DGX1")
        assert options.first.inner_text().split()[:2] == ["node", "dgx1"]
        assert box.get_attribute("aria-expanded") == "true"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert box.get_attribute("aria-activedescendant") == "found-1"
        assert options.nth(1).get_attribute("aria-selected") == "true"
        page.keyboard.press("Escape")
        assert box.get_attribute("aria-expanded") == "false"
        assert (options.first.is_visible(), box.input_value()) == (False, "DGX1")
        page.keyboard.press("Escape")
        assert box.input_value() == ""
        page.keyboard.type("ad")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:text('Jobs')")
        assert page.evaluate("location.hash") == "#/jobs?user=ada"
        number = job_of(page, "RUNNING")
        page.focus("#find-text")
        page.keyboard.type(number)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:text('Job {number}')")
        page.focus("#find-text")
        page.keyboard.type("no such thing")
        assert page.locator("#find .none").inner_text().startswith("Nothing that you may see")
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == f"#/job/{number}"


def test_tasks_of_arrays_are_found_by_both_their_numbers(chromium, demo):
    jobs = {
        str(number): {"name": name, "job_name": "Sweep", "user": "ada", "state": "PENDING"}
        for number, name in ((12, "12_[4-9:2,20,...%3]"), (14, "12_1"), (15, "120_1"))
    }
    look = """async ([jobs, text]) => {
        (await import('/static/store.js')).view.jobs = jobs;
        const search = await import('/static/search.js');
        return search.found(text).filter(one => one.kind !== 'node').map(one => one.hash);
    }"""
    holds = "async text => (await import('/static/search.js')).holds('12_[4-9:2,20%3]', text)"
    with opened(chromium, demo) as page:
        to(page, "gain")
        sought = ("12_1", "12_4", "12", "sWEEP")
        found = {text: page.evaluate(look, [jobs, text]) for text in sought}
        held = [text for text in range(25) if page.evaluate(holds, f"12_{text}")]
        assert not page.evaluate(holds, "120_4")
    assert held == [4, 6, 8, 20]
    assert "#/job/14" in found["12_1"]
    assert found["12_4"] == ["#/job/12"]
    assert found["12"][:2] == ["#/job/12", "#/jobs?text=12_"]
    assert found["sWEEP"] == ["#/job/12", "#/job/14", "#/job/15"]


def test_each_view_says_of_when_it_is(chromium, demo):
    with opened(chromium, demo) as page:
        for view in ("cluster", "jobs", "queue", "decisions"):
            to(page, view)
            assert re.match(r"as of \d.*, \d s ago$", page.locator(".as-of").inner_text()), view
        to(page, "gain")
        page.wait_for_selector(".as-of:has-text('decisions of')")


@pytest.mark.parametrize("link", ["#/node/%", "#/constructor", "#/jobs?sort=__proto__&shown=x"])
def test_a_link_that_was_cut_or_made_up_leads_to_some_view(chromium, demo, link):
    with opened(chromium, demo) as page:
        page.goto(f"{demo}{link}")
        page.reload()
        page.wait_for_selector("main h1")


def test_a_thousand_nodes_are_shown_for_two_seconds_of_work_and_follow_in_a_fifth(chromium):
    """The bars: the first view takes page and process 2 s of processor time, an update 200 ms.

    By the clock a first view is other programs' business, too. The process has 300 MB at most.
    """
    port = free_port()
    script = str(Path(__file__).parent / "large_site.py")
    with process(script, str(port)) as running, chromium.new_context() as context:
        url = answered(f"http://127.0.0.1:{port}/")
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def worked_s() -> float:
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

        before_s = processor_s(running.pid)
        page.goto(url)
        page.wait_for_function("() => document.querySelectorAll('.tile').length >= 1000")
        shown_s = worked_s()
        first_s = shown_s + processor_s(running.pid) - before_s
        updates = []
        look = f"(() => {{ const tile = document.querySelector('{TILE}');"
        look += " return tile.className + tile.querySelector('rect').className.baseVal })"
        for _ in range(12):
            was = page.evaluate(f"{look}()")
            page.wait_for_function(f"was => {look}() !== was", arg=was, polling=100)
            updates.append(float(page.evaluate("document.body.dataset.updateMs")))
        text = Path(f"/proc/{running.pid}/status").read_text()
        memory_mb = int(text.partition("VmHWM:")[2].split()[0]) / 1024
    update_ms = sorted(updates)[6]
    print(f"first view {first_s:.2f} s, an update {update_ms:.0f} ms, {memory_mb:.0f} MB")
    assert 0 < shown_s <= first_s < 2.0
    assert update_ms < 200.0
    assert memory_mb < 300.0


def processor_s(pid: int) -> float:
    """Processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
