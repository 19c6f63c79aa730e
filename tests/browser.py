"""Debian's Chromium, driven by Playwright: a browser as users have it."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "chromium"
#: The rules of the Web Content Accessibility Guidelines that a page has to keep.
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
AXE = "axe-core@4.10.2"


@contextmanager
def browser() -> Iterator["Browser"]:
    """A browser until the block ends; skipped where there is none."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the extra `browser` is not installed"
    )
    path = shutil.which(CHROMIUM)
    if path is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        # Tests run as root, in a container as a rule, where its sandbox cannot be had.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


@contextmanager
def opened(found: "Browser", url: str, **options: Any) -> Iterator["Page"]:
    """A tab on the page; whatever the browser complains of in it is a failure."""
    context = found.new_context(**options)
    page, said = context.new_page(), []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "console",
        lambda line: said.append(line.text) if "Content Security" in line.text else None,
    )
    outside: list[str] = []
    page.on(
        "request",
        lambda request: None if request.url.startswith(url) else outside.append(request.url),
    )
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    assert (said, outside) == ([], [])


def axe(folder: Path) -> str:
    """The source of axe-core, from npm; skipped where it cannot be had."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, from which axe-core comes")
    packed = ["npm", "pack", "--silent", "--ignore-scripts", AXE]
    done = subprocess.run(packed, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm has no {AXE} for us: {done.stderr.strip().splitlines()[-1:]}")
    [archive] = folder.glob("*.tgz")
    subprocess.run(["tar", "xzf", archive.name, "package/axe.min.js"], cwd=folder, check=True)
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")


def violations(page: "Page", source: str) -> list[str]:
    """What axe-core finds wrong with the page as it is, a line for each."""
    page.evaluate(source)
    found = page.evaluate(
        "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})"
        ".then(found => found.violations)",
        WCAG,
    )
    return [
        f"{one['id']}: {one['help']}: "
        + "; ".join(
            f"{' '.join(map(json.dumps, node['target']))} {node['failureSummary']}"
            for node in one["nodes"][:3]
        )
        for one in found
    ]
