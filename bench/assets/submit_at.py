"""Submits jobs at their times.

    python3 submit_at.py SCHEDULE

A line of SCHEDULE is JSON: `at_s` (seconds from now) and `command`. Commands of one moment run
side by side. Prints by how many seconds the latest one began too late.
"""

import json
import subprocess
import sys
import time


def main(path):
    """Until every command has ended; fails where one did."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    began, late, running = time.monotonic(), 0.0, []
    for line in lines:
        left = line["at_s"] - (time.monotonic() - began)
        if left > 0:
            time.sleep(left)
        late = max(late, -left)
        running.append(subprocess.Popen(line["command"]))
        done = [process for process in running if process.poll() is not None]
        if any(process.returncode for process in done):
            sys.exit("a submit failed")
        running = [process for process in running if process.returncode is None]
    if any(process.wait() for process in running):
        sys.exit("a submit failed")
    print(f"{late:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
