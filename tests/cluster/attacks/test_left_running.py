"""What a user starts from within one of Slurm's commands, which serve-donors runs as that user."""

import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from acting_harness import Part, part_for

from slurm_plugin.act.lending.acting import child

#: Nobody else's: these start as many processes as a user may have, which other tests would miss.
GAMES = pwd.getpwnam("games")
ASKED = f"donor 7 {GAMES.pw_uid} dgx2 2"

#: What users leave running from within sbatch. Each ends by itself, should nobody end it.
LEFT = {
    "sessions": "for i in $(seq 60); do (setsid sh -c 'sleep 29.5; true' >/dev/null 2>&1 &); done",
    # Each process starts the next one and ends at once.
    "chains": """python3 -c '
import os, time
end = time.time() + 29.5
for _ in range(8):
    if not os.fork():
        os.setsid()
        while time.time() < end:
            if os.fork(): os._exit(0)
        os._exit(0)
' >/dev/null 2>&1""",
    # As many as there may be, each of which starts another as soon as one ends.
    "bomb": """python3 -c '
import os, resource, time
end = time.time() + 29.5
resource.setrlimit(resource.RLIMIT_NPROC, (100, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
for _ in range(40):
    if not os.fork():
        os.setsid()
        while time.time() < end:
            try: os.fork()
            except OSError: pass
        os._exit(0)
' >/dev/null 2>&1""",
}
#: Starts as many as may be, three hundred at most, and tells how many.
COUNTS = """python3 -c '
import os, time
count = 0
try:
    for count in range(300):
        if not os.fork():
            time.sleep(29.5)
            os._exit(0)
except OSError: pass
print(count)
' >FOLDER/told/count 2>&1"""


@pytest.fixture
def part() -> Iterator[Part]:
    with part_for(GAMES) as running:
        yield running


def left() -> list[str]:
    """The processes on this host that the scripts above started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            is_theirs = path.stat().st_uid == GAMES.pw_uid and b"29.5" in path.read_bytes()
            found += [path.parent.name] if is_theirs else []
    return found


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_a_user_leaves_running_is_gone_after_the_answer(part, text):
    for _ in range(2):
        part.script("sbatch", f"{text}\necho 71")
        assert part.ask(ASKED) == "ok 71"
        # Answered only once the process is done with the question before.
        assert part.ask("ready") == "ok "
        assert left() == []


def test_a_user_starts_a_bounded_number_of_processes_and_the_next_one_borrows(part):
    part.script("sbatch", f"{COUNTS.replace('FOLDER', str(part.folder))}\necho 71")
    assert part.ask(ASKED) == "ok 71"
    assert 0 < int(part.noted("count")[0]) <= child.MORE_TASKS
    part.script("sbatch", "echo 72")
    assert part.ask(ASKED) == "ok 72"
    assert left() == []
