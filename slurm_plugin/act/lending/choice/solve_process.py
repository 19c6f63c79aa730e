"""DRMaestro's own process: it answers questions until the engine is gone.

A solver holds Python's lock for too long to run in the engine, which answers submits.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

from policies.errors import PolicyError
from policies.remote.drmaestro import best_solver

READY = "ready"
#: Nicer than the engine by so much, in case both want the same core.
NICER = 5


def serve(connection: Connection) -> None:
    """Answer one question after the other; an answer is a list, or the text of an error."""
    best_solver()
    answer: object = READY
    try:
        while True:
            connection.send(answer)
            planner, jobs, capacities = connection.recv()
            try:
                answer = planner.decide(jobs, capacities)
            except PolicyError as error:
                answer = str(error)
    except (EOFError, OSError):
        return  # the engine is gone, maybe before this process was ready


if __name__ == "__main__":
    os.nice(NICER)
    serve(Connection(int(sys.argv[1])))
