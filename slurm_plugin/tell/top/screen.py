"""The page's view as lines of a terminal: the nodes' GPUs above, the waiting jobs below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from slurm_plugin.tell.explain.text import printable
from slurm_plugin.tell.web.view import View, natural

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


#: Lines of what the letters on the shown nodes mean, at most.
LEGEND = 4


@dataclass(slots=True)
class Reader:
    """How far the reader has gone down, and what he was shown."""

    #: Lines of nodes, and of waiting jobs.
    nodes: int = 0
    jobs: int = 0
    #: Job -> its letter, for as long as it runs.
    letters: dict[str, str] = field(default_factory=dict)


def screen(view: View, reader: Reader, width: int, height: int, clock: str) -> list[Text]:
    """As many lines as the screen has, none wider; the reader is put back where nothing more is.

    With a height of 0 it is one long page, without keys.
    """
    width = max(width, LEAST[0])
    head = [_cut(line, width) for line in _head(view, clock, width)]
    _give_letters(view, reader.letters)
    nodes, jobs = _nodes(view, reader.letters, width), _jobs(view, reader.letters, width)
    room = max(height, LEAST[1]) - len(head) - 3 if height else len(nodes) + len(jobs)
    # Waiting jobs get half of it, and what the nodes leave.
    for_nodes = min(len(nodes) + LEGEND * bool(height), max(room // 2, room - len(jobs)))
    reader.nodes, legend = _shown_nodes(view, reader, nodes, for_nodes, width)
    shown = min(len(nodes) - reader.nodes, for_nodes - len(legend))
    for_jobs = room - shown - len(legend)
    reader.jobs = _within(reader.jobs, len(jobs), for_jobs)
    figures = view.get("figures", {})
    lines = [
        *head,
        _rule(_part("Nodes", reader.nodes, shown, len(nodes)), width),
        *(line for line, _ in nodes[reader.nodes : reader.nodes + shown]),
        *legend,
        _rule(_part(_waiting(view, figures), reader.jobs, for_jobs, len(jobs)), width),
        *jobs[reader.jobs : reader.jobs + for_jobs],
    ]
    if not height:
        return lines
    lines += [Text("")] * (height - 1 - len(lines))
    return [*lines, _cut(Text(KEYS, "dim"), width)]


#: A line of tiles, and the jobs that hold GPUs on them.
_Tiles = tuple[Text, tuple[str, ...]]


def _shown_nodes(
    view: View, reader: Reader, nodes: Sequence[_Tiles], room: int, width: int
) -> tuple[int, list[Text]]:
    """The first line of nodes that is shown, and the legend below the last one, within `room`."""
    if room >= len(nodes) and not any(jobs for _, jobs in nodes):
        return 0, []
    for lines in range(min(len(nodes), room), 0, -1):
        first = _within(reader.nodes, len(nodes), lines)
        jobs = dict.fromkeys(job for _, some in nodes[first : first + lines] for job in some)
        legend = _legend(view, reader.letters, jobs, width)
        if lines + len(legend) <= room:
            return first, legend
    return _within(reader.nodes, len(nodes), room), []


def _legend(view: View, letters: Mapping[str, str], jobs: Iterable[str], width: int) -> list[Text]:
    """What the letters mean: as many to a line as fit, and how many more there are."""
    lines, left = [Text()], [*jobs]
    while left:
        job = view["jobs"][left[0]]
        entry = Text(f"{letters[left[0]]} ", _colour(left[0]))
        entry.append(printable(f"{job['name']} {job['user']}  ")[: width // 2], "default")
        more = f"and {len(left)} more" if len(lines) == LEGEND else ""
        if lines[-1].cell_len + entry.cell_len + len(more) > width:
            if more:
                lines[-1].append(more, "dim")
                break
            lines.append(Text())
        lines[-1].append_text(entry)
        left.pop(0)
    return [line for line in lines if line.plain]


def _head(view: View, clock: str, width: int) -> Iterator[Text]:
    figures = view.get("figures", {})
    stranded = f", {figures['stranded']} stranded" if figures.get("stranded") else ""
    nodes, per_node = figures.get("largest_over_nodes", (0, 0))
    over = f", {nodes * per_node} on {nodes} nodes" if nodes > 1 else ""
    free = f"{clock}  {figures.get('free', 0)} of {figures.get('gpus', 0)} GPUs free{stranded}"
    largest = f"largest job that fits now: {figures.get('largest', 0)} on one node{over}"
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


def _nodes(view: View, letters: Mapping[str, str], width: int) -> list[_Tiles]:
    """Tiles beside each other: a node's name and its GPUs."""
    tiles = _tiles(view, letters)
    if not tiles:
        return [(Text("no node has GPUs", "dim"), ())]
    cell = min(width, max(tile.cell_len for tile, _ in tiles) + 2)
    per_line = max(1, width // cell)
    lines = []
    for at in range(0, len(tiles), per_line):
        line = Text()
        jobs: list[str] = []
        for tile, held in tiles[at : at + per_line]:
            tile.truncate(cell - 1, overflow="ellipsis")
            line.append_text(tile)
            line.append(" " * (cell - tile.cell_len))
            jobs += held
        line.rstrip()
        lines.append((line, tuple(dict.fromkeys(jobs))))
    return lines


def _tiles(view: View, letters: Mapping[str, str]) -> list[_Tiles]:
    names: Sequence[str] = sorted(view.get("nodes", {}), key=natural)
    wide = max(map(len, names), default=0)
    held = {
        (node, gpu): number
        for number, job in view.get("jobs", {}).items()
        for node, gpus in job.get("gpus", {}).items()
        for gpu in gpus
    }
    tiles = []
    for name in names:
        node = view["nodes"][name]
        tile = Text(printable(name).ljust(wide) + " ")
        states = node["gpus"]
        jobs: list[str] = []
        if len(states) > MOST_GPUS:
            free = sum(state in "fs" for state in states)
            tile.append(f"{free} of {len(states)} free", "green" if free else "dim")
        else:
            for gpu, state in enumerate(states):
                job = held.get((name, gpu))
                tile.append(*(GPUS[state] if job is None else (letters[job], _colour(job))))
                jobs += [] if job is None else [job]
        tiles.append((tile, tuple(jobs)))
    return tiles


def _give_letters(view: View, letters: dict[str, str]) -> None:
    """A letter for each job that runs, kept as long as it does.

    No letter twice while there are enough of them.
    """
    running = {job for job, row in view.get("jobs", {}).items() if row.get("gpus")}
    for job in letters.keys() - running:
        del letters[job]
    taken = set(letters.values())
    for job in sorted(running - letters.keys(), key=int):
        wish = int(job) % len(LETTERS)
        letter = next((one for one in LETTERS[wish:] + LETTERS if one not in taken), LETTERS[wish])
        taken.add(letter)
        letters[job] = letter


def _colour(job: str) -> str:
    return COLOURS[int(job) % len(COLOURS)]


def _jobs(view: View, letters: Mapping[str, str], width: int) -> list[Text]:
    """Waiting jobs in their order, each with its sentence; then those that run, a line each."""
    jobs = sorted(view.get("jobs", {}).items(), key=lambda one: (one[1].get("place", 0), one[0]))
    lines = []
    for _, job in jobs:
        if job["state"] == "PENDING":
            over = f" on {job['nodes']} nodes" if job["nodes"] > 1 else ""
            words = f"{job['name']}  {job['user']}  {job['partition']}  {job['asked']}{over}"
            lines.append(_cut(Text(printable(words), "bold"), width))
            sentence = printable(job.get("sentence") or f"Slurm says: {job['reason']}")
            wrapped = textwrap.wrap(sentence, width - 4, break_long_words=True)
            lines += [Text(f"    {line}") for line in wrapped]
    if not lines:
        lines.append(Text("no job of yours waits" if view.get("is_own") else "no job waits", "dim"))
    running = [(name, job) for name, job in jobs if name in letters]
    lines += [Text("Running:", "dim")] if running else []
    lines += [_cut(_running(letters[name], _colour(name), job), width) for name, job in running]
    return lines


def _running(letter: str, colour: str, job: View) -> Text:
    line = Text()
    line.append(letter, colour)
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
