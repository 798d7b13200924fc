"""What is said of a store that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.store.client import Channel
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server

pytestmark = pytest.mark.server

#: As the server, the kernel or asyncio may tell it first.
CLOSED = {"Connection closed by server", "the connection was closed", "Connection reset by peer", "Broken pipe"}
COMMANDS = {"short": ("PING",), "long": ("SET", "x", b"x" * 8_000_000), "waiting": ("BLPOP", "nothing", "0")}


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_ends(make_server: Callable[..., Server], end: str, command: str) -> None:
    """A connection that its server closes, before a call, in its command or in its wait, is told as closed."""
    server = make_server()

    async def said() -> list[str]:
        channel = Channel(server.url, "the store", 2, StoreStats())
        await channel.command("PING")
        waiting = asyncio.ensure_future(channel.command(*COMMANDS[command])) if command == "waiting" else None
        await asyncio.sleep(0.05)
        # Nothing of the loop runs meanwhile, so what is sent next meets a connection that seems whole.
        getattr(server, end)()
        told = []
        for call in (waiting or channel.command(*COMMANDS[command]), channel.command("PING")):
            with pytest.raises(StoreUnavailable) as error:
                await call
            told.append(str(error.value).rpartition(": ")[2])
        await channel.close()
        return told

    closed, gone = asyncio.run(said())
    assert closed in CLOSED
    assert gone == "Connection refused"


def test_a_loss_without_a_number() -> None:
    """What asyncio tells of a lost connection has no error number; none is made up for it ("Success")."""
    error = RedisConnectionError("Error UNKNOWN while writing to socket. Connection lost.")
    error.__cause__ = ConnectionResetError("Connection lost")
    channel = Channel("redis://127.0.0.1:1", "the store", 2, StoreStats())
    assert channel._reason(error) == "the connection was closed"
