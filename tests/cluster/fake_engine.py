"""An engine that answers `place` as a rule file says: fake_engine.py SOCKET RULE LOG.

RULE is JSON and read again for every question: {"do": ACTION, ...}, or
{"hints": {HINT: rule}, "else": rule}. LOG gets every line received.
Runs inside the controller with nothing but Python.

  own            the GPUs Slurm chose
  prefer         on Slurm's nodes the first free GPUs of "order" (a list per node, or one for all)
  use            exactly "nodes" (and "alts"): {node: [gpu, ...]}
  wait           "s" seconds; with "times": N only while postponed < N, then "then"
  raw            the line "text", %ID% replaced
  elsewhere      the first free GPUs of a node that Slurm did not choose
  slow           "then" after "ms"
  unless         "then" if "node" is a candidate, else "otherwise"
  silence half garbage close huge late   what a broken engine does

With "quiet" a reply has quiet=1. "submit" beside it is the answer to `submit`, %ID% replaced
(otherwise pass); "submit_is" is what a broken engine does instead.
"""

import contextlib
import json
import os
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


class Question:
    """The fields of one `place` line."""

    def __init__(self, line: str) -> None:
        """Splits the line; nodes as {name: (total, free, own, weight)}."""
        fields = [token.split("=", 1) for token in line.split()[1:]]
        self.fields = {key: value for key, value in fields if key != "node"}
        self.nodes = {}
        for key, value in fields:
            if key == "node":
                name, total, free, own, weight = value.split("/")
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


def answer(rule: Rule, question: Question) -> bytes | None:
    """The bytes to send; None for silence."""
    number = question.fields["id"]
    note = f" note={rule['note'].replace(' ', '%20')}" if "note" in rule else ""
    note += " quiet=1" if rule.get("quiet") else ""

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
        with contextlib.suppress(OSError):
            for raw in self.rfile:
                line = raw.decode("ascii", "replace")
                with open(LOG, "a") as log:
                    log.write(line)
                self.reply(line)

    def reply(self, line: str) -> None:
        """Answers one line as the rule says; notices get nothing."""
        verb, sent = line.split(" ", 1)[0], None
        with open(RULE) as file:
            rule: Rule = json.load(file)
        if verb == "place":
            question = Question(line)
            if "hints" in rule:
                rule = rule["hints"].get(question.fields.get("hint", ""), rule["else"])
            sent = answer(rule, question)
        elif verb == "submit" and (number := re.search(r" id=(\d+)", line)):
            sent = rule.get("submit", "pass id=%ID%").replace("%ID%", number[1]).encode() + b"\n"
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
