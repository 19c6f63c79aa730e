"""One middleware as data: how its server is started and what its clients' environment says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from slurm_plugin.errors import RemoteError

#: What the words of `server` may name.
SERVER_FIELDS = frozenset(("port", "bind", "host", "gpus", "id", "subject", "program"))
#: What the values of `environment` may name, and those of `each_gpu`, whose keys may, too.
JOB_FIELDS = frozenset(("count", "servers", "hosts", "ids", "subjects", "wire"))
GPU_FIELDS = frozenset(("i", "host", "port", "gpu", "id"))
_SETS = re.compile(r"[A-Za-z_]\w*=")
#: The port of a server that takes none and is reached without the relay; 0 is the relay's.
UNKNOWN = -1
#: More consecutive ports no server may have.
MOST_PORTS = 8


@dataclass(frozen=True)
class Server:
    """Where a task reaches one donor: `gpus` devices at host:port, lent by job `job_id`."""

    host: str
    port: int
    gpus: int
    job_id: int
    subject: str = ""


@dataclass(frozen=True)
class Preset:
    """A middleware. `authenticates`: its server lets in nobody but the job's user by itself.

    `loopback`: the server can be told to listen for its own host alone ({bind}); else it gets a
    network namespace of its own. `takes_port`: it can be told a port. `ports`: so many consecutive
    ones from there on are its clients'. `max_donors` 0: any number of donors for one job.
    `each_word`: variables with a word for each remote GPU, and blanks between them.
    """

    name: str
    about: str
    server: tuple[str, ...]
    authenticates: bool = False
    loopback: bool = True
    takes_port: bool = True
    ports: int = 1
    max_donors: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    each_gpu: Mapping[str, str] = field(default_factory=dict)
    each_word: Mapping[str, str] = field(default_factory=dict)

    def needs_trust(self) -> str:
        """Why it needs a network that the site trusts; '' where it does not."""
        if self.authenticates or self.takes_port:
            return ""
        return "it takes no port, so the relay cannot stand in front of it"

    @property
    def program(self) -> str:
        """The server's program: behind `env` the word after its variables, if it has no options."""
        first, *rest = self.server
        behind = next((word for word in rest if not _SETS.match(word)), first)
        return behind if first == "env" and not behind.startswith("-") else first

    def command(self, values: Mapping[str, str]) -> list[str]:
        """The server's command line; `values` has every one of SERVER_FIELDS."""
        return [word.format_map(values) for word in self.server]

    def client_environment(self, servers: Sequence[Server], wire: str = "") -> dict[str, str]:
        """The variables that the job's tasks get, for donors in this order.

        `wire` is the path of gputopo-wire.so on the job's node.
        """
        values = {
            "count": str(sum(server.gpus for server in servers)),
            "servers": ",".join(f"{server.host}:{server.port}" for server in servers),
            "hosts": ",".join(server.host for server in servers),
            "ids": ",".join(str(server.job_id) for server in servers),
            "subjects": ",".join(server.subject for server in servers),
            "wire": wire,
        }
        variables = {name: text.format_map(values) for name, text in self.environment.items()}
        gpus = [(server, gpu) for server in servers for gpu in range(server.gpus)]
        words: dict[str, list[str]] = {name: [] for name in self.each_word}
        for i, (server, gpu) in enumerate(gpus):
            one = {"i": i, "host": server.host, "port": server.port, "gpu": gpu}
            one["id"] = server.job_id
            variables |= {k.format_map(one): v.format_map(one) for k, v in self.each_gpu.items()}
            for name, text in self.each_word.items():
                words[name].append(text.format_map(one))
        return variables | {name: " ".join(each) for name, each in words.items()}


def from_json(values: Any) -> Preset:
    """The preset that was `asdict(preset)` in JSON; raises RemoteError for anything else."""
    try:
        return Preset(**values | {"server": tuple(values["server"])})
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteError(f"not a preset: {error}") from error


def unknown_fields(text: str, allowed: frozenset[str]) -> list[str]:
    """Names between braces that are not `allowed`; raises ValueError for braces left open."""
    return [
        name or "{}"
        for _, name, spec, conversion in Formatter().parse(text)
        if name is not None and (name not in allowed or spec or conversion)
    ]
