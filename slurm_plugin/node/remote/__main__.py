"""`gputopo-node donor|join|echo|echo-server|inside`: what runs on the nodes."""

from __future__ import annotations

import sys

WORDS = ("donor", "join", "echo", "echo-server")


def main(argv: list[str] | None = None) -> int:
    """Run one of WORDS; its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    word, rest = (argv[0], argv[1:]) if argv else ("", [])
    if word == "donor":
        from slurm_plugin.node.remote import donor

        return donor.main(rest, sys.argv[0])
    if word == "join":
        from slurm_plugin.node.remote import join

        return join.main(program=sys.argv[0])
    if word in ("echo", "echo-server"):
        from slurm_plugin.node.remote import echo

        return echo.client(rest) if word == "echo" else echo.server(rest)
    if word == "inside":
        from slurm_plugin.node.remote import inside

        return inside.main(rest, sys.argv[0])
    print(f"gputopo-node: expected one of {', '.join(WORDS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
