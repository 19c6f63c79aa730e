"""An engine that answers `place` as a rule file says: fake_engine.py SOCKET RULE LOG.

RULE is JSON and read again for every question: {"do": ACTION, ...}, or
{"hints": {HINT: rule}, "else": rule}. LOG gets every line received; a question that names other
nodes by their places has them behind it as `node=`, as far as they could be chosen. LOG.tables gets
the number of each table of nodes as soon as it is whole.
Runs inside the controller with nothing but Python.

  own            the GPUs Slurm chose
  prefer         on Slurm's nodes the first free GPUs of "order" (a list per node, or one for all)
  use            exactly "nodes" (and "alts"): {node: [gpu, ...]}
  wait           "s" seconds; with "times": N only while postponed < N, then "then"
  raw            the line "text", %ID% replaced
  any            any legal nodes and GPUs, and with "waits": P now and then a wait of 1 to 3 s
                 before; the job's number decides
  elsewhere      the first free GPUs of a node that Slurm did not choose
  slow           "then" after "ms"
  unless         "then" if "node" is a candidate, else "otherwise"
  silence half garbage close huge late   what a broken engine does

With "quiet" a reply has quiet=1, with "resync" resync=1; "nodes": "refuse" refuses tables.
"submit" beside it is the answer to `submit`, %ID% replaced (otherwise pass); "submit_is" is what a
broken engine does instead, "submit_ms" how long it takes.
"""

import base64
import contextlib
import json
import os
import random
import re
import socketserver
import sys
import time
from typing import Any

SOCKET, RULE, LOG = sys.argv[1:4]
Rule = dict[str, Any]


def mask(gpus: list[int]) -> str:
    """Indices as the protocol's hexadecimal mask."""
    return f"{sum(1 << gpu for gpu in gpus):x}"


def picks(key: str, nodes: dict[str, list[int]]) -> str:
    """` node=NAME/MASK` for each node."""
    return "".join(f" {key}={name}/{mask(gpus)}" for name, gpus in nodes.items())


ALL = (1 << 64) - 1


def mixed(x: int) -> int:
    """The finalizer of splitmix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL
    return x ^ x >> 31


class Table:
    """All nodes, as `nodes` lines tell of them: a column for each key."""

    def __init__(self) -> None:
        self.columns: dict[str, list[str]] = {key: [] for key in COLUMNS}
        self.free: list[int] = []

    def add(self, fields: dict[str, str]) -> None:
        """One line's nodes, which come next."""
        assert int(fields["first"]) == len(self.free), fields
        names = fields["names"].split(",")
        for key in COLUMNS:
            values = fields[key].split(",")
            self.columns[key] += values * len(names) if len(values) == 1 else values
        self.free += [int(text, 16) for text in fields["free"].split(",")]
        assert {len(column) for column in self.columns.values()} == {len(self.free)}, fields

    def digest(self) -> int:
        """Of all free GPUs."""
        result = 0
        for index, free in enumerate(self.free):
            result ^= mixed(mixed(index + 1) ^ free)
        return result

    def change(self, text: str) -> None:
        """INDEX:FREE,INDEX:FREE"""
        for index, free in (change.split(":") for change in text.split(",")):
            self.free[int(index)] = int(free, 16)

    def choosable(self, fields: dict[str, str]) -> list[str]:
        """The other nodes of a question with free GPUs of its type, as values of node=."""
        wanted = zip(*(self.columns[key] for key in COLUMNS), self.free, strict=True)
        return [
            f"{name}/{total}/{free:x}/0/{weight}"
            for index, (name, total, weight, kind, free) in enumerate(wanted)
            if free
            and index in places(fields["others"])
            and fields.get("type", kind) == kind
            and int(weight) <= int(fields.get("heaviest", ALL))
        ]


COLUMNS = ("names", "total", "weight", "type")
#: Whole tables by their number.
TABLES: dict[str, Table] = {}


