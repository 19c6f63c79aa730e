"""One-line mutants of a file: of Python by its syntax tree, of Lua and C by a few rules on text.

Left alone: comments, docstrings and other strings, annotations, decorators (`frozen=True`),
assertions, and what is logged.
"""

import ast
import itertools
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """Line `line` of the file `path`, `was` so far, `becomes` something else.

    `nth` counts the lines of the file that read the same; the statement begins at `first`.
    """

    path: str
    line: int
    first: int
    nth: int
    kind: str
    was: str
    becomes: str

    @property
    def id(self) -> str:
        """The same wherever the line stands in its file."""
        return digest(self.path, self.was, str(self.nth), self.becomes)[:12]


def digest(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()


_SWAPS = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"in": "not in", "not in": "in", "is": "is not", "is not": "is", "and": "or", "or": "and"},
    **{"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "+", "**": "*"},
    **{"|": "&", "&": "|", "^": "|", "<<": ">>", ">>": "<<"},
    **{"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "^=": "|="},
    **{"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max"},
}
_Change = tuple[str, int, int, int, str]  # kind, line, first and last byte, new text


def _between(left: ast.expr, right: ast.expr, lines: list[bytes]) -> Iterator[_Change]:
    """The operator between two operands that touch on one line."""
    assert left.end_lineno is not None
    assert left.end_col_offset is not None
    for number in range(left.end_lineno, right.lineno + 1):
        low = left.end_col_offset if number == left.end_lineno else 0
        high = right.col_offset if number == right.lineno else len(lines[number - 1])
        gap = re.match(rb"[\s()]*([^\s()#]+(?: (?:not|in))?)", lines[number - 1][low:high])
        if gap and (other := _SWAPS.get(gap[1].decode())):
            yield "operator", number, low + gap.start(1), low + gap.end(1), other
            return


def _of_node(node: ast.AST, lines: list[bytes]) -> Iterator[_Change]:
    """What may be changed of one node of the tree."""
    number, start = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", 0)
    is_one_line = number and node.end_lineno == number
    match node:
        case ast.Compare(left=left, comparators=others):
            for one, other in zip([left, *others], others, strict=False):
                yield from _between(one, other, lines)
        case ast.BoolOp(values=values):
            for one, other in itertools.pairwise(values):
                yield from _between(one, other, lines)
        case ast.BinOp(left=left, right=right):
            parts = (left, right)
            if not any(isinstance(p, ast.JoinedStr) or _is_text(p) for p in parts):
                yield from _between(left, right, lines)
        case ast.AugAssign(target=target, value=value):
            yield from _between(target, value, lines)
            if is_one_line:
                yield "dropped", number, start, end, "pass"
        case ast.UnaryOp(op=ast.Not(), operand=operand) if operand.lineno == number:
            yield "not dropped", number, start, operand.col_offset, ""
        case ast.Constant(value=bool(value)):
            yield "constant", number, start, end, str(not value)
        case ast.Constant(value=int(value) | float(value)) if is_one_line:
            yield "constant", number, start, end, str(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in ("min", "max", "any", "all", "sum"):
            yield "function", number, start, start + len(name), _SWAPS[name]
        case ast.Break() | ast.Continue():
            yield (
                "loop",
                number,
                start,
                end,
                "break" if isinstance(node, ast.Continue) else "continue",
            )
        case ast.Return(value=ast.expr() as value) if is_one_line:
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield "nothing returned", number, start, end, "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) if is_one_line:
            yield "dropped", number, start, end, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if is_one_line:
            yield "dropped", number, start, end, "pass"
        case ast.If(test=test) | ast.IfExp(test=test) if test.end_lineno == test.lineno:
            low, high = test.col_offset, test.end_col_offset or 0
            old = lines[test.lineno - 1][low:high].decode()
            if old != "TYPE_CHECKING":
                yield "condition", test.lineno, low, high, f"not ({old})"
        case _:
            pass


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_logged(node: ast.expr) -> bool:
    return ast.unparse(node).startswith("logger.")


def _walk(node: ast.AST, first: int = 1) -> Iterator[tuple[ast.AST, int]]:
    """The nodes to be changed, with the first line of their statements."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and _is_logged(node.value)):
        return
    if isinstance(node, ast.stmt):
        first = node.lineno
    yield node, first
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child, first)


def _python(text: str) -> Iterator[tuple[int, int, str, str]]:
    lines = [line.encode() for line in text.split("\n")]
    for node, first in _walk(ast.parse(text)):
        for kind, number, low, high, new in _of_node(node, lines):
            line = lines[number - 1]
            yield number, first, kind, (line[:low] + new.encode() + line[high:]).decode()


_Rule = tuple[str, str, str | Callable[[re.Match[str]], str]]
_SPACED = ("<", "<=", ">", ">=", "+", "-", "*")
#: Kind, pattern, replacement; on lines whose comments and strings are blanked.
_BOTH: list[_Rule] = [
    *(("operator", rf"(?<= ){re.escape(old)}(?= )", _SWAPS[old]) for old in _SPACED),
    ("constant", r"(?<![\w.])\d+(?![\w.])", lambda result: str(int(result[0]) + 1)),
    ("constant", r"\btrue\b", "false"),
    ("constant", r"\bfalse\b", "true"),
]
_RULES: dict[str, list[_Rule]] = {
    ".lua": [
        *_BOTH,
        ("operator", r"==", "~="),
        ("operator", r"~=", "=="),
        ("operator", r"\band\b", "or"),
        ("operator", r"\bor\b", "and"),
        ("not dropped", r"\bnot ", ""),
        ("nothing returned", r"\breturn (?!nil).*\S", "return nil"),
        ("dropped", r"^(?<=^)\s+(?!local|return|end)[\w.:\[\]]+(\(.*\)| = .*[\w)\]\"}])$", ""),
    ],
    ".c": [
        *_BOTH,
        ("operator", r"==", "!="),
        ("operator", r"!=", "=="),
        ("operator", r"&&", "||"),
        ("operator", r"\|\|", "&&"),
        ("not dropped", r"!(?!=)", ""),
        (
            "dropped",
            r"(?<=\t)(?!return|break|continue|case|goto)[\w.>\[\]-]+(\(.*\)| \S?= .*);$",
            ";",
        ),
    ],
}
_QUOTED = r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_BLANKED = {
    ".lua": re.compile(r"--\[\[.*?\]\]|--[^\n]*" + _QUOTED, re.DOTALL),
    ".c": re.compile(r"/\*.*?\*/|//[^\n]*|^#.*?$" + _QUOTED, re.DOTALL | re.MULTILINE),
}


def _by_rules(text: str, suffix: str) -> Iterator[tuple[int, int, str, str]]:
    def blank(result: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "\x01", result[0])

    blanked = _BLANKED[suffix].sub(blank, text).split("\n")
    for number, (line, masked) in enumerate(zip(text.split("\n"), blanked, strict=True), 1):
        for kind, pattern, new in _RULES[suffix]:
            for result in re.finditer(pattern, masked):
                other = new(result) if callable(new) else new
                yield number, number, kind, line[: result.start()] + other + line[result.end() :]


def mutants(root: Path, path: str) -> list[Mutant]:
    """All of one file, in the order of its lines."""
    text = (root / path).read_text(encoding="utf-8")
    lines, seen, nth = text.split("\n"), Counter[str](), list[int]()
    for line in lines:
        nth.append(seen[line])
        seen[line] += 1
    suffix = Path(path).suffix
    made = _python(text) if suffix == ".py" else _by_rules(text, suffix)
    result = {
        Mutant(path, number, first, nth[number - 1], kind, lines[number - 1], new)
        for number, first, kind, new in made
        if new != lines[number - 1]
    }
    return sorted(result, key=lambda one: (one.line, one.becomes, one.first))


def mutated(text: str, one: Mutant) -> str:
    """The file's text with the mutant in it."""
    lines = text.split("\n")
    assert lines[one.line - 1] == one.was, f"{one.path} changed meanwhile"
    lines[one.line - 1] = one.becomes
    return "\n".join(lines)


def is_built(root: Path, one: Mutant) -> bool:
    """Whether the file with the mutant in it is one that its language takes at all."""
    text = mutated((root / one.path).read_text(encoding="utf-8"), one)
    suffix = Path(one.path).suffix
    if suffix == ".py":
        try:
            compile(text, one.path, "exec")
        except SyntaxError:
            return False
        return True
    command = ["luac5.1", "-p", "-"]
    if suffix == ".c":
        command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-S", "-x", "c"]
        # headers of the folder below, where there is one
        command += ["-iquote", "../pure", "-o", "/dev/null", "-"]
    folder = (root / one.path).parent
    if "spank" in folder.parts:
        command.insert(1, "-D_GNU_SOURCE")  # as its Makefile has it
    done = subprocess.run(
        command, cwd=folder, input=text, text=True, capture_output=True, check=False
    )
    return done.returncode == 0
