"""Several sessions in one process that share a pool on a real server, each with its heartbeat."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.leases.pool import OK, NoResource, Pool, PoolOptions, Use
from scrapy_lease.leases.session import Session, boot_time
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace, PoolKeys
from scrapy_lease.store.pool_scripts import PoolScripts, Resource
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server

SITE = "shop.example"
SCOPE = Namespace("test").scope("shop", expected_items=1000)
#: Seconds within which what is due at once has happened, on a busy machine.
SOON = 5.0


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine function, bounded in time."""
    asyncio.run(asyncio.wait_for(work(), 60))


async def until(condition: Callable[[], Any], seconds: float = SOON) -> None:
    """Wait until *condition* is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


class Node:
    """One session and its pool.

    :param url: of the server, or of a relay in front of it.
    :param clock: of the session, in s.
    :param kind: of the pool.
    """

    def __init__(
        self, url: str, name: str, *, ttl: float = 5.0, clock: Callable[[], float] = boot_time, kind: str = "proxy",
        **options: Any,
    ) -> None:  # fmt: skip
        self.name = name
        self.stats = StoreStats()
        self.counts: Counter[str] = Counter()
        self.demand: dict[str, int] = {}
        self.rooms = 0
        self.served = 0
        self.session = Session(node=name, ttl=ttl, config="c", fresh=True, info={"node": name}, clock=clock)
        self._channels = [Channel(url, "the test's server", 2, stats) for stats in (self.stats, StoreStats())]
        self._scripts = Scripts(self._channels[1], SCOPE)
        self.store = PoolScripts(self._channels[0], keys(kind))
        self.pool = Pool(
            PoolOptions("default", **options), self.store, self.session, count=self._count,
            demand=lambda: self.demand, on_room=self._on_room,
        )  # fmt: skip
        self.is_silent = False
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> Node:
        """Open the session; begin to beat and to make turns."""
        await self.session.open(self._scripts)
        self.pool.start()
        self._beating = asyncio.ensure_future(self._beat())
        return self

    async def close(self) -> None:
        """Stop the pool, end the session."""
        await self.pool.stop()
        assert self._beating is not None
        self._beating.cancel()
        with suppress(StoreUnavailable):
            await self.session.close(self._scripts)
        for channel in self._channels:
            await channel.close()

    async def reopen(self) -> None:
        """Open another session after a loss."""
        while self.session.is_lost:
            with suppress(StoreUnavailable):
                await self.session.open(self._scripts)
        self.pool.regained()

    async def work(self, seconds: float, request: float = 0.05) -> None:
        """Make requests of *request* s, one after the other, for so many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with suppress(NoResource):
                use = await self.pool.take(SITE, timeout=left)
                await asyncio.sleep(request)
                self.served += 1
                self.pool.end(use, OK)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.session.ttl / 3)
            if not self.is_silent:
                with suppress(StoreUnavailable):
                    self.pool.beaten(await self.session.beat(self._scripts))

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def _on_room(self) -> None:
        self.rooms += 1


def keys(kind: str = "proxy") -> PoolKeys:
    """The keys of the pool under test."""
    return Namespace("test").pool(kind, "default")


class Crew:
    """Nodes, and the pool as the store has it."""

    def __init__(self, server: Server, kind: str = "proxy") -> None:
        self.client = server.client()
        self.kind = kind
        self.nodes: list[Node] = []
        self._url = server.url
        self._channel = Channel(server.url, "the test's server", 10, StoreStats())
        self.outside = PoolScripts(self._channel, keys(kind))

    async def node(self, name: str = "a", *, url: str = "", **options: Any) -> Node:
        """Start a node."""
        node = Node(url or self._url, name, kind=self.kind, **options)
        self.nodes.append(node)
        return await node.open()

    async def add(self, *names: object, life: float = 0, exit: str = "") -> None:
        """Register resources; *life* in s, 0: for ever."""
        expiry = int((time.time() + life) * 1000) if life else 0
        await self.outside.register("", 0, [Resource(str(name), b"body", expiry, exit) for name in names])

    def holders(self) -> dict[str, str]:
        """Resource -> session, as the store has it."""
        leases = self.client.hgetall(keys().key("leases"))
        return {name.decode(): lease[29:].decode() for name, lease in leases.items()}

    def free(self) -> set[str]:
        """What is free, or free but for some sites."""
        return {name.decode() for part in ("free", "spotted") for name in self.client.zrange(keys().key(part), 0, -1)}

    def parts(self, part: str) -> int:
        """The size of one of the pool's keys."""
        key = keys().key(part)
        return self.client.hlen(key) if part in ("resources", "sites") else self.client.zcard(key)

    async def close(self) -> None:
        """Close what is left."""
        for node in self.nodes:
            await node.close()
        await self._channel.close()


@asynccontextmanager
async def crew_on(server: Server, *names: object, kind: str = "proxy") -> AsyncIterator[Crew]:
    """A crew and a pool of these resources."""
    crew = Crew(server, kind)
    try:
        await crew.add(*names)
        yield crew
    finally:
        await crew.close()


async def gather(*work: Awaitable[Any]) -> list[Any]:
    """Await several at once."""
    return list(await asyncio.gather(*work))


async def uses_of(node: Node, number: int, **options: Any) -> list[Use]:
    """Take so many leases at once."""
    return await gather(*(node.pool.take(SITE, timeout=SOON, **options) for _ in range(number)))
