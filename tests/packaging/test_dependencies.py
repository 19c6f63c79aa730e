"""What the packages depend on, from setup.cfg."""

import hashlib
import re
import runpy
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECIPE = runpy.run_path(str(ROOT / "packaging" / "dependencies.py"))


def version(text):
    return tuple(int(part) for part in text.split("."))


@pytest.mark.parametrize("path", sorted((ROOT / "packaging" / "vendored").glob("*.txt")))
def test_what_is_vendored_is_a_version_that_we_require(path):
    required = {name: rest for name, *rest in RECIPE["requirements"](ROOT / "setup.cfg")}
    pinned = re.findall(r"^([\w-]+)==([\d.]+)", path.read_text(), re.M)
    assert pinned
    for name, number in pinned:
        lowest, too_new = required[name]
        assert version(lowest) <= version(number) < version(too_new)


def test_a_dependency_is_on_the_distributions_package_with_its_epoch(monkeypatch):
    module = RECIPE["deb"].__globals__
    monkeypatch.setitem(module, "installed", {"python3-numpy": "1:1.24.2-1"}.get)
    monkeypatch.setitem(module, "is_between", lambda found, low, high: found == "1.24.2-1")
    wanted = "python3-numpy (>= 1:1.24), python3-numpy (<< 1:3~)"
    assert RECIPE["deb"]("numpy", "1.24", "3") == wanted


def test_a_package_that_the_distribution_lacks_or_has_too_old_is_no_dependency(monkeypatch):
    module = RECIPE["deb"].__globals__
    monkeypatch.setitem(module, "installed", {"python3-msgspec": "", "python3-networkx": "2"}.get)
    monkeypatch.setitem(module, "is_between", lambda found, low, high: False)
    assert RECIPE["deb"]("msgspec", "0.18", "1") == ""
    assert RECIPE["deb"]("networkx", "3.0", "4") == ""


def test_vendored_extension_modules_are_for_one_python():
    wheels = [Path("a-1-py3-none-any.whl"), Path("b-1-cp311-cp311-manylinux2014_x86_64.whl")]
    assert RECIPE["only_for"](wheels) == "python3 (>= 3.11), python3 (<< 3.12~)"
    assert RECIPE["only_for"](wheels[:1]) == ""


def test_a_requirement_that_the_recipe_cannot_read_is_named(tmp_path):
    setup = tmp_path / "setup.cfg"
    setup.write_text("[options]\ninstall_requires =\n    click\n")
    with pytest.raises(SystemExit, match="click: expected NAME>=VERSION"):
        list(RECIPE["requirements"](setup))


def test_the_list_of_what_is_vendored_has_hash_and_licence(tmp_path):
    wheel = tmp_path / "one-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        about = "Name: one\nClassifier: License :: OSI Approved :: BSD License\n"
        archive.writestr("one-1.0.dist-info/METADATA", about)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert RECIPE["described"](wheel) == f"{wheel.name}\n  sha256 {digest}\n  licence BSD License"
