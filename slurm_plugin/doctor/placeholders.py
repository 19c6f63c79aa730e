"""Puts `user1`, `account2` and so on in place of names, in texts that strangers will read.

A name is replaced where a text says whose it is (`UserId=alice(1001)`, `user alice`), and wherever
else it stands, unless it is a word of such texts by itself: a user called `node` would otherwise
make them unreadable. Names that any user may give (of jobs) are replaced only where they look like
no other word.
"""

from __future__ import annotations

import ipaddress
import pwd
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from slurm_plugin.doctor import placeholder_words
from slurm_plugin.doctor.placeholder_words import GENERIC_DOMAINS, NO_DOMAINS, SYSTEM_USERS

#: Users below are the system's own.
FIRST_PERSON = 1000
#: Seconds that the system's list of users may take in all: it may be on another host.
MOST_LOOKED_S = 5.0
#: A control character, half of a character, or what turns the direction of writing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NAME = r"[\w][\w.@+\\$-]{0,255}"
_NAMES = rf"{_NAME}(?:,{_NAME})*"
_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})")
_ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:]|\.\d)"
)
_HOST = re.compile(
    r"(?<![\w.@-])(?<![^/]/)((?:[A-Za-z0-9][\w-]{0,62}\.){1,8}[A-Za-z]{2,24})(?![\w@-]|\.\w)"
)
#: What a key says of the names behind it, in Slurm's lines, ours and JSON.
_KEYS = {
    "user": r"user_?id|user_?name|users?|owner|\w*storageuser|jobcompuser|login",
    "account": r"accounts?|acct|allow_?accounts|deny_?accounts",
    "group": r"group_?id|group_?name|groups?|allow_?groups|deny_?groups|mcs_label",
    "job": r"job_?name",
    "host": r"\w{1,30}host|\w{1,30}addr|node_?hostname|backupcontroller|controlmachine",
}
#: Hosts may be a list such as `10.0.0.[1-4]`.
_HOSTS = r"\w[\w.@+,-]{0,255}(?:\[[\d,-]{1,200}\][\w.,-]{0,255}){0,5}"
_STRONG = {
    kind: re.compile(
        rf"(?i)(?<![\w.-])((?:{key})(?:\[\d+\])?[\"']?[ \t]*[=:][ \t]*)([\"']?)"
        rf"(?!N/A)({_HOSTS if kind == 'host' else _NAMES})(?:\(\d+\))?"
    )
    for kind, key in _KEYS.items()
}
_JOB_NAME = re.compile(
    r"(?i)(?<![\w.-])(job_?name[\"']?[ \t]*[=:][ \t]*)(\"[^\"\n]*\"|'[^'\n]*'|\S+)"
)
_COMMENT = re.compile(
    r"(?im)(?<![\w.-])((?:(?:admin_?|system_?)?comment|wckey)[ \t]*=[ \t]*)(.*?)(?=[ \t]+\w+=|$)"
)
_HINT = re.compile(r"(?i)(gpu-topo:[ \t]*|\bhint[\"']?[ \t]*[=:][ \t]*[\"']?)([^\]\n\"'|]*)")
#: Where our own lines name somebody; what they name is looked up before it counts as a name.
_SAID = re.compile(rf"\b(job \S{{1,40}} of|of user|user|account) ({_NAME})")
_HOME = re.compile(r"/(?:home|users?)/([\w.@+-]{1,255})")
_UID = re.compile(r"(?i)\b(uids?[\"']?[ \t]*[=:]?[ \t]*)(\d{1,10})\b")
_TOKEN = re.compile(r"\w(?:[\w.@+-]{0,500}\w)?")
_PART = re.compile(r"([_.@+-])")
_NODE = re.compile(r"[A-Za-z][\w.-]{0,100}(?:\[[\d,-]{1,200}\][\w.-]{0,100}){0,5}")
_NUMBERS = re.compile(r"\[[\d,-]+\]|\d+")
#: A name of so many parts is looked for in a word, and no longer one.
_MOST_PARTS = 12
#: Names with blanks and the like are looked for one by one.
_MOST_ODD = 500


