"""`make docs`: all pages become a site, a dead link breaks it, and no page asks another host."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browser import browser

ROOT = Path(__file__).resolve().parents[1]
for name in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(name, reason="make docs installs what makes the site")

pytestmark = pytest.mark.long("the site takes a minute on a slow machine")


def built(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Run what `make docs` runs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = re.search(r"-m sphinx (.*) -c docs", makefile)[1].split()
    argv = [sys.executable, "-m", "sphinx", *words, "-c", str(source / "docs"), "-b", "html"]
    return subprocess.run([*argv, str(source), str(target)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(ROOT, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_page_is_there_and_found_by_the_search(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT).with_suffix("")
        assert (site / f"{name}.html").is_file()
        assert f'"{name}"' in index
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")


def test_no_page_loads_anything_from_another_host(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"([^\"]+)", text)
        loaded += re.findall(r"<link[^>]*\bhref=\"([^\"]+)", text)
        assert [one for one in loaded if re.match(r"(https?:)?//", one)] == [], page
    for sheet in site.rglob("*.css"):
        found = re.findall(r"url\(['\"]?((?:https?:)?//[^)]+)", sheet.read_text(encoding="utf-8"))
        assert found == [], sheet


def test_the_first_page_and_its_search_work_from_a_file_on_a_narrow_window(site):
    """In a browser without a network: pictures can be read, and a word leads to its page."""
    with browser() as chromium:
        context = chromium.new_context(viewport={"width": 360, "height": 740}, offline=True)
        page, wrong = context.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{site.as_uri()}/index.html")
        page.wait_for_selector("article img")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.locator("article img").first.bounding_box()["width"] > 700
        page.goto(f"{site.as_uri()}/search.html?q=stranded")
        page.wait_for_selector("#search-results a:text('Metrics')")
        page.wait_for_selector("text=Search finished")
        for asked, first in (("job waits", "What does my job wait for?"), ("install", "Install,")):
            page.goto(f"{site.as_uri()}/search.html?q={asked.replace(' ', '+')}")
            page.wait_for_selector("text=Search finished")
            assert page.locator("#search-results li > a").first.inner_text().startswith(first)
        assert wrong == []


@pytest.mark.parametrize("link", ["nowhere.md", "#nowhere", "index.md#nowhere", "no/picture.svg"])
def test_a_dead_link_breaks_it(tmp_path, link):
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    shutil.copytree(ROOT / "docs" / "site", tmp_path / "docs" / "site")
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    mark = "!" * link.endswith(".svg")
    page = tmp_path / "docs" / "index.md"
    page.write_text(f"# A page\n\n{mark}[dead]({link})\n", encoding="utf-8")
    assert built(tmp_path, tmp_path / "site").returncode == 1
    page.write_text("# A page\n\n[alive](#a-page)\n", encoding="utf-8")
    assert built(tmp_path, tmp_path / "other").returncode == 0
