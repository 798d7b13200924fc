"""Keeping a pool filled: several sessions, a provider that does all that providers do, a real store."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.leases.pool import purchase, refill
from scrapy_lease.providers.api import checked_api
from scrapy_lease.providers.base import Proxy
from scrapy_lease.providers.limits import checked_buy_limit
from scrapy_lease.providers.source import ProxySource
from scrapy_lease.providers.supplies import supply_of
from tests.helpers.providers import ProviderServer
from tests.helpers.refill import API, POOL, Node, begin, free_in, http_source, run, source_of, until
from tests.helpers.servers import Server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns and pauses take less time than they do for users."""
    monkeypatch.setattr(refill, "TURN", 0.1)
    monkeypatch.setattr(refill, "BACKOFF", (100, 400))


def count_calls(nodes: list[Node]) -> Counter[str]:
    """Count from now on what the refillers of *nodes* say to the store."""
    calls: Counter[str] = Counter()
    for node in nodes:
        original = node.pool.refill

        async def counting(sid: str, n: int, state: str, *args: Any, original: Any = original, **details: Any) -> Any:
            calls[state] += 1
            return await original(sid, n, state, *args, **details)

        node.pool.refill = counting  # type: ignore[method-assign]
    return calls


def test_a_store_that_refuses(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """What the store will never do is told once, and tried again."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        node, tries = Node(server, http_source(provider)), 0

        async def refused(*args: Any, **details: Any) -> Any:
            nonlocal tries
            tries += 1
            raise StoreRefused("the store refused pool_refill: no permission")

        node.pool.refill = refused  # type: ignore[method-assign]
        await begin(stack, node)
        await until(lambda: tries > 3)

    run(play)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "Pool default: its refill cannot go on as it is: the store refused pool_refill: no permission"
    ]


# Who buys, and how much


def test_three_sessions_one_buyer(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Three sessions that find a pool low buy one batch, one call at a time; progress is told once by its buyer."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        provider.delay = 0.4
        nodes = [await begin(stack, Node(server, http_source(provider))) for _ in range(3)]
        await until(lambda: free_in(server) >= 10)
        calls = count_calls(nodes)
        await asyncio.sleep(0.5)
        assert provider.asked == [20]
        # Who has bought gives the duty back; nobody asks while nothing is low.
        assert calls <= Counter({"done": 1, "ask": 3})
        await asyncio.sleep(0.5)
        assert sum(calls.values()) <= 4
        assert sum(node.counts["refilled"] for node in nodes) == 20

    with caplog.at_level(logging.INFO, refill.logger.name):
        run(play)
    assert caplog.text.count("is being refilled: 20 new proxies") == 1


def test_limits_hold_over_all(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """However much three sessions use up, no window of the server's clock sees more bought than the limit."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        limits = checked_buy_limit(["30/second", "1000/day"])
        nodes = [await begin(stack, Node(server, http_source(provider), limits=limits)) for _ in range(3)]
        began = time.time()
        counter, seen = POOL.counter(1000, False), {}
        while time.time() < began + 4:
            for node in nodes:
                await node.drop(await node.take(15))
            window, count = server.client().hmget(counter, "window", "count")
            seen[window] = max(seen.get(window, 0), int(count or 0))
            await asyncio.sleep(0.05)
        assert max(seen.values()) == 30
        assert 60 < provider.sold <= 30 * (int(time.time()) - int(began) + 1)

    run(play)
    assert "the buy limit of 30/second is reached over all hosts" in caplog.text


def test_a_buyer_that_dies(server: Server) -> None:
    """Between grant and registering a buyer dies: another buys within seconds, and what the dead one may have bought
    counts.
    """

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        provider.delay, limits = 30, checked_buy_limit("50/day")
        first = await Node(server, http_source(provider), limits=limits).start()
        await until(lambda: provider.asked)
        others = [await begin(stack, Node(server, http_source(provider), limits=limits)) for _ in range(2)]
        await asyncio.sleep(1)
        assert provider.asked == [20]
        await first.die()
        died, provider.delay = time.monotonic(), 0
        await until(lambda: free_in(server) == 20)
        assert time.monotonic() - died < 6
        await others[0].drop(await others[0].take(20))
        await until(lambda: provider.asked == [20, 20, 10])
        await until(lambda: free_in(server) == 10)
        await others[0].drop(await others[0].take(10))
        await asyncio.sleep(0.5)
        assert provider.asked == [20, 20, 10]

    run(play)


def test_limits_hold_whoever_dies(server: Server) -> None:
    """Buyers that die at any moment, one after the other, never make more bought in a window than the limit, and the
    pool is filled all the same.
    """
    limits, chance = checked_buy_limit("30/second"), random.Random(7)

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        provider.delay = 0.15
        user = await begin(stack, Node(server))
        nodes = [await Node(server, http_source(provider), limits=limits).start() for _ in range(4)]
        began, counts = time.time(), []
        while time.time() < began + 9:
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            await user.drop(await user.take(20))
            counts.append(int(server.client().hget(POOL.counter(1000, False), "count") or 0))
            await nodes.pop(chance.randrange(4)).die()
            nodes.append(await Node(server, http_source(provider), limits=limits).start())
        assert max(counts) <= 30
        assert 60 <= provider.sold <= 30 * (int(time.time()) - int(began) + 1)
        await asyncio.gather(*(node.die() for node in nodes))

    run(play)


def test_who_leaves_gives_the_duty_back(server: Server) -> None:
    """A session that closes in the middle of a purchase ends it, and another buys at once."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        provider.delay = 30
        first = await Node(server, http_source(provider)).start()
        await until(lambda: provider.asked)
        await first.stop()
        provider.delay = 0
        left = time.monotonic()
        await begin(stack, Node(server, http_source(provider)))
        await until(lambda: free_in(server) == 20)
        assert time.monotonic() - left < 2

    run(play)


def test_what_has_arrived_is_kept(server: Server) -> None:
    """What was bought when a session leaves is registered before it goes."""

    class Slow:
        target = most = 0

        def __init__(self, source: ProxySource) -> None:
            self.fetch = source.fetch
            self.has_fetched = False

        async def checked(self, resources: Any) -> Any:
            self.has_fetched = True
            await asyncio.sleep(0.5)
            yield resources

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        source = Slow(http_source(provider))
        node = await Node(server, source).start()
        await until(lambda: source.has_fetched)
        await node.stop()
        assert free_in(server) == 20

    run(play)


def test_calls_are_limited_over_all(server: Server) -> None:
    """A provider that may be called so often is called no more often, whoever has the duty."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        api = checked_api({"url": provider.url, "max_count": 2, "calls": "3/day", **API})
        for _ in range(3):
            supply = supply_of(pool="default", namespace="test", api=api)
            await begin(stack, Node(server, supply.source, limits=supply.limits))
        await until(lambda: free_in(server) == 6)
        await asyncio.sleep(0.5)
        assert provider.asked == [2, 2, 2]

    run(play)


# What goes wrong


def test_nothing_ends_the_refill(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Each way to fail is told once, without secrets, with a growing pause before the next call; the refill goes on."""
    bad: list[Callable[[int], Any]] = [
        lambda _: web.Response(status=502),
        lambda _: {"code": 7, "msg": "no key k3y-s3cr3t"},
        lambda _: "<html>k3y-s3cr3t",
        lambda _: {"code": 0, "data": []},
        lambda _: {"code": 0, "data": [{"ip": "k3y-s3cr3t !", "port": 1}]},
        lambda _: {"code": 0, "data": [{"ip": "10.9.9.9", "port": 1, "ttl": 0}]},
    ]
    turns: Iterator[Callable[[int], Any]] = iter([*bad, *bad])

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        good = provider.answer
        provider.answer = lambda count: next(turns, good)(count)
        await begin(stack, Node(server, http_source(provider)))
        await until(lambda: free_in(server) == 20)
        assert provider.asked == [20] * 13

    began = time.monotonic()
    run(play)
    assert time.monotonic() - began > 2.5
    assert "k3y-s3cr3t" not in caplog.text
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == len(set(told))
    for text in ("status 502", "instead of 0: no key ***", "is no JSON", ": it delivered nothing", "nothing was new",
                 "expired already", "no host name"):  # fmt: skip
        assert sum(text in line for line in told) == 1, text


def test_a_provider_that_never_answers(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that raises, or hangs and will not be cancelled, is left behind; its words are not told."""
    monkeypatch.setattr(purchase, "FETCH_TIMEOUT", 0.3)
    calls = 0

    class Stubborn:
        async def fetch(self, count: int) -> list[Proxy]:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise KeyError("s3cr3t")
            if calls == 2:
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(60)
                await asyncio.sleep(1)
            if calls == 3:
                raise asyncio.CancelledError
            return [Proxy(f"http://h:{number + 1}") for number in range(count)]

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        node = await begin(stack, Node(server, source_of(Stubborn()), limits=checked_buy_limit("70/day")))
        await until(lambda: node.counts["refilled"] == 10)
        assert (calls, free_in(server)) == (4, 10)

    run(play)
    assert "it raised KeyError in test_refill.py" in caplog.text
    assert "no answer within 0.3 s" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_a_leased_one_that_is_sold_again(server: Server) -> None:
    """A provider that gives the same again changes no lease: its holder and fence stay, and the pool is no larger."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        same = provider.proxies(3)
        provider.answer = lambda count: {"code": 0, "data": same}
        node = await begin(stack, Node(server, http_source(provider)))
        await until(lambda: free_in(server) == 3)
        (lease,) = await node.take(1)
        record = server.client().hget(POOL.key("leases"), lease.id)
        calls = len(provider.asked)
        await until(lambda: len(provider.asked) > calls + 1)
        assert server.client().hget(POOL.key("leases"), lease.id) == record
        assert server.client().hlen(POOL.key("resources")) == 3

    run(play)


def test_a_store_that_goes_and_comes(own_server: Server) -> None:
    """When the store is back, what it lost of the last seconds is registered again, and the refill goes on."""

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        node = await begin(stack, Node(own_server, http_source(provider)))
        await until(lambda: free_in(own_server) == 20)
        client = own_server.client()
        before = set(client.hkeys(POOL.key("resources")))
        parts = [POOL.key(part) for part in ("resources", "free", "expiries")]
        client.delete(*parts)
        own_server.restart()
        client = own_server.client()
        await until(lambda: before <= set(client.hkeys(POOL.key("resources"))))
        own_server.stop()
        await asyncio.sleep(0.5)
        asked = len(provider.asked)
        own_server.start()
        client = own_server.client()
        await until(lambda: node.session.is_confirmed and node.session.generation == 3)
        # What was registered within the last seconds comes again now; it goes until something else must be bought.
        await until(lambda: client.delete(*parts) >= 0 and len(provider.asked) > asked)

    run(play)