class Placeholders:
    """What stands for whom in one bundle; `used` has what was really replaced, by kind."""

    def __init__(self, *, hides_nodes: bool = False) -> None:
        self.used: dict[str, dict[str, str]] = {}
        self._hides_nodes = hides_nodes
        self._known: dict[str, str] = {}
        self._odd: dict[str, str] = {}
        self._any: set[str] = set()
        self._nodes: set[str] = set()
        self._shapes: set[str] = set()
        self._kept = set(SYSTEM_USERS)
        self._words = placeholder_words.words()
        self._uids: dict[int, str] = {}
        self._looked_s = 0.0
        #: Every placeholder there is: what has been replaced is not replaced again.
        self._given: set[str] = set()

    def keep(self, names: Iterable[str]) -> None:
        """These name nobody (SlurmUser) and stay."""
        self._kept.update(names)

    def know_nodes(self, names: Iterable[str]) -> None:
        """Nodes and controllers, whose names stay, or go with `hides_nodes`."""
        for name in names:
            self._nodes.add(name)
            self._shapes.add(_NUMBERS.sub("#", name))

    def know(self, kind: str, names: Iterable[str]) -> None:
        """Names of a kind; of jobs and texts those alone that look like no other word."""
        for name in map(printable, names):
            if not name or name in self._kept:
                continue
            self._any.add(name)
            if kind in ("job", "text") and not _is_distinct(name):
                continue
            if name in self._words or name in self._nodes or len(name) < 2:
                continue
            where = self._known if _TOKEN.fullmatch(name) else self._odd
            if len(where) < (1_000_000 if where is self._known else _MOST_ODD):
                where.setdefault(name, kind)

    def learn(self, text: str) -> None:
        """Know those whom a text names where it says whose name it is."""
        for kind in ("user", "account", "group"):
            for match in filter(lambda one: not _is_english(one), _STRONG[kind].finditer(text)):
                said = match[3].split(",")
                self.know(
                    kind, (one for one in said if one not in self._words and not one.isdigit())
                )
        for match in _SAID.finditer(text):
            name = match[2].rstrip(".")
            if match[1].startswith("job ") or (match[1].endswith("user") and self._is_person(name)):
                self.know("user", [name])
        self.know("user", _HOME.findall(text))
        for match in _UID.finditer(text):
            if int(match[2]) >= FIRST_PERSON:
                self._name_of(int(match[2]))

    def of(self, kind: str, name: str) -> str:
        """What stands for this name, whatever else it may mean; '' stays."""
        name = printable(name)
        if (
            not name
            or name in self._kept
            or name in self._given
            or name in ("(null)", "ALL", "NONE", "*")
        ):
            return name
        kind = self._known.get(name, kind)
        some = self.used.setdefault(kind, {})
        if name not in some:
            number = len(some) + 1
            # Else somebody of that very name would be taken for another one.
            while f"{kind}{number}" in self._any or f"{kind}{number}" in self._given:
                number += 1
            some[name] = f"{kind}{number}"
            self._given.add(some[name])
        return some[name]

    def of_uid(self, uid: int) -> str | int:
        """What stands for a user known by number; the system's own stay."""
        if uid < FIRST_PERSON:
            return uid
        name = self._name_of(uid)
        return uid if name in self._kept else self.of("user", name)

    def text(self, text: str, *, is_log: bool = False) -> str:
        """A text without names; those of jobs are looked for in logs alone."""
        text = printable(text)
        text = _EMAIL.sub(self._email, text)
        text = _ADDRESS.sub(self._address, text)
        text = _HOST.sub(self._host, text)
        if is_log:
            text = _COMMENT.sub(lambda match: f"{match[1]}{self.of('text', match[2])}", text)
            text = _JOB_NAME.sub(
                lambda match: match[1] + self.of("job", match[2].strip("\"'")), text
            )
        text = _HINT.sub(lambda match: match[1] + self.hint(match[2]), text)
        for kind, pattern in _STRONG.items():
            if kind != "job":
                text = pattern.sub(self._listed(kind), text)
        text = _SAID.sub(self._said, text)
        text = _UID.sub(lambda match: f"{match[1]}{self.of_uid(int(match[2]))}", text)
        for name, kind in self._odd.items():
            if (is_log or kind not in ("job", "text")) and name in text:
                text = text.replace(name, self.of(kind, name))
        text = _TOKEN.sub(lambda match: self._token(match[0], is_log), text)
        return _NODE.sub(self._node, text) if self._hides_nodes else text

    def tree(self, value: Any, key: str = "") -> Any:
        """JSON without names: keys stay where they are ours, and names go by their key."""
        if isinstance(value, dict):
            order = sorted(value, key=lambda name: name != "hint")
            done = {name: self.tree(value[name], name) for name in order}
            return dict(self._keyed(key, name, done[name]) for name in value)
        if isinstance(value, list):
            return [self.tree(one, key) for one in value]
        if key in ("uid", "user_id") and isinstance(value, int):
            return self.of_uid(value)
        if not isinstance(value, str):
            return value
        if key == "hint":
            return self.hint(value)
        kind = {"user": "user", "account": "account", "job_name": "job", "comment": "text"}.get(key)
        return self.of(kind, value) if kind else self.text(value)

    def hint(self, text: str) -> str:
        """A hint without what its user wrote freely: keys, numbers and our own words stay."""

        def word(match: re.Match[str]) -> str:
            name = match[0]
            if name in self._words or re.fullmatch(r"\d+(?:[.:]\d+)*[a-zA-Z%]?", name):
                return name
            self.know("text", [name])
            return self.of("text", name)

        return re.sub(r"[^\s,;=]+", word, printable(text))

    def named(self, text: str, places: Iterable[tuple[int, int, str]]) -> str:
        """The text with what stands at these places (from, to, kind) replaced, whatever it is."""
        done, at = [], 0
        for start, end, kind in sorted(places):
            done += [text[at:start], self.of(kind, text[start:end])]
            at = end
        return "".join([*done, text[at:]])

    def _keyed(self, parent: str, name: str, value: Any) -> tuple[str, Any]:
        if parent in ("users", "accounts"):
            return self.of(parent[:-1], name), value
        is_ours = name in self._words and name not in self._nodes
        return name if is_ours else self.text(name), value

    def _name_of(self, uid: int) -> str:
        if uid not in self._uids:
            found = self._looked_up(pwd.getpwuid, uid)
            self._uids[uid] = found.pw_name if found else f"uid {uid}"
            self.know("user", [self._uids[uid]])
        return self._uids[uid]

    def _is_person(self, name: str) -> bool:
        """Is there a user of this name here, who is none of the system's?"""
        found = self._looked_up(pwd.getpwnam, name)
        return found is not None and found.pw_uid >= FIRST_PERSON

    def _looked_up(self, look: Callable[[Any], pwd.struct_passwd], what: object) -> Any:
        """A row of the system's users; None where there is none, or looking takes too long."""
        if self._looked_s > MOST_LOOKED_S:
            return None
        began = time.monotonic()
        try:
            return look(what)
        except (KeyError, OverflowError, ValueError):
            return None
        finally:
            self._looked_s += time.monotonic() - began

    def _listed(self, kind: str) -> Callable[[re.Match[str]], str]:
        def put(match: re.Match[str]) -> str:
            is_english = _is_english(match)
            names = re.split(r",(?![^\[]*\])", match[3])
            done = [self._one(kind, name, is_english) for name in names]
            return match[1] + match[2] + ",".join(map(str, done))

        return put

    def _one(self, kind: str, name: str, is_english: bool) -> str | int:
        """What stands for a name behind a key."""
        if name in self._given or (is_english and name not in self._any):
            return name
        if kind == "host":
            return self._one_host(name)
        return (
            self.of_uid(int(name[:10]))
            if kind == "user" and name.isdigit()
            else self.of(kind, name)
        )

    def _one_host(self, name: str) -> str:
        is_plain = name in self._nodes or name in self._words
        is_plain = is_plain or _NUMBERS.sub("#", name) in self._shapes
        first = name.split(".")[0]
        is_plain = is_plain or first in self._nodes or first == "localhost" or not first.strip("0")
        return name if is_plain or name.replace(".", "").isdigit() else self.of("host", name)

    def _said(self, match: re.Match[str]) -> str:
        name = match[2].rstrip(".")
        kind = "account" if match[1] == "account" else "user"
        if name not in self._any or name in self._kept:
            return match[0]
        return f"{match[1]} {self.of(kind, name)}{match[2][len(name) :]}"

    def _email(self, match: re.Match[str]) -> str:
        is_unit = match[1].rsplit(".", 1)[1] in NO_DOMAINS
        return match[0] if is_unit else self.of("email", match[0])

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:
            return match[0]
        is_here = address.is_loopback or address.is_unspecified
        return match[0] if is_here else self.of("address", match[0])

    def _host(self, match: re.Match[str]) -> str:
        name = match[1]
        labels = name.lower().split(".")
        last = labels[-1]
        is_domain = last in GENERIC_DOMAINS or (len(last) == 2 and len(labels[-2]) > 1)
        if last in NO_DOMAINS or not is_domain or labels[0] in self._words - self._nodes:
            return name
        first, _, rest = name.partition(".")
        return (
            f"{first}.{self.of('domain', rest)}" if first in self._nodes else self.of("host", name)
        )

    def _token(self, token: str, is_log: bool) -> str:
        kind = self._known.get(token)
        if kind is not None and (is_log or kind != "job"):
            return self.of(kind, token)
        if token in self._nodes:
            return token
        parts = _PART.split(token)
        return "".join(self._parts(parts, is_log)) if len(parts) > 1 else token

    def _parts(self, parts: list[str], is_log: bool) -> Iterator[str]:
        """The word, with the longest names that are parts of it replaced."""
        at = 0
        while at < len(parts):
            for end in range(min(len(parts), at + 2 * _MOST_PARTS), at, -1):
                name = "".join(parts[at:end])
                kind = self._known.get(name)
                if kind is not None and (is_log or kind != "job"):
                    yield self.of(kind, name)
                    at = end
                    break
            else:
                yield parts[at]
                at += 1

    def _node(self, match: re.Match[str]) -> str:
        text = match[0]
        shape = _NUMBERS.sub("#", text)
        is_name = text in self._nodes and text not in self._words
        if not is_name and ("#" not in shape or shape not in self._shapes):
            return text
        # `dgx[1-4]` becomes `node1-[1-4]`: still a list of nodes that our readers take.
        return "-".join([self.of("node", shape), *_NUMBERS.findall(text)])


def printable(text: str) -> str:
    """The text with control characters as Python writes them, which no terminal obeys."""
    return _UNSEEN.sub(lambda match: ascii(match[0])[1:-1], text)


def _is_english(match: re.Match[str]) -> bool:
    """`user: permission denied`, where `user=permission` and `"user":"permission"` are none."""
    return ":" in match[1] and not match[2] and match[1][-1:].isspace()


def _is_distinct(name: str) -> bool:
    """Does it look like no other word of a log, and like no number?"""
    has_letters = len(re.findall(r"[^\W\d_]", name)) > 2
    return has_letters and (len(name) > 9 or re.search(r"[\W\d_]|[^\W_]*[A-Z]", name) is not None)
