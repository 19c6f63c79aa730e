"""The process that acts for users. It answers one question at a time and remembers nothing."""

from __future__ import annotations

import logging
import os
import pwd
import re
import resource
import socket
import struct
import time
from functools import partial
from pathlib import Path

from slurm_plugin.act.lending.acting import child, donor, own_settings, question
from slurm_plugin.act.lending.acting.child import run_as
from slurm_plugin.act.lending.acting.question import MAX_BYTES, Question
from slurm_plugin.base.notify import Notifier
from slurm_plugin.errors import ConfigError, PluginError, SlurmError, in_one_line

logger = logging.getLogger(__name__)

#: Seconds for a peer to send its line, and again to take our answer.
PEER_S = 2.0
#: Seconds between two questions: no more than twenty a second.
PAUSE_S = 0.05
#: How many connections may wait.
WAITING = 16
_JOB_ID = re.compile(r"([1-9][0-9]{0,9})(;[\w.-]+)?")


def serve(config: Path, user: str) -> None:
    """Answer the engine, which runs as `user`, until a signal ends us.

    PluginError where the socket cannot be made, or the configuration cannot be used.
    """
    try:
        engine = pwd.getpwnam(user)
    except KeyError as error:
        raise ConfigError(f"--user {user}: no such user; expected SlurmUser") from error
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not (adopts := child.adopt_orphans()):
        logger.warning("what users' commands leave running stays there: no subreaper")
    path = own_settings.load(config)[0].submitter
    with listening(path, engine.pw_gid) as listener:
        Notifier().ready(f"submits donors for {user}")
        logger.info("submits donors for %s at %s", user, path)
        while True:
            peer, _ = listener.accept()
            with peer:
                talk(peer, {0, engine.pw_uid}, config)
            if adopts and (left := child.end_orphans()):
                logger.error("%d processes that a user's command left cannot be ended", left)
            time.sleep(PAUSE_S)


def listening(path: Path, gid: int) -> socket.socket:
    """A socket that only root and this group may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask, group = os.umask(0o117), os.getegid()
    try:
        # The socket is made with this group; changing it later would take CAP_CHOWN.
        os.setegid(gid)
        if path.is_socket():
            path.unlink()
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        why = error.strerror or error
        raise ConfigError(f"remote.submitter: {path}: {why}; its folder must be root's") from error
    finally:
        os.setegid(group)
        os.umask(mask)
    listener.listen(WAITING)
    return listener


def talk(peer: socket.socket, allowed: set[int], config: Path) -> None:
    """Answer one peer. Whatever it does, no exception leaves here."""
    peer.settimeout(PEER_S)
    try:
        line = question.line_of(peer)
        _, uid, _ = struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in allowed:
            raise SlurmError(f"uid {uid} may not ask; only the engine does")
        reply = f"ok {answer(question.read(line), config)}"
    except PluginError as error:
        reply = f"error {error}"
        logger.warning("refused: %s", error)
    except OSError as error:
        logger.warning("a peer said nothing: %s", error)
        return
    except Exception:
        logger.exception("a question could not be answered")
        reply = "error it could not be answered; see journalctl -u gputopo-donors"
    try:
        peer.sendall(in_one_line(reply).encode()[: MAX_BYTES - 1] + b"\n")
    except OSError as error:
        logger.warning("a peer did not wait for %r: %s", reply, error)


def answer(asked: Question | None, config: Path) -> str:
    """A donor's job id, or '' where nobody asked for one; PluginError says why there is none."""
    remote, slurm = own_settings.load(config)
    if not remote.allow:
        raise ConfigError(f"{config}: remote.allow is no")
    if asked is None:
        return ""
    if asked.uid < remote.first_uid:
        raise SlurmError(
            f"uid {asked.uid}: users below uid {remote.first_uid} (remote.first_uid) borrow nothing"
        )
    run = partial(run_as, asked.uid, bin_dir=slurm.bin_dir, timeout_s=slurm.timeout_s)
    # Run as the user. The user could forge the answer, but only about the user's own jobs.
    record = run(donor.question(asked.borrower))
    inherited = donor.inherited(asked.borrower, asked.uid, record)
    output = run(donor.words(asked, inherited, remote)).strip()
    job_id = _JOB_ID.fullmatch(output)
    if job_id is None:
        raise SlurmError(f"sbatch: {output[:100]!r} is no job id")
    logger.info("job %s: a donor of job %d, as uid %d", job_id[1], asked.borrower, asked.uid)
    return job_id[1]
