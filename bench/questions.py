"""Recorded `place` questions: read, and grown to as many candidate nodes as asked.

The recording (assets/place_questions.txt, made by bench.live.record_questions) holds the lines
a live slurmctld sent. Growing keeps what was recorded and adds clones of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from slurm_plugin.placement import CandidateNode
from slurm_plugin.protocol import Place, decode, encode_request

RECORDED = Path(__file__).parent / "assets" / "place_questions.txt"

#: Clones a node can have; their names are `NODE-NNN`.
MOST_CLONES = 1_000


def read(path: Path = RECORDED) -> list[Place]:
    """The questions of a recording, one per line; `#` starts a comment.

    Raises ValueError naming the line for anything but a `place` question.
    """
    questions = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        message = decode(line)
        if not isinstance(message, Place):
            raise ValueError(f"{path}:{number}: a {type(message).__name__}; expected `place ...`")
        questions.append(message)
    return questions


def random_mask(total: int, rng: Random) -> int:
    """Free GPUs of a node: first how many (uniform, 0 to all), then which."""
    return sum(1 << gpu for gpu in rng.sample(range(total), rng.randint(0, total)))


class FreeMasks:
    """The free GPUs of every clone, from question to question.

    Of the clones asked for again, the share `redrawn` has a new random mask: 1.0 is a
    cluster that is another one at every question (the worst for whatever remembers), 0.01
    one in which a hundredth of the nodes changed since the last.
    """

    def __init__(self, rng: Random, redrawn: float) -> None:
        self._rng, self._redrawn = rng, redrawn
        self._masks: dict[str, int] = {}

    def of(self, name: str, total: int) -> int:
        """The mask of one clone in the next question."""
        if name not in self._masks or self._rng.random() < self._redrawn:
            self._masks[name] = random_mask(total, self._rng)
        return self._masks[name]


def grow(question: Place, nodes: int, masks: FreeMasks) -> Place:
    """The question with `nodes` candidates: the recorded ones and clones of them.

    A clone has its origin's size and Weight, a free mask of its own and no GPUs that Slurm
    chose. A question that has as many already is returned unchanged.
    """
    clones = []
    for i in range(nodes - len(question.candidates)):
        origin = question.candidates[i % len(question.candidates)]
        name = f"{origin.name}-{i % MOST_CLONES:03d}"
        free = masks.of(name, origin.total)
        clones.append(CandidateNode(name, origin.total, free, 0, origin.weight))
    return replace(question, candidates=question.candidates + tuple(clones))


def renumbered(question: Place, number: int) -> bytes:
    """The question's line under another message id and job id."""
    return encode_request(replace(question, id=number, job=number))


def host_list(name: str) -> str:
    """A recorded node and every clone it may have, as a host list of gputopo.yaml."""
    return f"{name},{name}-[000-{MOST_CLONES - 1:03d}]"


def machines_of(questions: Sequence[Place], kinds: Mapping[str, str]) -> dict[str, str]:
    """Recorded node -> machine of the catalog, by the prefixes of `kinds`.

    Raises ValueError for a node no prefix fits.
    """
    machines = {}
    for name in sorted({node.name for question in questions for node in question.candidates}):
        machine = next((kinds[prefix] for prefix in kinds if name.startswith(prefix)), None)
        if machine is None:
            raise ValueError(f"recorded node {name}: expected one of {', '.join(kinds)}...")
        machines[name] = machine
    return machines
