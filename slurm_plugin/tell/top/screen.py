"""The page's view as lines of a terminal: the nodes' GPUs above, the waiting jobs below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from slurm_plugin.tell.explain.text import printable
from slurm_plugin.tell.web.view import View

#: What a GPU is -> its character and its style. Characters differ, for those who see no colours.
GPUS = {"b": ("#", "dim"), "f": (".", "green"), "s": ("!", "bold yellow"), "x": ("x", "dim red")}
#: Letters and colours for the GPUs of jobs that the viewer may see; an x is a closed GPU.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwyz"
COLOURS = ("cyan", "magenta", "blue", "bright_red", "bright_green", "bright_cyan")
#: A node of more GPUs is told in counts.
MOST_GPUS = 16
#: The least of a screen that is drawn, in columns and lines.
LEAST = (40, 10)
KEYS = "q quit   j k or arrows: jobs   n p: nodes   # busy  . free  ! stranded  x closed"


@dataclass(slots=True)
class ScrolledTo:
    """How far the reader has gone down: lines of nodes, and of waiting jobs."""

    nodes: int = 0
    jobs: int = 0


def screen(view: View, place: ScrolledTo, width: int, height: int, clock: str) -> list[Text]:
    """As many lines as the screen has, none wider; `place` is put back where nothing more is.

    With a height of 0 it is one long page, without keys.
    """
    width = max(width, LEAST[0])
    head = [_cut(line, width) for line in _head(view, clock, width)]
    nodes, jobs = _nodes(view, width), _jobs(view, width)
    room = max(height, LEAST[1]) - len(head) - 3 if height else len(nodes) + len(jobs)
    # Waiting jobs get half of it, and what the nodes leave.
    for_nodes = min(len(nodes), max(room // 2, room - len(jobs)))
    place.nodes = _within(place.nodes, len(nodes), for_nodes)
    place.jobs = _within(place.jobs, len(jobs), room - for_nodes)
    figures = view.get("figures", {})
    lines = [
        *head,
        _rule(_part("Nodes", place.nodes, for_nodes, len(nodes)), width),
        *nodes[place.nodes : place.nodes + for_nodes],
        _rule(_part(_waiting(view, figures), place.jobs, room - for_nodes, len(jobs)), width),
        *jobs[place.jobs : place.jobs + room - for_nodes],
    ]
    if not height:
        return lines
    lines += [Text("")] * (height - 1 - len(lines))
    return [*lines, _cut(Text(KEYS, "dim"), width)]


def _head(view: View, clock: str, width: int) -> Iterator[Text]:
    figures = view.get("figures", {})
    stranded = f", {figures['stranded']} stranded" if figures.get("stranded") else ""
    nodes, per_node = figures.get("largest_over_nodes", (0, 0))
    over = f", {nodes * per_node} on {nodes} nodes" if nodes > 1 else ""
    free = f"{clock}  {figures.get('free', 0)} of {figures.get('gpus', 0)} GPUs free{stranded}"
    largest = f"largest job now: {figures.get('largest', 0)} on one node{over}"
    both = f"{free}; {largest}"
    for line in [both] if len(both) <= width else [free, largest]:
        yield Text(line, "bold")
    problems = {
        "Slurm": view.get("slurm", {}).get("problem"),
        "engine": view.get("engine", {}).get("problem"),
        "decision log": view.get("log_problem"),
    }
    for who, problem in problems.items():
        if problem:
            yield Text(printable(f"{who}: {problem}"), "bold red")


def _waiting(view: View, figures: Mapping[str, int]) -> str:
    shown = sum(job["state"] == "PENDING" for job in view.get("jobs", {}).values())
    all_of_them = figures.get("waiting", 0)
    return f"Waiting: {shown} of {all_of_them}" if shown < all_of_them else f"Waiting: {shown}"


def _part(name: str, first: int, shown: int, lines: int) -> str:
    return name if shown >= lines else f"{name} (lines {first + 1} to {first + shown} of {lines})"


def _nodes(view: View, width: int) -> list[Text]:
    """Tiles beside each other: a node's name and its GPUs."""
    tiles = _tiles(view)
    if not tiles:
        return [Text("no node has GPUs", "dim")]
    cell = min(width, max(tile.cell_len for tile in tiles) + 2)
    per_line = max(1, width // cell)
    lines = []
    for at in range(0, len(tiles), per_line):
        line = Text()
        for tile in tiles[at : at + per_line]:
            tile.truncate(cell - 1, overflow="ellipsis")
            line.append_text(tile)
            line.append(" " * (cell - tile.cell_len))
        line.rstrip()
        lines.append(line)
    return lines


def _tiles(view: View) -> list[Text]:
    names: Sequence[str] = sorted(view.get("nodes", {}), key=_natural)
    wide = max(map(len, names), default=0)
    letters = _letters(view)
    held = {
        (node, gpu): letters[number]
        for number, job in view.get("jobs", {}).items()
        for node, gpus in job.get("gpus", {}).items()
        for gpu in gpus
    }
    tiles = []
    for name in names:
        node = view["nodes"][name]
        tile = Text(printable(name).ljust(wide) + " ")
        states = node["gpus"]
        if len(states) > MOST_GPUS:
            free = sum(state in "fs" for state in states)
            tile.append(f"{free} of {len(states)} free", "green" if free else "dim")
        else:
            for gpu, state in enumerate(states):
                tile.append(*held.get((name, gpu), GPUS[state]))
        tiles.append(tile)
    return tiles


def _letters(view: View) -> dict[str, tuple[str, str]]:
    """Job that runs -> its letter and colour; no letter twice while there are enough of them."""
    running = sorted((int(job) for job, row in view.get("jobs", {}).items() if row.get("gpus")))
    letters: dict[str, tuple[str, str]] = {}
    taken: set[str] = set()
    for job in running:
        # It keeps its letter from one reading to the next, unless an older job's end frees one.
        wish = job % len(LETTERS)
        letter = next((one for one in LETTERS[wish:] + LETTERS if one not in taken), LETTERS[wish])
        taken.add(letter)
        letters[str(job)] = letter, COLOURS[job % len(COLOURS)]
    return letters


def _jobs(view: View, width: int) -> list[Text]:
    """Waiting jobs in their order, each with its sentence; then those that run, a line each."""
    jobs = sorted(view.get("jobs", {}).items(), key=lambda one: (one[1].get("place", 0), one[0]))
    lines = []
    for _, job in jobs:
        if job["state"] == "PENDING":
            words = f"{job['name']}  {job['user']}  {job['partition']}  {job['asked']}"
            lines.append(_cut(Text(printable(words), "bold"), width))
            sentence = printable(job.get("sentence") or f"Slurm says: {job['reason']}")
            wrapped = textwrap.wrap(sentence, width - 4, break_long_words=True)
            lines += [Text(f"    {line}") for line in wrapped]
    if not lines:
        lines.append(Text("no job of yours waits" if view.get("is_own") else "no job waits", "dim"))
    letters = _letters(view)
    lines += [_cut(_running(letters[name], job), width) for name, job in jobs if name in letters]
    return lines


def _running(letter: tuple[str, str], job: View) -> Text:
    line = Text()
    line.append(*letter)
    held = "  ".join(f"{node}: {','.join(map(str, gpus))}" for node, gpus in job["gpus"].items())
    speed = f"  {job['gbps']:.1f} GB/s" if job.get("gbps") else ""
    line.append(printable(f" {job['name']}  {job['user']}  runs on {held}{speed}"))
    return line


def _within(first: int, lines: int, shown: int) -> int:
    return max(0, min(first, lines - shown))


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def _rule(title: str, width: int) -> Text:
    return Text(f"-- {title} ".ljust(width, "-")[:width], "dim")


def _natural(name: str) -> list[tuple[int, str]]:
    """n2 comes before n10."""
    parts = "".join(char if char.isdecimal() else f"\n{char}\n" for char in name).split("\n")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]
