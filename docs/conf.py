"""How `make docs` makes the site of these pages; Sphinx reads it.

The pages are plain Markdown, as GitHub shows them: this is about the site alone. Nothing in it
comes from another host, and its search works without a web server.
"""

import configparser
from pathlib import Path

project = "slurm-gputopo"
_ROOT = Path(__file__).resolve().parents[1]
_settings = configparser.ConfigParser(interpolation=None)
_settings.read(_ROOT / "setup.cfg")
release = _settings["metadata"]["version"]
copyright = "the authors of slurm-gputopo, GPL-2.0-or-later"
html_title = f"{project} {release}"

extensions = ["myst_parser"]
root_doc = "docs/index"
# The source is the checkout, as pages link to some beside docs/.
include_patterns = ["docs/**", "slurm_cluster/README.md", "SECURITY.md", "CONTRIBUTING.md",
                    "CHANGELOG.md"]  # fmt: skip
exclude_patterns = [".*", "build"]
source_suffix = {".md": "markdown"}
# Anchors as GitHub makes them, for headings of every depth.
myst_heading_anchors = 6

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
# Summaries of what was found would be fetched, which no browser does from a file.
html_show_search_summary = False
html_search_scorer = str(Path(__file__).parent / "site" / "scorer.js")
# A block of a page that names no language is a terminal's.
highlight_language = "none"
html_static_path = ["site"]
html_css_files = ["narrow.css"]


def setup(app):
    """Pages beside the navigation; and whoever opens the folder itself comes to the first page."""
    app.connect("doctree-read", beside_the_navigation)
    app.connect("build-finished", first_page)


def beside_the_navigation(app, doctree):
    """A page that no table of contents names is read by a link of another page: no mistake."""
    app.env.metadata[app.env.docname]["orphan"] = True


def first_page(app, error):
    """Write index.html."""
    if error is None and app.builder.name == "html":
        text = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")
