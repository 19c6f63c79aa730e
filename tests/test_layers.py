"""Imports run downwards only: slurm_plugin and simulation -> policies -> gres_topology.

The cluster to test with, slurm_cluster, and papers, which is no part of the product, lie above.
"""

import ast
import re
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
    "papers": {"slurm_plugin", "simulation", "policies", "gres_topology"},
}
#: What `policies` must not do: open a file, a socket or a clock.
IMPURE = {"socket", "time", "os", "pathlib", "io", "subprocess", "asyncio", "random"}


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
ROOMS_OF = ("gres_topology", "policies", "simulation", "slurm_plugin", "papers")
#: What tests, reproduces and measures, beside the product.
BESIDE = ("slurm_cluster", "papers")


@pytest.mark.parametrize(
    ("folders", "depth"),
    [(MAY_IMPORT, None), (ROOMS_OF, 2), (ROOMS_OF, 3)],
    ids=["files", "rooms", "rooms of rooms"],
)
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
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # datetime reads what people write; its clock is another matter.
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not asked & {"now", "utcnow", "today"}
    calls = [
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "open" not in calls


def test_every_folder_of_the_layout_is_looked_at():
    assert {folder for folder in MAY_IMPORT if list((ROOT / folder).glob("*.py"))} == set(
        MAY_IMPORT
    )


#: The rooms of slurm_plugin, of which each may import those before it, and why it stands there.
ORDER = {
    "base": "files, messages and what AdminComment keeps, for everybody",
    "node": "runs on the nodes, where nothing else of ours is",
    "config": "what a site says, and nothing that goes by it",
    "slurm": "its clients; which of them is the settings' choice",
    "learn": "what is known of jobs and nodes, wherever it is used",
    "queue": "Slurm's nouns as what is free and wanted",
    "decide": "one decision, which knows no queue",
    "act": "changes Slurm by what was decided and the queue",
    "tell": "tells of all of it",
    "doctor": "looks at an installation",
    "enabling": "changes slurm.conf where doctor's checks hold",
    "serve": "puts the rooms together",
    "cli": "people's way in",
}
#: The same of the rooms of who acts.
ACT_ORDER = {
    "collect": "submits a job to each node, whatever the queue",
    "profiling": "submits where the queue leaves room",
    "lending": "what decisions and the queue leave over",
    "gates": "releases jobs, lent GPUs included",
    "order": "raises waiting jobs, whatever releases them",
    "defrag": "moves running jobs, whose new places are kept as those of loans",
    "enforcement": "both ways of enforcing beside each other",
    "genie": "wraps whatever enforces",
}
#: The same of the rooms of what people are told.
TELL_ORDER = {
    "explain": "tells of decisions and loans",
    "why": "tells of jobs that wait; what was decided for them it asks explain",
    "web": "shows what the others know",
    "top": "shows the same in a terminal",
}
#: Names in one chain of imports among rooms and modules of slurm_plugin, at most; and their number.
LONGEST_CHAIN, MOST_ROOMS = 8, 16
#: The same of policies, modules beside the rooms included.
POLICIES_ORDER = {
    "errors": "everybody's",
    "order": "who may go first in a queue, and how long jobs take; knows no GPUs",
    "fragmentation": "counts of free GPUs, which know nothing else",
    "patterns": "graphs over ranks, which know no node",
    "performance": "how long jobs run, which knows no node either",
    "contract": "what every policy and its callers agree on; hint keys name patterns",
    "matching": "patterns on a node's links",
    "bandwidth": "what a match is worth in GB/s",
    "scoring": "what a set is worth to this job and to later ones",
    "first_fit": "a policy, which scores what it chose",
    "best_fit": "a policy whose domains topo_aware takes over",
    "slices": "a policy of its own for MIG slices, which have no links",
    "topo_aware": "policies with a model of their own",
    "mapa": "policies that choose by scores",
    "horizon": "mapa with the queue in view",
    "genie": "shapes jobs; inside a node it is mapa",
    "remote": "GPUs of other nodes; not asked for by name",
    "registry": "knows every policy by its name",
    "hints": "reads what users write by the keys of the registry's policies",
}
PLUGIN = ROOT / "slurm_plugin"
#: The same of simulation.
SIMULATION_ORDER = {
    "core": "the clock, the jobs and the nodes, which every simulator uses",
    "traces": "logs as jobs; they know no simulator",
    "stock": "policies of the simulator alone, which know no simulator",
    "models": "the simulators and the models of how long a job runs",
    "report": "figures of what the simulators did",
}
#: The same of papers.
PAPERS_ORDER = {
    "simulators": "replay jobs that borrow GPUs or are shaped, whatever the paper",
    "experiments": "the papers' evaluations",
    "reproduction": "what the experiments say of the papers, row by row",
    "command": "people's way in",
}
TABLES = {
    "simulation": SIMULATION_ORDER,
    "slurm_plugin": ORDER,
    "slurm_plugin.act": ACT_ORDER,
    "slurm_plugin.tell": TELL_ORDER,
    "policies": POLICIES_ORDER,
    "papers": PAPERS_ORDER,
}


#: The plugins in C, and their folders; each includes headers of those before it alone.
IN_C = {
    "select": ("pure", "nodes", "slurmctld", "shim"),
    "spank": ("pure", ""),
    "node/carry": ("",),
}
#: These include none of Slurm's.
WITHOUT_SLURM = {"pure", "nodes"}


def included(path: Path) -> list[str]:
    return re.findall(r'^#include ["<](.+)[">]', path.read_text(encoding="utf-8"), re.M)


def in_c(plugin: str, suffix: str = "[ch]") -> list[tuple[int, Path]]:
    """The plugin's files, each with its folder's place in the order."""
    return [
        (place, path)
        for place, folder in enumerate(IN_C[plugin])
        for path in sorted((PLUGIN / plugin / folder).glob(f"*.{suffix}"))
    ]


@pytest.mark.parametrize("plugin", IN_C)
def test_a_folder_in_c_includes_those_before_it_alone(plugin):
    assert {path for _, path in in_c(plugin)} == set((PLUGIN / plugin).rglob("*.[ch]"))
    of = {path.name: place for place, path in in_c(plugin, "h")}
    for place, path in in_c(plugin):
        used = included(path)
        assert not [name for name in used if of.get(name, 0) > place], path
        slurms = [name for name in used if "slurm" in name or name.startswith("src/")]
        assert IN_C[plugin][place] not in WITHOUT_SLURM or not slurms, path


@pytest.mark.parametrize("plugin", IN_C)
def test_files_of_a_plugin_in_c_form_no_circle(plugin):
    """A file and its header are one."""
    headers = {path.name for _, path in in_c(plugin, "h")}
    arrows = nx.DiGraph(
        (path.stem, Path(name).stem)
        for _, path in in_c(plugin)
        for name in headers.intersection(included(path))
        if Path(name).stem != path.stem
    )
    assert arrows
    assert sorted(nx.simple_cycles(arrows)) == []


CODE = [
    path
    for folder in (*MAY_IMPORT, "bench", "tests")
    for path in sorted((ROOT / folder).rglob("*.*"))
    if path.suffix in {".py", ".c", ".h", ".lua"}
]


def test_no_room_has_more_modules_than_one_can_look_through():
    """About a dozen beside `__init__`; in C a file and its header are one."""
    rooms: dict[Path, list[Path]] = {}
    for path in CODE:
        if "tests" not in path.parts and path.stem != "__init__":
            rooms.setdefault(path.parent.relative_to(ROOT), []).append(path)
    modules = {room: len({path.stem for path in paths}) for room, paths in rooms.items()}
    assert {str(room): n for room, n in modules.items() if n > 14} == {}


def test_a_name_is_that_of_one_class_alone():
    """So that whoever meets it anywhere knows which; the cluster to test with is its own world."""
    where: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        if name.startswith(BESIDE):
            continue
        for one in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
                where.setdefault(one.name, []).append(name)
    assert len(where) > 600
    assert {name: rooms for name, rooms in where.items() if len(rooms) > 1} == {}


def test_the_table_names_every_room():
    """C has rooms of its own, and systemd's units are no code."""
    for folder in ("simulation", "slurm_plugin", "slurm_plugin.act", "slurm_plugin.tell"):
        rooms = ROOT.joinpath(*folder.split(".")).iterdir()
        assert {path.name for path in rooms if any(path.glob("*.py"))} == set(TABLES[folder])
    for folder, order in (("policies", POLICIES_ORDER), ("papers", PAPERS_ORDER)):
        modules = {name.split(".")[1] for name in MODULES if name.startswith(f"{folder}.")}
        assert modules == set(order)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = [*ORDER, *ACT_ORDER, *TELL_ORDER]
    assert not [room for room in named if f"`{room}`" not in page]


@pytest.mark.parametrize(
    ("folder", "order", "room"),
    [
        pytest.param(folder, list(order), room, id=f"{folder}.{room}")
        for folder, order in TABLES.items()
        for room in order
    ],
)
def test_a_room_uses_those_before_it_alone(folder, order, room):
    later, depth = set(order[order.index(room) + 1 :]), folder.count(".") + 1
    used = {
        name.split(".")[depth]
        for module_name, path in MODULES.items()
        if f"{module_name}.".startswith(f"{folder}.{room}.")
        for name in needed(path)
        if name.startswith(f"{folder}.")
    }
    assert not used & later


def test_errors_are_everybodys():
    """The one module beside the rooms."""
    assert {path.stem for path in PLUGIN.glob("*.py")} == {"__init__", "errors"}
    assert not [name for name in needed(PLUGIN / "errors.py") if name.startswith("slurm_plugin")]


def test_the_house_is_small_and_flat():
    """What a stranger has to learn before the first change."""
    entries = {path.stem for path in PLUGIN.iterdir()} - {"__init__", "__pycache__", "py"}
    assert len(entries) <= MOST_ROOMS
    arrows = nx.DiGraph(
        (name.split(".")[1], other.split(".")[1])
        for name, path in MODULES.items()
        for other in needed(path)
        if name.startswith("slurm_plugin.") and other.startswith("slurm_plugin.")
        if name.split(".")[1] != other.split(".")[1]
    )
    assert len(nx.dag_longest_path(arrows)) <= LONGEST_CHAIN, nx.dag_longest_path(arrows)


def test_every_file_that_the_page_walks_through_is_there():
    """Named by its path, or by its name alone where the one before it lies beside it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.(?:py|c|lua))`", page)
    assert len(named) > 40
    there = {path.name for folder in (PLUGIN, ROOT / "lua_bridge") for path in folder.rglob("*.*")}
    lost = [
        name
        for name in named
        if not ((ROOT / name).exists() or (PLUGIN / name).exists() or name in there)
    ]
    assert lost == []
