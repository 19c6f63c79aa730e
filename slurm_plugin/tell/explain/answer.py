"""The engine's side of a question that came with a credential: who may see what.

Root and SlurmUser see every job, others their own. The answer for another user's job is the same as
for a job that does not exist.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from slurm_plugin.base import munge
from slurm_plugin.base.log_lines import LineReader
from slurm_plugin.decide.machines import Machines
from slurm_plugin.errors import PluginError
from slurm_plugin.tell.explain import machines
from slurm_plugin.tell.explain.search import LogIndex
from slurm_plugin.tell.explain.story import may_see, story_of

#: Version of question and answer.
VERSION = 1
MAX_QUESTION_BYTES = 1024
#: An answer as JSON; munge takes 1 MiB, base64 included.
MAX_ANSWER_BYTES = 500_000


class NotShown(PluginError):
    """There is nothing this user may be told."""


def unknown(job: int) -> str:
    """The words for a job that is not known, or not this user's."""
    return f"job {job}: no decision for a job of yours with this number"


#: The engine's own notes on a job, as a story; None without.
Noted = Callable[[int], dict[str, Any] | None]


def answer(
    asked: munge.Opened, log: LogIndex, known: Machines, noted: Noted = lambda _: None
) -> bytes:
    """The credential that answers a question; only the user who asked can open it.

    Raises MungeError where munge does not seal it. It blocks: to be called in a thread.
    """
    reply: dict[str, Any] = {"gputopo": VERSION}
    try:
        job, reply["nonce"] = _question(asked.payload)
        reply |= tell(job, asked.uid, log, known, noted)
    except NotShown as error:
        reply["message"] = str(error)
    return munge.seal(_encoded(reply), only_uid=asked.uid)


def tell(
    job: int, uid: int, log: LogIndex, known: Machines, noted: Noted = lambda _: None
) -> dict[str, Any]:
    """`told` and the `machines` to draw, as far as `uid` may see; raises NotShown."""
    reader = LineReader()
    records = log.find(job, reader)
    sees_all = uid in (0, os.getuid())
    if not sees_all:
        records = may_see(records, uid)
    if not records:
        note = noted(job)
        if note is None or (note["uid"] != uid and not sees_all):
            raise NotShown(unknown(job))
        return {"told": note, "machines": {}}
    story = story_of(job, records, "engine", reader.unread, known)
    return {"told": story, "machines": machines.shown(known, story)}


def _question(payload: bytes) -> tuple[int, str]:
    try:
        if len(payload) > MAX_QUESTION_BYTES:
            raise ValueError
        asked = json.loads(payload)
        job, nonce = asked["job"], asked["nonce"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NotShown("the question cannot be read; are both sides of one release?") from None
    if type(job) is not int or not 0 < job < 2**32 or not isinstance(nonce, str):
        raise NotShown("the question names no job")
    return job, nonce[:64]


def _encoded(reply: dict[str, Any]) -> bytes:
    encoded = json.dumps(reply).encode()
    for key in ("candidates", "earlier", "tasks"):
        if len(encoded) <= MAX_ANSWER_BYTES:
            return encoded
        reply.get("told", {}).pop(key, None)
        encoded = json.dumps(reply).encode()
    if len(encoded) <= MAX_ANSWER_BYTES:
        return encoded
    small = {"gputopo": VERSION, "nonce": reply.get("nonce", "")}
    return json.dumps({**small, "message": "the answer is too long to be sent"}).encode()
