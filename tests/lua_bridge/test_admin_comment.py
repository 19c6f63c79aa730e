"""One grammar for our records in AdminComment: Python, Lua and C read the same of any text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from c_program import built, run

from policies import hints
from policies.errors import HintError
from slurm_plugin.base.job_notes import brackets, donor
from slurm_plugin.base.job_notes.brackets import DONOR, LOAN, SHAPE, SLOTS, TOPO
from slurm_plugin.base.job_notes.hints import hint_in, note_in
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord

ROOT = Path(__file__).resolve().parents[2]
FORGED = "[gpu-loan: starts loan=h1/1,h2/1/4711/50000 prio=4294967000"
LOAN_AT = "[gpu-loan: meets loan=h1/1,h2/1/4711]"
#: sentence, comment, hint (None: no bracket with one), what stands in the loan's bracket.
READ = [
    ("nothing of ours", "budget 7", None, None),
    ("a hint and a note", "[gpu-topo: pattern=ring | on n1]", "pattern=ring", None),
    ("a hint alone", "x [gpu-topo:  a=b ] y", "a=b", None),
    ("a note alone", "[gpu-topo: | n]", "", None),
    ("both, behind a site's text", f"budget 7 [gpu-topo: a] {LOAN_AT}", "a", LOAN_AT[11:-1]),
    ("the last of two", "[gpu-topo: a] [gpu-topo: b]", "b", None),
    ("a record inside a hint", f"[gpu-topo: pattern=ring {FORGED}]", None, None),
    ("and closed twice", f"[gpu-topo: pattern=ring {FORGED}]]", None, None),
    ("a record inside a site's bracket", f"[site: {LOAN_AT} b]", None, None),
    ("behind what is never closed", f"[site: a {LOAN_AT}", None, None),
    ("before what is never closed", f"{LOAN_AT} [site: a", None, LOAN_AT[11:-1]),
    ("a stray closing bracket", f"a] {LOAN_AT}]", None, LOAN_AT[11:-1]),
    ("a control character", "[gpu-topo: a\tb]", None, None),
    ("as long as it may be", f"[gpu-topo: {'a' * 1524}]", "a" * 1524, None),
    ("one byte too long", f"[gpu-topo: {'a' * 1525}]", None, None),
    ("another's bracket", "[gpu-topology: a] [gpu-: b] [gputopo: c]", None, None),
    ("no blank", "[gpu-topo:a]", "a", None),
]
PIECES = [
    *("[", "]", "[", "]", "|", " ", ":", "\t", "é", "a=b", "gpu-topo", "[gpu-topo:", "[gpu-topo: "),
    *("[gpu-loan: may", "[gpu-loan: ", "[gpu-slots: gated a=1", "[gpu-donor: of=7", "[site", "]]"),
]


def soup(seed: int, texts: int = 400) -> list[str]:
    """Random texts of what matters to the grammar, in one line each."""
    chance = random.Random(seed)
    return ["".join(chance.choices(PIECES, k=chance.randint(1, 14))) for _ in range(texts)]


def in_lua(lua, texts: Sequence[str], expression: str) -> list[str]:
    """What the expression makes of each text, with the modules `comment` and `hint` at hand."""
    quoted = ",".join(
        "'" + "".join(f"\\{byte:03}" for byte in text.encode()) + "'" for text in texts
    )
    found = lua.evaluate(
        "local comment, hint = require('gputopo.comment'), require('gputopo.hint')\n"
        f"local found = {{}} for i, text in ipairs({{{quoted}}}) do found[i] = {expression} end\n"
        "return table.concat(found, '\\n')"
    )
    return found.split("\n")


def by_lua(lua, texts: Sequence[str], kind: str) -> list[str | None]:
    """What the bridge reads in the bracket of a kind."""
    found = in_lua(lua, texts, f"comment.inside(text, '{kind}') or '-'")
    return [None if text == "-" else text for text in found]


def lines_of(program: Path, what: str, texts: Sequence[str]) -> list[str]:
    """What the program says of each text."""
    return run(program, what, stdin="".join(f"{text}\n" for text in texts)).split("\n")[:-1]


@pytest.fixture(scope="session")
def by_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], list[str | None]]:
    """Hint and note as the select plugin reads them."""
    program = built(ROOT / "slurm_plugin" / "select", tmp_path_factory.mktemp("select"))

    def read(texts: Sequence[str]) -> list[str | None]:
        return [None if line == "-" else line for line in lines_of(program, "brackets", texts)]

    return read


@pytest.fixture(scope="session")
def spank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launch plugin's part, which takes `--gpu-topo`."""
    return built(ROOT / "slurm_plugin" / "spank", tmp_path_factory.mktemp("spank"))


