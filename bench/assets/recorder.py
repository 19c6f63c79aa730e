"""Stands between slurmctld and the engine and writes down every `place` question.

    python3 recorder.py LISTEN BEHIND OUT

Listens on the socket LISTEN, passes everything on to the engine on the socket BEHIND, and
appends each request line that starts with `place ` to OUT. Runs until it is ended.
"""

import asyncio
import os
import sys

LONGEST_LINE = 1 << 20


async def copy(reader, writer, note):
    """Line by line from one side to the other; `note` sees each line."""
    try:
        while line := await reader.readline():
            note(line)
            writer.write(line)
            await writer.drain()
    finally:
        writer.close()


async def main(listen, behind, out):
    """Serve until ended."""
    with open(out, "ab", buffering=0) as notes:

        def note(line):
            if line.startswith(b"place "):
                notes.write(line)

        async def serve(reader, writer):
            engine = await asyncio.open_unix_connection(behind, limit=LONGEST_LINE)
            await asyncio.gather(
                copy(reader, engine[1], note), copy(engine[0], writer, lambda line: None)
            )

        server = await asyncio.start_unix_server(serve, listen, limit=LONGEST_LINE)
        os.chmod(listen, 0o660)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
