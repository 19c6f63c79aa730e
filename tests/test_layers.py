"""Imports run downwards only: slurm_plugin and simulation -> policies -> gres_topology.

The cluster to test with, slurm_cluster, lies above slurm_plugin.
"""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Folder -> the folders of ours it may import besides itself.
MAY_IMPORT = {
    "gres_topology": set(),
    "policies": {"gres_topology"},
    "simulation": {"policies", "gres_topology"},
    "slurm_plugin": {"policies", "gres_topology", "simulation"},
    "lua_bridge": set(),
    "slurm_cluster": {"slurm_plugin", "gres_topology"},
}
#: What `policies` must not do: open a file, a socket or a clock.
IMPURE = {"socket", "time", "datetime", "os", "pathlib", "io", "subprocess", "asyncio", "random"}


def imported(path: Path) -> set[str]:
    """Top-level names of everything a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import; write the folder's name"
            found.add((node.module or "").split(".")[0])
    return found


FILES = [
    pytest.param(folder, path, id=str(path.relative_to(ROOT)))
    for folder in MAY_IMPORT
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize(("folder", "path"), FILES)
def test_a_file_imports_only_what_lies_below(folder, path):
    ours = imported(path) & set(MAY_IMPORT)
    assert ours <= MAY_IMPORT[folder] | {folder}


def module(path: Path) -> str:
    """Its dotted name; a package's for its __init__.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def needed(path: Path) -> set[str]:
    """Modules that a file imports to run, wherever in the file: not for type checks alone."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in MODULES else node.module for name in names)
    return found


#: Every file of ours by its module.
MODULES = {module(path): path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py")}
#: Folders whose rooms (sub-folders, and the modules beside them) form no circle either.
ROOMS_OF = ("gres_topology", "policies", "simulation", "slurm_plugin")


@pytest.mark.parametrize(("folders", "depth"), [(MAY_IMPORT, None), (ROOMS_OF, 2)],
                         ids=["files", "rooms"])  # fmt: skip
def test_imports_form_no_circle(folders, depth):
    def shortened(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    arrows = nx.DiGraph(
        (shortened(name), shortened(other))
        for name, path in MODULES.items()
        for other in needed(path) & MODULES.keys()
        if name.split(".")[0] in folders
    )
    circles = [sorted(found) for found in nx.strongly_connected_components(arrows)]
    assert [found for found in circles if len(found) > 1] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "policies").rglob("*.py")), ids=lambda path: path.name
)
def test_policies_open_no_file_no_socket_no_clock(path):
    assert not imported(path) & IMPURE
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "open" not in calls


def test_every_folder_of_the_layout_is_looked_at():
    assert {folder for folder in MAY_IMPORT if list((ROOT / folder).glob("*.py"))} == set(
        MAY_IMPORT
    )
