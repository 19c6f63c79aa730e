"""What a job with remote GPUs does before its first process: meet every donor, then tell the task.

Run by the batch step's TaskProlog as the job's user. Where a donor cannot prove who it is, the job
goes back into the queue. A process of the job stays behind: it proves each connection of the tasks'
to the donor, and hands it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.base import preset
from slurm_plugin.base.job_notes.donor import DonorReport
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import PLACED, STARTS, GateRecord, LoanRecord
from slurm_plugin.base.preset import Server
from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import relay, slurm, sockets
from slurm_plugin.node.remote.door import WIRE, Desk, Tools
from slurm_plugin.node.remote.handshake import Munge
from slurm_plugin.node.remote.relay import DonorAddress, JobEnd
from slurm_plugin.node.remote.sockets import LOOPBACK

#: Set by the engine at submit: this job may borrow. Set here once it has borrowed.
ASKED, JOINED = "GPUTOPO_REMOTE", "GPUTOPO_REMOTE_GPUS"
#: What a step would ask for again, though the job has fewer GPUs.
_ASKED_AGAIN = (
    *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"),
    *("SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_BIND"),
)
ALIVE_S = 1.0
#: So long the engine may take to put back a record that somebody overwrote, in seconds.
RESTORE_S = 15.0
#: The records that name the donors of a job that runs, by their state.
_ON_LOAN = ((GateRecord, PLACED), (LoanRecord, STARTS))
#: Where somebody has to listen on loopback, and for which of the donor's server's ports.
End = tuple[DonorAddress, socket.socket, int]


def donors_in(comment: str) -> list[LoanDonor]:
    """The donors of a job that runs, by its AdminComment.

    Raises RemoteError for a loan that cannot be read, or with a donor that has no port.
    """
    kept = [(kind.read_from(comment), state) for kind, state in _ON_LOAN]
    text = next((one.get("loan") for one, state in kept if one and one.state == state), "")
    try:
        donors = list(Loan.parsed(text).donors) if text else []
    except ValueError as error:
        raise RemoteError(str(error)) from error
    if portless := next((donor for donor in donors if not donor.port), None):
        raise RemoteError(f"the donor on {portless.node} has no port")
    return donors


def donors_of(job_id: int) -> list[LoanDonor]:
    """The donors of this job, which runs; RemoteError where they cannot be known.

    Somebody else may have overwritten its AdminComment, or written another record there. If donors
    report that they lend to this job, it has a loan all the same: then we wait until the engine has
    put the record back. A job that runs without a loan has a record that says so, and its donors
    soon end.
    """
    deadline = time.monotonic() + RESTORE_S
    while True:
        state = slurm.job_state(job_id)
        if state is None:
            raise RemoteError("slurmctld does not answer")
        donors = donors_in(state[1])
        if donors or not _has_donors(job_id):
            return donors
        if time.monotonic() > deadline:
            if _says_there_is_none(state[1]):
                return donors
            raise RemoteError("AdminComment no longer says which donors lend to this job")
        time.sleep(0.5)


def _says_there_is_none(comment: str) -> bool:
    """Is there the record of a job that runs? One without donors, as the caller knows."""
    kept = [(kind.read_from(comment), state) for kind, state in _ON_LOAN]
    return any(one is not None and one.state == state for one, state in kept)


def _has_donors(job_id: int) -> bool:
    reports = map(DonorReport.read_from, slurm.comments())
    return any(report.borrower == job_id for report in reports if report)


@dataclass
class Ends:
    """What somebody has to listen at for the tasks: sockets for each donor behind the relay."""

    tools: Tools
    sockets: list[End] = field(default_factory=list)
    desk: Desk = field(default_factory=Desk)

    def add(self, address: DonorAddress, ports: int = 1) -> int:
        """One more donor, whose server has so many ports; the first of them on loopback.

        Raises RemoteError.
        """
        self.tools.check()
        socks = sockets.consecutive(LOOPBACK, ports)
        sockets.check(socks[0])
        self.sockets += [(address, sock, nth) for nth, sock in enumerate(socks)]
        return int(socks[0].getsockname()[1])

    @property
    def variable(self) -> str:
        """What gputopo-wire.so finds in a task's environment."""
        return " ".join(
            [self.desk.name, *(str(sock.getsockname()[1]) for _, sock, _ in self.sockets)]
        )


