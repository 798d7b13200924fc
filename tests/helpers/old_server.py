"""Answers INFO as an old Redis would; for want of one.

Run it with ``python -m tests.helpers.old_server``: it prints its port.
"""

from __future__ import annotations

import asyncio

from tests.helpers.resp import Frames

FIELDS = {"redis_version": "6.0.16", "run_id": "0" * 40, "maxmemory": "0", "maxmemory_policy": "noeviction"}
INFO = "\r\n".join(f"{name}:{value}" for name, value in FIELDS.items()).encode()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer INFO; refuse whatever else is asked."""
    frames = Frames()
    while data := await reader.read(1 << 16):
        for frame in frames.feed(data):
            is_info = frame.split(b"\r\n")[2].upper() == b"INFO"
            writer.write(b"$%d\r\n%s\r\n" % (len(INFO), INFO) if is_info else b"-ERR unknown command\r\n")
    writer.close()


async def main() -> None:
    """Listen on a free port of loopback and print it."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
