"""Submits jobs at their times.

    python3 submit_at.py SCHEDULE

A line of SCHEDULE is JSON: `at_s` (seconds from now) and `command`. Where it has `hold_s`, too, the
command is a salloc --no-shell, and its allocation ends so many seconds after the grant. Commands of
one moment run side by side. Once all have ended it prints by how many seconds the latest one began
too late; allocations that go on then are its caller's.
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


def granted(process, is_held):
    """The number of the allocation, where it is one."""
    said = process.stderr.read()
    found = GRANTED.search(said)
    if process.returncode or (is_held and not found):
        sys.exit(f"a submit failed: {said.strip()[-300:]}")
    return found[1] if is_held else None


def main(path):
    """Until every command has ended; fails where one did."""
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
            waiting.append((process, line.get("hold_s")))
        for process, hold_s in waiting:
            if process.poll() is not None:
                number = granted(process, hold_s is not None)
                if number is not None:
                    heapq.heappush(ends, (now + hold_s, number))
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