async def meet(
    job_id: int, donors: Sequence[LoanDonor], vouching: Munge, tools: Tools
) -> tuple[dict[str, str], Ends]:
    """The tasks' variables, and the donors for which somebody has to listen on loopback.

    Raises RemoteError where one donor is away, is not who it should be, or lends another number.
    """
    addresses = [DonorAddress(lent.node, lent.port, f"{job_id}/{lent.job_id}") for lent in donors]
    infos = await asyncio.gather(*(relay.ask(address, vouching) for address in addresses))
    servers: list[Server] = []
    ends = Ends(tools)
    middleware = preset.from_json(infos[0].get("preset"))
    for lent, address, info in zip(donors, addresses, infos, strict=True):
        if info.get("gpus") != lent.gpus:
            raise RemoteError(f"{lent.node} lends {info.get('gpus')} GPUs; expected {lent.gpus}")
        port = int(info.get("port") or 0)
        host = lent.node if port else LOOPBACK
        port = port or ends.add(address, middleware.ports)
        servers.append(Server(host, port, lent.gpus, lent.job_id, address.subject))
    variables = middleware.client_environment(servers, tools.library)
    if ends.sockets:
        variables[WIRE] = ends.variable
    variables[JOINED] = ",".join(f"{lent.node}:{lent.gpus}" for lent in donors)
    return variables, ends


async def keep(ends: Ends, vouching: Munge, pid: int) -> None:
    """Listen for the job's tasks for as long as process `pid` (the step's daemon) lives."""
    reached: dict[str, JobEnd] = {}
    for address, sock, nth in ends.sockets:
        end = JobEnd(address, vouching, ends.tools, nth)
        await end.start(sock)
        reached[str(sock.getsockname()[1])] = end

    async def answer(words: list[str]) -> socket.socket | None:
        """`C PORT`: the connection that a task wants in place of one to this port."""
        known = len(words) == 2 and words[0] == "C" and words[1] in reached
        return await reached[words[1]].reach() if known else None

    ends.desk.start(answer)
    while _is_alive(pid):
        await asyncio.sleep(ALIVE_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # It is root's, and it is there.
        return True
    return True


def exports(variables: Mapping[str, str]) -> str:
    """The TaskProlog's lines for slurmstepd. A step must not ask for more GPUs than are here."""
    lines = [f"export {name}={value}" for name, value in variables.items()]
    lines += [f"unset {name}" for name in (*_ASKED_AGAIN, ASKED)]
    return "".join(f"{line}\n" for line in lines)


def main(environment: Mapping[str, str] = os.environ, program: str = sys.argv[0]) -> int:
    """`join`: 0 once all donors are ready or nothing was lent; else the job is put back."""
    job_id = int(environment.get("SLURM_JOB_ID") or 0)
    try:
        donors = donors_of(job_id)
        if not donors:
            # The job's steps need not ask again.
            sys.stdout.write(f"unset {ASKED}\n")
            return 0
        variables, ends = asyncio.run(meet(job_id, donors, Munge(), Tools.beside(program)))
    except RemoteError as error:
        print(f"print gpu-topo: remote GPUs: {error}")
        print(f"gpu-topo: remote GPUs: {error}", file=sys.stderr)
        slurm.requeue(job_id)
        return 1
    if ends.sockets:
        _leave_behind(ends, os.getppid())
    sys.stdout.write(exports(variables))
    return 0


def _leave_behind(ends: Ends, pid: int) -> None:
    """The job's end of the relay runs on in a process of its own, which belongs to the job."""
    sys.stdout.flush()
    if os.fork():
        return
    try:
        os.setsid()
        with contextlib.suppress(OSError), open(os.devnull, "r+b") as null:
            for number in (0, 1, 2):
                os.dup2(null.fileno(), number)
        asyncio.run(keep(ends, Munge(), pid))
    finally:
        os._exit(0)
