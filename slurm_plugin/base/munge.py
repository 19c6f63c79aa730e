"""Munge credentials by its command-line tools: who asks, and an answer that only they can read.

munged itself refuses a credential that is used twice, forged, or too old.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from slurm_plugin.errors import PluginError

#: Longest credential that is looked at.
MAX_CREDENTIAL_BYTES = 1 << 20
TIMEOUT_S = 3.0
_CREDENTIAL = re.compile(rb"MUNGE:[A-Za-z0-9+/=]+:\Z")
_UID = re.compile(rb"^UID:\s+(?:\S+ \()?(\d{1,10})\)?\s*$", re.MULTILINE)


class MungeError(PluginError):
    """munge refused, is not there, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a credential held, and the uid munged vouches for."""

    uid: int
    payload: bytes


def seal(payload: bytes, only_uid: int | None = None) -> bytes:
    """A credential of this process's uid; `only_uid` may open it, else everybody."""
    options = [] if only_uid is None else ["--restrict-uid", str(only_uid)]
    return _run(["munge", *options], payload).strip()


def open_sealed(credential: bytes) -> Opened:
    """Who made a credential and what is in it. Raises MungeError, also for a replayed one."""
    if len(credential) > MAX_CREDENTIAL_BYTES or not _CREDENTIAL.match(credential.strip()):
        raise MungeError("not a munge credential")
    out = _run(["unmunge", "--numeric", "--keys", "STATUS,UID"], credential)
    header, _, payload = out.partition(b"\n\n")
    uid = _UID.search(header)
    if uid is None:
        raise MungeError("unmunge named no uid")
    return Opened(int(uid[1]), payload)


def _run(argv: list[str], stdin: bytes) -> bytes:
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise MungeError(f"{argv[0]}: no such command; install munge") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MungeError(f"{argv[0]}: {error}; is munged running?") from error
    if done.returncode != 0:
        lines = (done.stderr or b"").decode(errors="replace").split("\n")
        raise MungeError(lines[0].strip() or f"{argv[0]}: exit {done.returncode}")
    return done.stdout
