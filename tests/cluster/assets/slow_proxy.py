"""slow_proxy.py PORT TO PORTS SETTINGS: a slow network, or a slow server, in front of a quick one.

Listens at PORT and the ports behind it, PORTS in all, and passes on to TO and those behind it.
SETTINGS is a file of JSON, read anew all the time: `delay_ms` on each way, `mb_s` (0: as quick as
can be), `mute`: answers are held back for as long as that is true.
"""

import asyncio
import json
import sys
import time

#: When the network is free again, by direction: all connections share it.
FREE_AT = {False: 0.0, True: 0.0}
SETTINGS = {"delay_ms": 0.0, "mb_s": 0.0, "mute": False}


async def settings_of(path):
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                SETTINGS.update(json.load(file))
        except (OSError, ValueError):
            pass  # not there yet, or half written
        await asyncio.sleep(0.1)


async def pass_on(reader, writer, is_answer):
    """Bytes in their order, each chunk late by the delay, and all no faster than the rate."""
    chunks = asyncio.Queue(64)

    async def read():
        while data := await reader.read(1 << 16):
            await chunks.put((time.monotonic() + SETTINGS["delay_ms"] / 1000, data))
        await chunks.put((0, b""))

    reading = asyncio.ensure_future(read())
    try:
        while True:
            due, data = await chunks.get()
            if not data:
                break
            while is_answer and SETTINGS["mute"]:
                await asyncio.sleep(0.1)
            if SETTINGS["mb_s"]:
                due = max(due, FREE_AT[is_answer]) + len(data) / 1e6 / SETTINGS["mb_s"]
                FREE_AT[is_answer] = due
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        reading.cancel()
        writer.close()


async def connected(port):
    """The server behind may begin later."""
    for _ in range(300):
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
    sys.exit(f"slow_proxy: nothing at port {port}")


async def main(port, to, ports, path):
    async def one(reader, writer, to):
        there, back = await connected(to)
        await asyncio.gather(pass_on(reader, back, False), pass_on(there, writer, True))

    watching = asyncio.ensure_future(settings_of(path))
    for i in range(ports):
        await asyncio.start_server(lambda r, w, to=to + i: one(r, w, to), "127.0.0.1", port + i)
    await watching


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4]), sys.argv[4]))
