"""Programs of claims in C (claims.h): built with sanitizers, asked for their claims, run."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def claims_in(folder: Path) -> list[str]:
    """The claims of the folder's files, in order; records_test.c is a program of its own."""
    files = sorted(file for file in folder.glob("*_test.c") if file.name != "records_test.c")
    return [
        claim for file in files for claim in re.findall(r"^CLAIM\((\w+)\)", file.read_text(), re.M)
    ]


def built(plugin: Path, out: Path) -> Path:
    """pure_test with address and undefined-behaviour sanitizers, ending at the first error."""
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("no gcc and make here")
    target = out / "pure_test_sanitized"
    command = ["make", "-C", str(plugin), f"OUT={out}", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def run(program: Path, *args: str | Path, stdin: str = "") -> str:
    """The program's output; its errors fail the test."""
    done = subprocess.run(
        [program, *args], input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
