"""The packages, and a host to install them on."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from site_host import CLUSTER, ROOT, Host, NotBootedError

from slurm_cluster.pytest_plugin import in_ci

SUITE = os.environ.get("SUITE", "trixie")


def _ask(word: str) -> str:
    done = subprocess.run([CLUSTER, *word.split()], capture_output=True, text=True)
    if done.returncode == 3:
        (pytest.fail if in_ci() else pytest.skip)(f"no container engine: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def debs(tmp_path_factory, testrun_uid) -> list[Path]:
    """The packages, made once in a run of the tests; not where GPUTOPO_KEEP says to keep them."""
    folder = ROOT / ".cluster" / "packages" / SUITE
    made = tmp_path_factory.getbasetemp().parent / f"packages-{testrun_uid}"
    with made.open("a+") as file:
        # Other workers' tests wait until they are there.
        fcntl.flock(file, fcntl.LOCK_EX)
        if not made.stat().st_size:
            if not (os.environ.get("GPUTOPO_KEEP") and list(folder.glob("*.deb"))):
                _ask("packages")
            file.write("made")
    return sorted(folder.glob("*.deb"))


@pytest.fixture(scope="module")
def image() -> str:
    _ask("site")
    return _ask("image site")


@pytest.fixture
def host(image, debs, request):
    kind = getattr(request, "param", Host)
    try:
        with kind(image, debs) as host:
            yield host
    except NotBootedError as error:
        pytest.skip(str(error))
