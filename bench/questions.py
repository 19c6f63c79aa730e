"""Recorded `place` questions: the lines that a live slurmctld sent.

They are in assets/place_questions.txt, made by bench.live.record_questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.base.protocol import Place, decode

RECORDED = Path(__file__).parent / "assets" / "place_questions.txt"


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
