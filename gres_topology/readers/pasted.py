"""Takes off what copying and pasting puts around a report, before any reader sees it.

Issues, mails and terminals leave marks: quote and comment signs before every line, fences, prompts,
colours written out, labels of `srun --label`, `cat -A`. Lines are emptied and never removed, so
that an error still names the line of the file. A report that nobody pasted comes back as it was,
but for the escapes, line ends and indentation that no reader needs.

Every step passes over the text once, whatever is in it.
"""

from __future__ import annotations

import os
import re

#: Quotes may be nested, and quote what is commented out.
_DEPTH = 6

#: What a terminal gets: colours and other modes, character sets, window titles.
_ESCAPE = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b\][^\x07\x1b\n]{0,200}\x07|[\x0e\x0f\x1b]"
)
#: The same as text: as `cat -v`, a language or a font shows ESC, or with the ESC lost.
_WRITTEN = re.compile(
    r"(?:\^\[|\u241b|\\x1[bB]|\\0?33|\\e|\\u001[bB])\[[0-9;?]{0,20}[A-Za-z]"
    r"|\[(?:[0-9;]{1,12}m|m$)",
    re.MULTILINE,
)
#: A document whose texts may hold anything: JSON (a list or an object) or XML.
_DOCUMENT = re.compile(r'<|\{\s*["}]|\[\s*[\[{\]]')
#: The first thing that stands on a line and is no comment.
_FIRST = re.compile(r"^(?![ \t]*#)[ \t]*(?=\S)", re.MULTILINE)
_FENCE = re.compile(
    r"^[ \t]*(?:`{3,}|~{3,}|\{(?:code|noformat)\b[^}\n]{0,80}\}|\[/?code\]"
    r"|</?(?:pre|code|details)>)[ \t\w+-]{0,40}$",
    re.MULTILINE | re.IGNORECASE,
)
#: A shell's prompt with the command or without, and one of our tools' commands alone.
_PROMPT = re.compile(
    r"^[ \t]*(?:\([\w.-]{1,60}\) ?)?(?:"
    r"\[?[\w.-]{1,64}@[\w.-]{1,255}[^\n$#%>]{0,300}[$#%>\u276f](?: .*)?"
    r"|[$%\u276f](?: .*)?"
    r"|(?:sudo )?(?:nvidia-smi|rocm-smi|amd-smi|lstopo|hwloc-ls|numactl|cat|srun)(?: [\w./=,:-]+)*"
    r")[ \t]*$",
    re.MULTILINE,
)
#: What a tool says that could not ask its driver.
_FAILED = re.compile(
    r"^.*(?:Unable to determine the device handle|has failed because|No devices were found"
    r"|Failed to initialize|Failed to run|Insufficient Permissions|GPU is lost|command not found"
    r"|not enabled|runtime_error|^Error:).*$",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTE = re.compile(r"^[ \t]*(?:> ?)+", re.MULTILINE)
#: A task's number of `srun --label`, a host's name of pdsh and clush.
_LABEL = re.compile(r"\s*((?:[0-9]{1,6}|[A-Za-z][\w.-]{0,62}): ?)", re.ASCII)
#: One line alone may begin with a word and a colon for other reasons.
_LABELLED_LINES = 3
#: Signs that may stand before every line: comments of several languages, diffs, tables.
_SIGNS = ("#", "//", ";", "|", "*", "+")


def clean(text: str) -> str:
    """The report in a pasted text, line by line where it was."""
    text = unescaped(text).replace("\xa0", " ")
    for _ in range(_DEPTH):
        before = text
        text = _PROMPT.sub("", _FENCE.sub("", text))
        if not _is_document(text):
            text = _without_labels(text)
        text = _without_quotes(_without_signs(text))
        if text == before:
            break
    if not _is_document(text):
        text = _WRITTEN.sub("", _without_cat_marks(text))
    return _without_indentation(text)


def failure(text: str) -> tuple[int, str] | None:
    """The line in which a tool says that it failed, and what it says; None for no such line."""
    said = _FAILED.search(text)
    return said and (text.count("\n", 0, said.start()) + 1, said[0].strip()[:120])


def unescaped(text: str) -> str:
    """The text without a terminal's escapes and with plain line ends, as tools may print it."""
    return _ESCAPE.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", ""))


def _is_document(text: str) -> bool:
    first = _FIRST.search(text)
    return first is not None and _DOCUMENT.match(text, first.end()) is not None


def _without_signs(text: str) -> str:
    """Without the sign that stands before every line; what only some have is a comment."""
    first = text.lstrip()
    for sign in _SIGNS:
        is_first = first.startswith(sign)
        if is_first and not re.search(rf"^(?![ \t]*{re.escape(sign)})[ \t]*\S", text, re.MULTILINE):
            return re.sub(rf"^[ \t]*{re.escape(sign)} ?", "", text, flags=re.MULTILINE)
    return text


def _without_quotes(text: str) -> str:
    """Without quote signs, which only some lines may have: an answer stands below a quotation."""
    return text if _is_document(text) else _QUOTE.sub("", text)


def _without_labels(text: str) -> str:
    """Without what `srun --label`, pdsh or clush put before every line."""
    match = _LABEL.match(text)
    if match is None:
        return text
    label = re.escape(match.group(1).rstrip())
    is_host = not match.group(1)[0].isdigit()
    if is_host and len(re.findall(r"^[ \t]*\S", text, re.MULTILINE)) < _LABELLED_LINES:
        return text
    if re.search(rf"^(?!{label})[ \t]*\S", text, re.MULTILINE):
        return text
    return re.sub(rf"^{label} ?", "", text, flags=re.MULTILINE)


def _without_cat_marks(text: str) -> str:
    """Tabs, line ends and carriage returns as they were before `cat -A`."""
    if re.search(r"[^$\n]$", text, re.MULTILINE) is None:
        text = re.sub(r"(?:\^M)?\$$", "", text, flags=re.MULTILINE)
    return text.replace("^I", "\t")


def _without_indentation(text: str) -> str:
    """Without the blanks that stand before every line."""
    lines = text.split("\n")
    said = [line for line in lines if line and not line.isspace()]
    common = os.path.commonprefix(said)  # noqa: RUF071 - of lines, not of paths
    width = len(common) - len(common.lstrip(" \t"))
    return "\n".join(line[width:] for line in lines) if width else text