def places(text: str) -> set[int]:
    """Ranges, or * and the bytes of a bit map in base64."""
    if text.startswith("*"):
        bits = int.from_bytes(base64.b64decode(text[1:], validate=True), "little")
        return {index for index in range(bits.bit_length()) if bits >> index & 1}
    ranges = (span.partition("-") for span in text.split(","))
    return {i for low, _, high in ranges for i in range(int(low), int(high or low) + 1)}


def told_all(line: str) -> tuple[str, bool]:
    """The question with all of its nodes, and whether they had to be left out."""
    fields = dict(token.split("=", 1) for token in line.split()[1:])
    if "table" not in fields:
        return line, False
    table = TABLES.get(fields["table"])
    if table and "changed" in fields:
        table.change(fields["changed"])
    if not table or f"{table.digest():x}" != fields["state"]:
        return line, True
    listed = {value.split("/")[0] for value in re.findall(r" node=(\S+)", line)}
    others = [node for node in table.choosable(fields) if node.split("/")[0] not in listed]
    return line.rstrip("\n") + "".join(f" node={node}" for node in others) + "\n", False


class Question:
    """The fields of one `place` line, with all of its nodes."""

    def __init__(self, line: str, lost: bool = False) -> None:
        """Splits the line; nodes as {name: (total, free, own, weight)}."""
        fields = [token.split("=", 1) for token in line.split()[1:]]
        self.lost = lost
        self.fields = {key: value for key, value in fields if key != "node"}
        self.nodes = {}
        for key, value in fields:
            if key == "node":
                name, total, free, own, weight = value.split("/")[:5]
                self.nodes[name] = (int(total), int(free, 16), int(own, 16), int(weight))

    def own(self) -> dict[str, list[int]]:
        """The GPUs that Slurm itself would take."""
        return {
            name: [i for i in range(64) if own >> i & 1]
            for name, (_, _, own, _) in self.nodes.items()
            if own
        }


def prefer(question: Question, order: Any) -> dict[str, list[int]]:
    """On each of Slurm's nodes, as many GPUs as it chose there, by preference."""
    chosen = {}
    for name, own in question.own().items():
        free = question.nodes[name][1]
        wanted = order.get(name, list(range(8))) if isinstance(order, dict) else order
        chosen[name] = [gpu for gpu in wanted if free >> gpu & 1][: len(own)]
    return chosen


def elsewhere(question: Question) -> dict[str, list[int]]:
    """As many GPUs as Slurm chose, on the first other node."""
    count = sum(map(len, question.own().values()))
    node, free = next((n, free) for n, (_, free, own, _) in question.nodes.items() if not own)
    return {node: [gpu for gpu in range(64) if free >> gpu & 1][:count]}


def any_legal(question: Question, chance: random.Random) -> dict[str, list[int]]:
    """As many nodes as Slurm chose, as many GPUs on each; the node with most of them first."""
    nodes = list(question.nodes.items())
    chance.shuffle(nodes)
    chosen: dict[str, list[int]] = {}
    for count in sorted(map(len, question.own().values()), reverse=True):
        roomy = [(n, free) for n, (_, free, _, _) in nodes if free.bit_count() >= count]
        name, free = next((n, free) for n, free in roomy if n not in chosen)
        chosen[name] = sorted(chance.sample([i for i in range(64) if free >> i & 1], count))
    return chosen


