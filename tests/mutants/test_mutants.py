"""The tool behind `make mutants`: what it changes, and that it changes a copy alone."""

import contextlib
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mutations import is_built, mutants
from run_mutants import C_PARTS, ROOT, files
from trials import planted, verdict

PYTHON = '''\
"""Adds 1 == 1."""


def most(a: "list[int | None]", b=2):
    assert a
    if not a and b < 3: return max(a) + b
    logger.warning("a == b", 4)
    a.sort()
'''
BECOMES = {
    'def most(a: "list[int | None]", b=3):',
    "if a and b < 3: return max(a) + b",
    "if not a or b < 3: return max(a) + b",
    "if not a and b <= 3: return max(a) + b",
    "if not a and b < 4: return max(a) + b",
    "if not a and b < 3: return min(a) + b",
    "if not a and b < 3: return max(a) - b",
    "if not a and b < 3: return None",
    "if not (not a and b < 3): return max(a) + b",
    "pass",
}


@pytest.mark.parametrize(
    ("name", "text", "becomes"),
    [
        ("a.py", PYTHON, BECOMES),
        (
            "a.lua",
            'if a == 1 and "b == 2" then -- 1 == 1\n',
            {
                'if a ~= 1 and "b == 2" then -- 1 == 1',
                'if a == 2 and "b == 2" then -- 1 == 1',
                'if a == 1 or "b == 2" then -- 1 == 1',
            },
        ),
        (
            "a.c",
            "/* a == 1 */\n#define A 1\n\tif (!a && b != '1')\n",
            {"if (a && b != '1')", "if (!a || b != '1')", "if (!a && b == '1')"},
        ),
    ],
    ids=["Python", "Lua", "C"],
)
def test_one_line_is_another(tmp_path, name, text, becomes):
    (tmp_path / name).write_text(text)
    result = mutants(tmp_path, name)
    assert {one.becomes.strip() for one in result} == becomes
    assert len({one.id for one in result}) == len(becomes)


def test_what_its_language_does_not_take_is_no_mutant(tmp_path):
    (tmp_path / "a.lua").write_text("return {\n  1,\n}\n")
    assert {one.becomes.strip(): is_built(tmp_path, one) for one in mutants(tmp_path, "a.lua")} == {
        "return nil": False,
        "2,": True,
    }


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
@pytest.mark.parametrize("part", C_PARTS)
def test_every_c_file_has_mutants_that_are_built(part):
    for path in files(part):
        assert any(is_built(ROOT, one) for one in mutants(ROOT, path)), path


def test_a_mutant_is_caught_or_hangs_or_survives(tmp_path):
    """What fails once and not again catches nothing."""
    tree = tmp_path / "tree"
    tree.mkdir()
    code = tree / "code_here.py"
    code.write_text("there = 1 < 2\nwaits_s = 0\nunseen = 3\n")
    (tree / "test_code.py").write_text(
        "import time\nfrom pathlib import Path\nimport code_here\n\n"
        "def test_flaky():\n    seen = Path('seen')\n    was = seen.exists()\n    seen.touch()\n"
        "    assert was\n\n"
        "def test_there(): assert code_here.there\n\n"
        "def test_waits(): time.sleep(100 * code_here.waits_s)\n"
    )
    tests = {f"test_code.py::test_{name}": 0.1 for name in ("flaky", "there", "waits")}
    spare_s = {"there = 2 < 2": 60.0, "waits_s = 1": 5.0, "unseen = 4": 60.0}
    result = {
        one.becomes: verdict(tree, one, tests, spare_s[one.becomes]).outcome
        for one in mutants(tree, code.name)
        if one.becomes in spare_s
    }
    assert result == {"there = 2 < 2": "caught", "waits_s = 1": "hung", "unseen = 4": "survived"}


def test_no_mutant_stays_where_it_was_put(tmp_path):
    code = tmp_path / "code_here.py"
    code.write_text("unseen = 3\n")
    [one] = mutants(tmp_path, code.name)
    with contextlib.suppress(KeyboardInterrupt), planted(tmp_path, one):
        assert code.read_text() == "unseen = 4\n"
        raise KeyboardInterrupt
    assert code.read_text() == "unseen = 3\n"
