"""Nodes that do nothing but look at a pool and keep it filled, on a real store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from scrapy_lease.exceptions import LeaseError
from scrapy_lease.leases.pool.refill import Refiller, RefillOptions
from scrapy_lease.leases.pool.supply import Limit
from scrapy_lease.leases.session import Session
from scrapy_lease.providers.api import checked_api
from scrapy_lease.providers.http import HttpProvider
from scrapy_lease.providers.source import ProxySource
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.messages import GenerationChanged
from scrapy_lease.store.pool_scripts import Lease, PoolScripts, PoolStanding, Resource, Verdict
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.providers import ProviderServer
from tests.helpers.servers import Server

SPACE = Namespace("test")
POOL = SPACE.pool("proxy", "default")


class Node:
    """One session with a refiller; it beats and looks at the pool several times a second."""

    def __init__(
        self, server: Server, source: Any = None, *, stock: Sequence[Resource] = (), limits: tuple[Limit, ...] = (),
    ) -> None:  # fmt: skip
        self.channel = Channel(server.url, "the test's server", 2, StoreStats())
        self.scripts = Scripts(self.channel, SPACE.scope("shop"))
        self.pool = PoolScripts(self.channel, POOL)
        self.session = Session(node="n", ttl=5.0, config="c", fresh=True, info={"node": "n"})
        self.standing: PoolStanding | None = None
        self.counts: Counter[str] = Counter()
        options = RefillOptions("default", batch=20, floor=10, limits=limits)
        self.refiller: Refiller[Resource] = Refiller(
            options, self.pool, self.session, stock=stock, source=source, standing=lambda: self.standing,
            count=lambda name, number: self.counts.update({name: number}),
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Node:
        """Open the session and begin."""
        await self.session.open(self.scripts)
        await self.report()
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._look())]
        self.refiller.start()
        return self

    async def report(self) -> None:
        """Say that nothing is held."""
        await self.pool.report(self.session.sid, self.session.number("report"), ())

    async def take(self, want: int) -> tuple[Lease, ...]:
        """Lease what is free."""
        asks = [("", want)] if want else []
        taken = await self.pool.take(self.session.sid, self.session.number("take"), asks)
        self.standing = taken.standing
        return taken.leases

    async def drop(self, leases: Sequence[Lease]) -> None:
        """Say that leased resources are of no use to anybody any more."""
        verdicts = [Verdict(lease.id, lease.fence, "gone", ("used",)) for lease in leases]
        await self.pool.settle(self.session.sid, self.session.number("settle"), verdicts)

    async def die(self) -> None:
        """End without a word, as a killed process does."""
        for task in (*self._tasks, self.refiller._task, self.refiller._buying):
            if task is not None:
                task.cancel()
        await self.channel.close()

    async def stop(self) -> None:
        """Leave in order."""
        await self.refiller.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(LeaseError):
            await self.session.close(self.scripts)
        await self.channel.close()

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(LeaseError):
                await self.session.beat(self.scripts)
            await asyncio.sleep(0.3)

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(LeaseError):
                try:
                    await self.take(0)
                except GenerationChanged:
                    await self.refiller.again()
                    await self.report()
            await asyncio.sleep(0.1)


def source_of(provider: Any, **options: Any) -> ProxySource:
    """A source of the pool that all nodes fill."""
    return ProxySource(provider, pool="default", namespace="test", **options)


API = {"items": "data", "host": "ip", "port": "port", "expires": "ttl", "ok": ["code", 0]}

Play = Callable[[AsyncExitStack, ProviderServer], Awaitable[None]]


def run(play: Play) -> None:
    """Play with a provider."""

    async def whole() -> None:
        async with ProviderServer().running() as provider, AsyncExitStack() as stack:
            await play(stack, provider)

    asyncio.run(whole())


async def begin(stack: AsyncExitStack, node: Node) -> Node:
    """Start a node that leaves at the end."""
    stack.push_async_callback(node.stop)
    return await node.start()


def http_source(provider: ProviderServer, **options: Any) -> ProxySource:
    """The ready-made provider, told how the server answers."""
    return source_of(HttpProvider(checked_api({"url": provider.url, **API})), **options)


def free_in(server: Server) -> int:
    """How many resources of the pool are free."""
    return int(server.client().zcard(POOL.key("free")))


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until *condition* holds."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, "did not happen in time"
        await asyncio.sleep(0.02)
