"""The program for the nodes in one executable file; it needs the standard library alone."""

from __future__ import annotations

import py_compile
import tempfile
import zipapp
from pathlib import Path
from py_compile import PycInvalidationMode

from slurm_plugin.errors import RemoteError

ROOT = Path(__file__).resolve().parents[1]
#: The modules of ours that the nodes' programs import.
PARTS = (
    "__init__.py",
    "errors.py",
    "base/__init__.py",
    "base/job_notes/*.py",
    "base/job_states.py",
    "base/munge.py",
    "base/preset.py",
    "base/wire.py",
    "node/__init__.py",
    "node/remote/*.py",
)
#: Not found by PATH: it runs in users' environments, which may have another Python first.
PYTHON = "/usr/bin/python3"


def write(target: Path, python: str = PYTHON) -> None:
    """Pack the program into `target`, for the nodes' Python at this path. Raises RemoteError.

    It is compiled for our own version of Python, too; any other compiles it at each start.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [path for part in PARTS for path in sorted(ROOT.glob(part))]
        for path in files:
            copy = Path(folder) / ROOT.name / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        start = Path(folder) / "__main__.py"
        start.write_text(f"import sys\nfrom {ROOT.name}.node.remote.__main__ import main\n")
        with start.open("a") as file:
            file.write("sys.exit(main())\n")
        _compile(Path(folder))
        beside = target.with_name(f"{target.name}.new")
        try:
            zipapp.create_archive(folder, beside, f"{python} -IS")
            beside.chmod(0o755)
            beside.replace(target)
        except OSError as error:
            raise RemoteError(f"{target}: {error.strerror or error}") from error


def _compile(folder: Path) -> None:
    """Put the compiled form beside each module; the source counts where its version differs."""
    mode = PycInvalidationMode.UNCHECKED_HASH
    for path in folder.rglob("*.py"):
        name, compiled = str(path.relative_to(folder)), str(path.with_suffix(".pyc"))
        py_compile.compile(str(path), compiled, name, doraise=True, invalidation_mode=mode)
