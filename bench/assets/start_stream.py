"""Starts a job of one GPU again and again, as an allocation without a process.

    python3 start_stream.py FILE PARTITION EVERY_S

Until FILE.stop is there. FILE gets a line of JSON for each start: `job`, and `at`, when it was
known to be granted (epoch).
"""

import json
import os
import re
import subprocess
import sys
import threading
import time

GRANTED = re.compile(r"Granted job allocation (\d+)")


def start_one(partition, write):
    """One allocation, given back at once."""
    words = ["salloc", "--no-shell", "-n1", "--mem=10", "-t5", "-p", partition, "--gres=gpu:1"]
    said = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False).stderr
    at = time.time()
    found = GRANTED.search(said)
    if found:
        write({"job": int(found[1]), "at": at})
        subprocess.run(["scancel", "-Q", found[1]], check=False)


def main(path, partition, every_s):
    """Whatever one start does, the next one begins in its turn."""
    lock, running = threading.Lock(), []
    with open(path, "w", encoding="utf-8") as file:

        def write(line):
            with lock:
                print(json.dumps(line), file=file, flush=True)

        while not os.path.exists(path + ".stop"):
            running = [one for one in running if one.is_alive()]
            running.append(threading.Thread(target=start_one, args=(partition, write)))
            running[-1].start()
            time.sleep(every_s)
        for one in running:
            one.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
