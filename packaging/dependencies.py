"""What the packages need of Python: from the distribution where it is new enough, else vendored.

    dependencies.py deb WHEELS     a line for debian/*.substvars; WHEELS holds what is vendored
    dependencies.py rpm WHEELS     the same as lines "Requires: ..." of a spec
    dependencies.py list WHEELS    what is vendored: file, SHA-256, licence

The requirements are those of setup.cfg. Exit status 1, with a line for each, where a requirement
is met by neither. Runs on the machine where packages are built, which has the distribution's.
"""

from __future__ import annotations

import configparser
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from pathlib import Path

#: Debian's and Fedora's names of packages that are not python3-NAME.
_NAMES = {"deb": {"pyyaml": "python3-yaml"}, "rpm": {"pyyaml": "python3-pyyaml"}}


def requirements(setup_cfg: Path) -> Iterator[tuple[str, str, str]]:
    """Name, lowest version and the first that is too new, of each that setup.cfg requires."""
    setup = configparser.ConfigParser()
    setup.read(setup_cfg)
    for line in setup["options"]["install_requires"].split():
        found = re.fullmatch(r"([\w-]+)>=([\d.]+),<([\d.]+)", line)
        if not found:
            raise SystemExit(f"{setup_cfg}: {line}: expected NAME>=VERSION,<VERSION")
        yield found[1], found[2], found[3]


def installed(package: str) -> str:
    """The version of a Debian package that is installed here; empty where it is not."""
    words = ["dpkg-query", "--show", "--showformat=${Version}", package]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def is_between(version: str, lowest: str, too_new: str) -> bool:
    """By dpkg's order of versions."""
    pairs = (("ge", lowest), ("lt", f"{too_new}~"))
    return all(
        subprocess.run(["dpkg", "--compare-versions", version, *pair]).returncode == 0
        for pair in pairs
    )


def deb(name: str, lowest: str, too_new: str) -> str:
    """The dependency on Debian's package; empty where Debian's is another version."""
    package = _NAMES["deb"].get(name, f"python3-{name}")
    epoch, _, version = installed(package).rpartition(":")
    if not version or not is_between(version, lowest, too_new):
        return ""
    before = f"{epoch}:" if epoch else ""
    return f"{package} (>= {before}{lowest}), {package} (<< {before}{too_new}~)"


def only_for(wheels: Iterable[Path]) -> str:
    """The Python that vendored extension modules fit; empty where none has any."""
    found = {match[1] for wheel in wheels if (match := re.search(r"-cp3(\d+)-cp", wheel.name))}
    minors = [int(minor) for minor in found]
    return ", ".join(f"python3 (>= 3.{n}), python3 (<< 3.{n + 1}~)" for n in minors)


def rpm(name: str, lowest: str, too_new: str) -> str:
    """The same in a spec's words, by Fedora's names."""
    package = _NAMES["rpm"].get(name, f"python3-{name}")
    return f"Requires: {package} >= {lowest}, {package} < {too_new}~"


def described(wheel: Path) -> str:
    """A wheel's file name, hash and licence."""
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = HeaderParser().parsestr(archive.read(path).decode())
    of_classifier = [
        text.rpartition(" :: ")[2]
        for text in about.get_all("Classifier", [])
        if text.startswith("License ::")
    ]
    text = (about["License"] or "").strip()
    licence = text if text and "\n" not in text else ", ".join(of_classifier)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{wheel.name}\n  sha256 {digest}\n  licence {licence}"


def main() -> None:
    """See the module."""
    what, wheels = sys.argv[1], sorted(Path(sys.argv[2]).glob("*.whl"))
    vendored = {wheel.name.partition("-")[0].lower() for wheel in wheels}
    if what == "list":
        print("\n".join(map(described, wheels)))
        return
    lines, missing = [], []
    if what == "deb" and (python := only_for(wheels)):
        lines.append(python)
    for name, lowest, too_new in requirements(Path("setup.cfg")):
        if name in vendored:
            continue
        found = (deb if what == "deb" else rpm)(name, lowest, too_new)
        lines.append(found)
        if not found:
            missing.append(f"{name}>={lowest},<{too_new}: the distribution has no such version")
    if missing:
        raise SystemExit("\n".join([*missing, "name it in packaging/vendored/SUITE.txt"]))
    print("\n".join(lines) if what == "rpm" else f"gputopo:Python={', '.join(lines)}")


if __name__ == "__main__":
    main()