@pytest.mark.parametrize("seed", range(1, 6))
def test_python_lua_and_c_agree_on_what_a_hint_may_be(lua, spank, seed):
    """Byte by byte: the option's plugin, the bridge, and the engine."""
    chance = random.Random(seed)
    odd = [chr(code) for code in range(1, 256) if chr(code) != "\n"]
    texts = []
    for _ in range(300):
        plain = "".join(
            chance.choices("pattern=ring,x.-_:+ 09", k=chance.choice((3, 40, 1024, 1025)))
        )
        at = chance.randrange(len(plain))
        texts.append(plain[:at] + chance.choice(("", chance.choice(odd))) + plain[at + 1 :])
    by_python = ["refused" if is_refused(text) else "carried" for text in texts]
    assert lines_of(spank, "hints", texts) == by_python
    told = "hint.of('gpu-topo:' .. text) and 'carried' or 'refused'"
    assert in_lua(lua, texts, told) == by_python
    assert {"refused", "carried"} == set(by_python)


def is_refused(text: str) -> bool:
    """Do the text's bytes alone make it no hint?"""
    try:
        hints.parse(text)
    except HintError as error:
        return "printable ASCII" in str(error) or " bytes; expected" in str(error)
    return False


def as_c_tells(text: str) -> str | None:
    if brackets.inside(text, TOPO) is None:
        return None
    return f"{hint_in(text)}\t{note_in(text)}"


@pytest.mark.parametrize(
    ("comment", "hint", "loan"), [case[1:] for case in READ], ids=[case[0] for case in READ]
)
def test_what_is_ours_in_a_comment(lua, by_c, comment, hint, loan):
    assert (hint_in(comment) if hint is not None else None) == hint
    assert (brackets.inside(comment, TOPO) is None) == (hint is None)
    assert brackets.inside(comment, LOAN) == loan
    assert by_lua(lua, [comment], LOAN) == [loan]
    assert lua.evaluate(
        f"return tostring(require('gputopo.comment').hint_in([==[{comment}]==]))"
    ) == ("nil" if hint is None else hint)
    assert by_c([comment]) == [as_c_tells(comment)]


@pytest.mark.parametrize("seed", range(1, 6))
def test_python_lua_and_c_read_the_same_of_any_text(lua, by_c, seed):
    texts = soup(seed)
    for kind in (TOPO, LOAN, SLOTS, SHAPE, DONOR):
        assert by_lua(lua, texts, kind) == [brackets.inside(text, kind) for text in texts]
    assert by_c(texts) == [as_c_tells(text) for text in texts]
    assert any(brackets.inside(text, TOPO) for text in texts)


@pytest.mark.parametrize("seed", range(6, 9))
def test_what_was_written_is_read_whatever_stood_there(lua, seed):
    """By Python and by Lua; neither touches the text of others."""
    record = LoanRecord("meets", {"tpn": "gres/gpu:4", "loan": "a/1,b/2/7"})
    for text in soup(seed):
        written = record.written_into(text)
        assert LoanRecord.read_from(written) == record
        assert brackets.with_inside(written, LOAN, None) == brackets.with_inside(text, LOAN, None)
    texts = soup(seed, 60)
    for merged in in_lua(lua, texts, f"comment.merged(text, '{record.text()}')"):
        assert LoanRecord.read_from(merged) == record


@pytest.mark.parametrize(
    "text",
    [
        "[gpu-loan: starts prio=4294967000x]", "[gpu-loan: starts at=-1]",
        "[gpu-loan: meets loan_at=9999999999999]", "[gpu-slots: gated begin=now]",
        "[gpu-slots: gated what]", "[gpu-loan: given loan=a/1]",
    ],
)  # fmt: skip
def test_a_record_that_we_did_not_write_is_none(text):
    assert GateRecord.read_from(text) is LoanRecord.read_from(text) is None


@pytest.mark.parametrize(
    "text", ["", "[gpu-donor: of=]", "[gpu-donor: of=7 x]", "[[gpu-donor: of=7]]"]
)
def test_a_donor_says_whom_it_lends_to(text):
    assert donor.borrower_in(text) == 0
    assert donor.borrower_in(f"site {donor.entry(7)}") == 7
