"""Submits jobs at their times, as allocations without a process, and ends each after its time.

    python3 submit_at.py SCHEDULE

A line of SCHEDULE is JSON: `at_s` (seconds from now), `command` (a salloc --no-shell) and `hold_s`
(seconds from the grant to the end). Commands of one moment run side by side. Once the last
allocation is granted it prints by how many seconds the latest command began too late; those that
go on are its caller's.
"""

import heapq
import json
import re
import subprocess
import sys
import time

GRANTED = re.compile(r"Granted job allocation (\d+)")
#: Seconds between two looks.
LOOK_S = 0.05


def granted(process):
    """The number of the allocation."""
    said = process.stderr.read()
    found = GRANTED.search(said)
    if process.returncode or not found:
        sys.exit(f"a submit failed: {said.strip()[-300:]}")
    return found[1]


def main(path):
    """Until every allocation was granted; fails where one was not."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in reversed(file.readlines())]
    began, late = time.monotonic(), 0.0
    waiting, ends, ending = [], [], []
    while lines or waiting:
        now = time.monotonic()
        while lines and lines[-1]["at_s"] <= now - began:
            line = lines.pop()
            late = max(late, now - began - line["at_s"])
            process = subprocess.Popen(line["command"], stderr=subprocess.PIPE, text=True)
            waiting.append((process, line["hold_s"]))
        for process, hold_s in waiting:
            if process.poll() is not None:
                heapq.heappush(ends, (now + hold_s, granted(process)))
        waiting = [one for one in waiting if one[0].returncode is None]
        over = []
        while ends and ends[0][0] <= now:
            over.append(heapq.heappop(ends)[1])
        if over:
            ending.append(subprocess.Popen(["scancel", "-Q", *over]))
        ending = [process for process in ending if process.poll() is None]
        time.sleep(LOOK_S)
    for process in ending:
        process.wait()
    print(f"{late:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
