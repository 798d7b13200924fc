"""The rate limits of processes, as far as they need no crawl: two of them on one server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scrapy_lease.leases.rates import Counter, Limit, RateOptions, Rates
from scrapy_lease.leases.session import Session
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.rate_scripts import RateScripts
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

HOUR = 3_600_000


class Process:
    """A session with limits of its own connection, whose requests want *wanted* permits."""

    def __init__(self, url: str, limit: tuple[int, int], **options: Any) -> None:
        space = Namespace("test")
        self.channel = Channel(url, "the test's server", 2, StoreStats())
        self.scripts = Scripts(self.channel, space.scope("shop", expected_items=100))
        self.session = Session(node="n", ttl=30, config="c", fresh=True, info={})
        self.wanted = 0
        self.is_alone = False
        self.rates = Rates(
            RateOptions(**options), RateScripts(self.channel, space), self.session, on_room=lambda: None,
            demand=lambda: dict.fromkeys(self.needs, self.wanted), is_alone=lambda: self.is_alone,
        )  # fmt: skip
        self.counter: Counter = self.rates.counter("api", "shop", Limit(*limit))
        self.needs = [self.counter]

    async def open(self) -> None:
        await self.session.open(self.scripts)
        self.rates.start()

    async def close(self) -> None:
        await self.rates.stop()
        await self.session.close(self.scripts)
        await self.channel.close()

    async def spend(self, seconds: float, most: int = 1_000_000) -> int:
        """Spend as fast as permits come; return how many."""
        ends, spent = time.monotonic() + seconds, 0
        while time.monotonic() < ends and spent < most:
            self.wanted = min(20, most - spent)
            if self.rates.may_spend((self.counter,), 1) and self.rates.spend((self.counter,), 1):
                spent += 1
            else:
                await asyncio.sleep(0.005)
        self.wanted = 0
        return spent


def run(url: str, number: int, work: Callable[..., Awaitable[Any]], limit: tuple[int, int], **options: Any) -> Any:
    async def main() -> Any:
        processes = [Process(url, limit, **options) for _ in range(number)]
        for process in processes:
            await process.open()
        try:
            return await work(*processes)
        finally:
            for process in processes:
                await process.close()

    return asyncio.run(main())


def counted(server: Server) -> int:
    client = server.client()
    return sum(int(client.hget(key, "count")) for key in client.scan_iter("*:rate:*"))


@pytest.mark.parametrize("options", [{}, {"shards": 3}, {"is_paced": True}])
def test_what_is_not_spent_comes_back(server: Server, options: dict[str, Any]) -> None:
    """When a process ends, the store counts what was spent and nothing else: the next can have the rest."""

    async def work(one: Process, two: Process) -> int:
        return sum(await asyncio.gather(one.spend(1.0, 3), two.spend(1.0, 2)))

    assert run(server.url, 2, work, (500, HOUR), **options) == 5
    assert counted(server) == 5


def test_idle_permits_come_back_while_a_process_lives(server: Server) -> None:
    """What was asked for and is not wanted any more is others' within some seconds."""

    async def work(one: Process, two: Process) -> int:
        one.wanted = 100
        one.rates.miss()
        await asyncio.sleep(0.5)
        one.wanted = 0
        first = await two.spend(0.5)
        await asyncio.sleep(2.5)
        return first + await two.spend(8.0, 60)

    assert run(server.url, 2, work, (100, HOUR)) >= 60


def test_a_lost_reply_wastes_permits_and_grants_none_twice(server: Server) -> None:
    """Replies are swallowed on the way: what is spent stays within the limit, and goes on."""

    async def work(one: Process) -> int:
        swallowed = relay.swallow(2, b"EVALSHA")
        spent = await one.spend(4.0)
        assert swallowed.is_done
        return spent

    with Relay(server.url) as relay:
        spent = run(relay.url, 1, work, (30, 60_000))
    assert 0 < spent <= 30


def test_alone_a_process_keeps_to_its_part(server: Server) -> None:
    """While the store is away and the crawl goes on, each window gives the limit ÷ sessions, by this host's clock."""

    async def work(one: Process) -> int:
        one.session.live = 5
        relay.cut()
        one.is_alone = True
        spent = await one.spend(1.9)
        one.is_alone = False
        relay.restore()
        await asyncio.sleep(0.2)
        assert one.counter.purse.of_shard(-1) == 0
        return spent

    with Relay(server.url) as relay:
        assert run(relay.url, 1, work, (50, 1000)) in (20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30)


def test_a_lost_session_keeps_what_it_had(server: Server) -> None:
    """Another session of the process goes on with the permits of the one before, which are counted once."""

    async def work(one: Process) -> int:
        spent = await one.spend(0.5, 10)
        await one.scripts.close(one.session.sid)
        one.session.lose()
        await one.session.open(one.scripts)
        return spent + await one.spend(1.5)

    assert run(server.url, 1, work, (30, HOUR)) == 30
    assert counted(server) == 30


def test_scripts_that_were_flushed_are_loaded_again(server: Server) -> None:
    """SCRIPT FLUSH in the middle: nothing is charged twice, and nothing stops."""

    async def work(one: Process) -> int:
        spent = await one.spend(0.5, 10)
        server.client().script_flush()
        return spent + await one.spend(1.0)

    assert run(server.url, 1, work, (40, HOUR)) == 40
    assert counted(server) == 40


def test_a_host_whose_clock_is_days_off_counts_in_the_servers_day(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told the server's clock, and sends other midnights; both hosts share one window."""
    true = time.time

    async def work(one: Process, two: Process) -> int:
        spent = await one.spend(1.0)
        monkeypatch.setattr(time, "time", lambda: true() + 10 * 86400)
        return spent + await two.spend(1.0)

    assert run(server.url, 2, work, (30, 86_400_000), timezone="Pacific/Auckland") == 30


def test_an_error_of_the_server_is_no_grant(server: Server) -> None:
    """A counter that is no counter gives nothing; nothing else stops for it, and mended it gives again."""
    client = server.client()

    async def work(one: Process) -> int:
        key = RateScripts(one.channel, Namespace("test"))._space.rate(one.counter.name.label)
        client.set(key, "none")
        assert await one.spend(0.5) == 0
        client.delete(key)
        return await one.spend(2.0)

    assert run(server.url, 1, work, (30, HOUR)) == 30


@pytest.mark.parametrize("others", [[], [(100_000, 60_000), (1_000_000, HOUR)], [(10_000, 1000), (10_000, 1000)]])
def test_few_calls_carry_many_permits(server: Server, others: list[tuple[int, int]]) -> None:
    """At 100 permits a second: a call for 25 requests at most, in three dimensions as in one."""

    async def work(one: Process) -> float:
        one.needs += [one.rates.counter(f"rule{number}", "shop", Limit(*limit)) for number, limit in enumerate(others)]
        before, began, spent = one.channel.stats.roundtrips, time.monotonic(), 0
        while (passed := time.monotonic() - began) < 4:
            one.wanted = 1
            if spent < 100 * passed and one.rates.may_spend(one.needs, 1) and one.rates.spend(one.needs, 1):
                spent += 1
            await asyncio.sleep(0.002)
        assert spent > 200
        return (one.channel.stats.roundtrips - before) / spent

    assert run(server.url, 1, work, (10_000, 1000)) < 0.04
