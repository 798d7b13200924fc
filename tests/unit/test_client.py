"""The connection: what it learns of a server, what it says of failures, and that it never sends anything twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from hashlib import sha1
from importlib.resources import files
from typing import Any, TypeVar

import pytest

from scrapy_lease.exceptions import StoreRefused, StoreUnavailable
from scrapy_lease.store.calls import Call, Script
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.server import Availability, ServerInfo, StoreStats
from tests.helpers.resp import Frames
from tests.helpers.servers import Server, reserve_port

T = TypeVar("T")
SPACE = Namespace("ns")
TICK = Call("tick", [SPACE.clock], [])
NAMES = sorted(path.name.removesuffix(".lua") for path in (files("scrapy_lease.store") / "lua").iterdir())


def over(channel: Channel, talk: Coroutine[Any, Any, T]) -> T:
    """Run *talk* on a loop of its own and close the channel."""

    async def run() -> T:
        try:
            return await talk
        finally:
            await channel.close()

    return asyncio.run(run())


def channel_to(server: Server, **options: Any) -> Channel:
    return Channel(server.url, "redis://shown", options.pop("timeout", 10.0), StoreStats(), **options)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("_")])
@pytest.mark.parametrize("shebang", [True, False])
def test_a_script_is_known_by_the_hash_of_what_is_loaded(server: Server, name: str, shebang: bool) -> None:
    """The server computes the same SHA-1, so EVALSHA finds the script; each begins with the shared prelude."""
    script = Script.load(name, shebang=shebang)
    assert script.sha == sha1(script.source, usedforsecurity=False).hexdigest()
    assert b"local function advance" in script.source
    assert server.client().script_load(script.source) in (script.sha, script.sha.encode())


def test_scripts_that_free_memory_may_run_without_it() -> None:
    """From Redis 7 on they carry the flag that says so; older servers know no flags."""
    assert Script.load("settle", shebang=True).source.startswith(b"#!lua flags=allow-oom\n")
    assert not Script.load("settle", shebang=False).source.startswith(b"#!")
    assert not Script.load("push", shebang=True).source.startswith(b"#!")


@pytest.mark.parametrize(
    ("info", "fault"),
    [
        ("redis_version:7.2.4\r\nrun_id:a\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru", ""),
        ("redis_version:6.2.0\r\nrun_id:a\r\nmaxmemory:100\r\nmaxmemory_policy:noeviction", ""),
        ("redis_version:6.0.16\r\nrun_id:a\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction", "6.2 or later"),
        ("redis_version:8.0.0\r\nrun_id:a\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru", "set maxmemory-policy"),
        ("redis_version:8.0.0\r\nrun_id:a\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-ttl", "set maxmemory-policy"),
    ],
)
def test_a_server_on_which_leases_are_not_safe_is_refused(info: str, fault: str) -> None:
    """Too old, or free to evict leases: the error names the URL as shown and what to do."""
    server = ServerInfo.parse(info)
    assert server.run_id == "a"
    if not fault:
        server.check("redis://shown")
        return
    with pytest.raises(StoreRefused, match=fault) as refused:
        server.check("redis://shown")
    assert "redis://shown" in str(refused.value)


def test_an_outage_is_told_once_each_way(caplog: pytest.LogCaptureFixture) -> None:
    """However many calls fail, one line says that the store went and one that it is back; its seconds are counted."""
    changes: list[bool] = []
    stats = StoreStats()
    availability = Availability("redis://shown", stats, changes.append)
    with caplog.at_level(logging.INFO, "scrapy_lease.store.server"):
        availability.up()
        for _ in range(3):
            availability.down("gone")
        availability.up()
        availability.up()
    assert changes == [False, True]
    assert len(caplog.records) == 2
    assert stats.errors == 3
    assert stats.down_seconds > 0


def test_calls_of_one_turn_are_one_pipeline(server: Server) -> None:
    """What is called together leaves together: one round trip, replies in order."""
    channel = channel_to(server)

    async def talk() -> list[Any]:
        await channel.call(TICK)
        before = channel.stats.roundtrips
        replies = await asyncio.gather(*(channel.call(TICK) for _ in range(20)))
        assert channel.stats.roundtrips == before + 1
        return replies

    replies = over(channel, talk())
    assert replies == sorted(replies)


def test_a_server_that_lost_its_scripts_gets_them_again(server: Server) -> None:
    """NOSCRIPT is answered with the script and one repeat, of the calls that did not run and of no other."""
    channel = channel_to(server)

    async def talk() -> Any:
        await channel.call(TICK)
        server.client().script_flush()
        return await channel.call(TICK)

    assert len(over(channel, talk())) == 2


def test_a_server_that_is_not_there_is_unavailable() -> None:
    """No connection is StoreUnavailable, soon, naming the store as shown and not its password."""
    port, holder = reserve_port()
    channel = Channel(f"redis://:secret@127.0.0.1:{port}", "redis://shown", 5.0, StoreStats())
    with holder, pytest.raises(StoreUnavailable, match="redis://shown") as unavailable:
        over(channel, channel.call(TICK))
    assert "secret" not in str(unavailable.value)


def test_a_frozen_server_costs_the_timeout_and_no_second_call(own_server: Server) -> None:
    """A call without an answer fails within the timeout and is not sent again: a thawed server runs it once."""
    channel = channel_to(own_server, timeout=0.5)
    client = own_server.client()

    def ran() -> int:
        stats = client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))

    async def talk() -> None:
        await channel.call(TICK)
        own_server.pause()
        try:
            with pytest.raises(StoreUnavailable, match=r"0\.5 s"):
                await channel.call(TICK)
        finally:
            own_server.resume()

    client.ping()
    over(channel, talk())
    # One that was refused for want of the script, one after it was loaded, one that had no answer.
    assert ran() <= 3


def test_a_server_that_loads_its_data_is_not_back() -> None:
    """It answers INFO, and every call with an error: the store is back when a call succeeds, not before."""
    info = b"redis_version:7.0.15\r\nrun_id:" + b"0" * 40
    changes: list[bool] = []
    conversations: list[asyncio.Task[Any]] = []
    stats = StoreStats()

    async def loads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames, task = Frames(), asyncio.current_task()
        assert task is not None
        conversations.append(task)
        while data := await reader.read(1 << 16):
            for frame in frames.feed(data):
                is_info = frame.split(b"\r\n")[2].upper() == b"INFO"
                bulk = b"$%d\r\n%s\r\n" % (len(info), info)
                writer.write(bulk if is_info else b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()
        await writer.wait_closed()

    async def run() -> None:
        async with await asyncio.start_server(loads, "127.0.0.1", 0) as server:
            url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            channel = Channel(url, url, 5.0, stats, availability=Availability(url, stats, changes.append))
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="loading"):
                    await channel.call(TICK)
            await channel.close()
            await asyncio.gather(*conversations)

    asyncio.run(run())
    assert changes == [False]


def test_a_wrong_password_is_refused_for_good(make_server: Any) -> None:
    """Waiting does not help against a wrong password: StoreRefused, without the password in it."""
    server = make_server(config={"requirepass": "right"})
    channel = Channel(f"redis://:wrong@127.0.0.1:{server.port}", "redis://shown", 5.0, StoreStats())
    with pytest.raises(StoreRefused, match="LEASE_REDIS_URL") as refused:
        over(channel, channel.call(TICK))
    assert "wrong" not in str(refused.value).replace("WRONGPASS", "")


def test_a_restarted_server_is_known_by_another_run_id(own_server: Server) -> None:
    """Each new connection learns which process it talks to, before any script runs under its name."""
    channel = channel_to(own_server)

    async def talk() -> tuple[str, str]:
        await channel.call(TICK)
        assert channel.server is not None
        first = channel.server.run_id
        own_server.restart()
        with pytest.raises(StoreUnavailable):
            await channel.call(TICK)
        await channel.call(TICK)
        return first, channel.server.run_id

    first, second = over(channel, talk())
    assert first != second


def test_a_closed_channel_answers_nobody(server: Server) -> None:
    """Calls under way and later ones end with StoreUnavailable: nobody waits for ever."""
    channel = channel_to(server)

    async def talk() -> list[Any]:
        under_way = asyncio.ensure_future(channel.call(TICK))
        await asyncio.sleep(0)
        await channel.close()
        return await asyncio.gather(under_way, channel.call(TICK), return_exceptions=True)

    assert [type(reply) for reply in over(channel, talk())] == [StoreUnavailable, StoreUnavailable]
