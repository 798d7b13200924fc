"""As much of SOCKS 5 (RFC 1928, RFC 1929) as shows that a proxy accepts its credentials and leads to a host."""

from __future__ import annotations

import asyncio
import contextlib

from scrapy_lease.providers.address import Address

_VERSION, _NO_AUTH, _BY_PASSWORD, _CONNECT, _BY_NAME = 5, 0, 2, 1, 3


async def reach(at: Address, host: str, port: int) -> bool:
    """Does the proxy *at* connect to *host* and *port*? Raises what the connection does."""
    reader, writer = await asyncio.open_connection(at.host.strip("[]"), at.port)
    try:
        return await _greet(at, reader, writer) and await _connect(host, port, reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _greet(at: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    method = _BY_PASSWORD if at.user or at.password else _NO_AUTH
    writer.write(bytes((_VERSION, 1, method)))
    if await reader.readexactly(2) != bytes((_VERSION, method)):
        return False
    if method == _BY_PASSWORD:
        writer.write(b"\x01" + _counted(at.user) + _counted(at.password))
        return (await reader.readexactly(2))[1] == 0
    return True


async def _connect(host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(bytes((_VERSION, _CONNECT, 0, _BY_NAME)) + _counted(host) + port.to_bytes(2, "big"))
    return await reader.readexactly(2) == bytes((_VERSION, 0))


def _counted(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data
