"""The shell snippet that is piped into `sh` on a node, and its output cut into sections.

Each tool's output stands between marks with its exit status, so that a missing tool is seen.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gres_topology.readers.pasted import unescaped
from slurm_plugin.errors import PluginError

#: Section -> command. LC_ALL=C: the readers know the tools' English.
COMMANDS = {
    "nvidia-smi-list": "nvidia-smi -L",
    "nvidia-smi-topo": "nvidia-smi topo -m",
    "nvidia-smi-query": "nvidia-smi -q",
    "amd-smi-topo": "amd-smi topology --json",
    "amd-smi-asic": "amd-smi static --asic --bus --json",
    # A virtual machine's amd-smi does not know this option.
    "amd-smi-numa": "amd-smi static --numa --json",
    "rocm-smi-topo": "rocm-smi --showtopo",
    "rocm-smi-bus": "rocm-smi --showbus",
    "rocm-smi-name": "rocm-smi --showproductname",
    "xpu-smi-topo": "xpu-smi topology -m",
    "xpu-smi-list": "xpu-smi discovery -j",
    "numactl": "numactl --hardware",
    # Which device file is which PCI device: the only place that knows for AMD.
    "drm": "render_nodes",
}

#: A node's tools answer within seconds, or hang: a lost GPU can block nvidia-smi for ever.
TOOL_TIMEOUT_S = 20

_BEGIN = re.compile(r"@gputopo begin ([a-z\-]+)\Z")
_END = re.compile(r"@gputopo end ([a-z\-]+) (\d+)\Z")


class Section(NamedTuple):
    """One tool's output (both streams) and exit status; 127: not installed."""

    text: str
    status: int


def script() -> str:
    """The snippet, for POSIX sh."""
    lines = [
        # The job's environment is empty on purpose; ROCm's tools are seldom in PATH anyway.
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/opt/rocm/bin; LC_ALL=C",
        "export PATH LC_ALL",
        "render_nodes() {",
        "  for card in /sys/class/drm/renderD*; do",
        '    [ -e "$card/device" ] && echo "${card##*/} $(readlink -f "$card/device")"',
        "  done",
        "  true",
        "}",
        "section() {",
        "  name=$1; shift",
        '  echo "@gputopo begin $name"',
        '  if ! command -v "$1" >/dev/null 2>&1; then status=127',
        '  elif [ "$1" = render_nodes ]; then "$@"; status=$?',
        f'  elif command -v timeout >/dev/null 2>&1; then timeout {TOOL_TIMEOUT_S} "$@" 2>&1;'
        " status=$?",
        '  else "$@" 2>&1; status=$?; fi',
        "  echo",
        '  echo "@gputopo end $name $status"',
        "}",
    ]
    lines += [f"section {name} {command}" for name, command in COMMANDS.items()]
    return "\n".join(lines) + "\n"


def sections(output: str) -> dict[str, Section]:
    """The snippet's output by section; raises PluginError where one is missing (cut off)."""
    complete: dict[str, Section] = {}
    name, lines = "", list[str]()
    # Some drivers underline the header whatever they print to.
    for line in unescaped(output).splitlines():
        begin, end = _BEGIN.match(line), _END.match(line)
        if begin:
            name, lines = begin[1], []
        elif end and end[1] == name:
            # The line before the mark is the snippet's own line feed.
            body = lines[:-1] if lines and not lines[-1].strip() else lines
            complete[name] = Section("\n".join(body) + "\n", int(end[2]))
            name = ""
        elif name:
            lines.append(line)
    missing = [wanted for wanted in COMMANDS if wanted not in complete]
    if missing:
        raise PluginError(f"the node's answer was cut off before {missing[0]}")
    return complete