def answer(rule: Rule, question: Question) -> bytes | None:
    """The bytes to send; None for silence."""
    number = question.fields["id"]
    note = f" note={rule['note'].replace(' ', '%20')}" if "note" in rule else ""
    note += " quiet=1" if rule.get("quiet") else ""
    note += " resync=1" if rule.get("resync") or question.lost else ""

    def use(nodes: dict[str, list[int]]) -> bytes:
        alts = picks("alt", rule.get("alts", {}))
        return f"use id={number}{picks('node', nodes)}{alts}{note}\n".encode()

    match rule["do"]:
        case "own":
            return use(question.own())
        case "prefer":
            return use(prefer(question, rule["order"]))
        case "use":
            return use(rule["nodes"])
        case "elsewhere":
            return use(elsewhere(question))
        case "any":
            chance = random.Random(int(question.fields["job"]))
            waits, wait_s = chance.random() < rule.get("waits", 0), chance.randint(1, 3)
            if waits and question.fields["postponed"] == "0":
                return f"wait id={number} s={wait_s} note=later\n".encode()
            return use(any_legal(question, chance))
        case "wait" if int(question.fields["postponed"]) >= rule.get("times", 10**9):
            return answer(rule["then"], question)
        case "wait":
            return f"wait id={number} s={rule['s']}{note}\n".encode()
        case "pass":
            return f"pass id={number}{note}\n".encode()
        case "raw":
            text: str = rule["text"]
            return text.replace("%ID%", number).encode()
        case "slow":
            time.sleep(rule["ms"] / 1000)
            return answer(rule["then"], question)
        case "unless":
            return answer(rule["then" if rule["node"] in question.nodes else "otherwise"], question)
        case "late":
            return f"use id={int(number) - 1} node=nowhere/1\n".encode() + use(question.own())
    return broken(rule["do"], number)


def broken(action: str, number: str) -> bytes | None:
    match action:
        case "half":
            return f"use id={number} node=dg".encode()
        case "garbage":
            return b"\x00\xff\x1b[2J an exception was raised:\n" * 3
        case "huge":
            return f"use id={number} note=".encode() + b"x" * 10_000_000 + b"\n"
        case "close":
            raise ConnectionAbortedError
    return None


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Logs every line and answers questions; a vanished peer is no error."""
        self.table = Table()
        with contextlib.suppress(OSError):
            for raw in self.rfile:
                line, lost = raw.decode("ascii", "replace"), False
                if line.startswith("place "):
                    line, lost = told_all(line)
                with open(LOG, "a") as log:
                    log.write(line)
                self.reply(line, lost)

    def take_nodes(self, line: str) -> str:
        """A part of a table."""
        fields = dict(token.split("=", 1) for token in line.split()[1:])
        if fields["part"] == "1":
            self.table = Table()
        self.table.add(fields)
        if fields["part"] != fields["parts"]:
            return f"ok id={fields['id']}\n"
        TABLES[fields["table"]] = self.table
        with open(LOG + ".tables", "a") as log:
            log.write(fields["table"] + "\n")
        return f"ok id={fields['id']} digest={self.table.digest():x}\n"

    def reply(self, line: str, lost: bool) -> None:
        """Answers one line as the rule says; notices get nothing."""
        verb, sent = line.split(" ", 1)[0], None
        with open(RULE) as file:
            rule: Rule = json.load(file)
        if verb == "place":
            question = Question(line, lost)
            if "hints" in rule:
                rule = rule["hints"].get(question.fields.get("hint", ""), rule["else"])
            sent = answer(rule, question)
        elif verb == "nodes" and rule.get("nodes") == "refuse":
            sent = b"error id=" + line.split("id=")[1].split()[0].encode() + b" message=no\n"
        elif verb == "nodes":
            sent = self.take_nodes(line).encode()
        elif verb == "submit" and (number := re.search(r" id=(\d+)", line)):
            sent = rule.get("submit", "pass id=%ID%").replace("%ID%", number[1]).encode() + b"\n"
            time.sleep(rule.get("submit_ms", 0) / 1000)
            if "submit_is" in rule:
                sent = broken(rule["submit_is"], number[1])
        if sent is not None:
            self.wfile.write(sent)


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


if __name__ == "__main__":
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    with Server(SOCKET, Handler) as server:
        os.chmod(SOCKET, 0o666)
        server.serve_forever()
