"""Accounts as several sessions of one pool use them, on a real server and without a crawl."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from scrapy_lease.exceptions import NoResource
from scrapy_lease.leases.pool import OK, AccountOptions, Judgement
from scrapy_lease.leases.pool.calendar import Calendar
from scrapy_lease.leases.pool.refill import Refiller, RefillOptions
from scrapy_lease.leases.pool.supply import Delivery
from scrapy_lease.store.pool_scripts import Resource
from tests.helpers.servers import Server
from tests.integration.pool_crew import SITE, SOON, Crew, Node, crew_on, gather, keys, run, until


def rules(**options: Any) -> dict[str, Any]:
    """Options of a node: those of accounts, and of pools."""
    of_pool = {name: options.pop(name) for name in ("concurrency", "keep", "wait") if name in options}
    return {"account": AccountOptions(**options), **of_pool}


async def use(node: Node, judgement: Judgement = OK, seconds: float = 0.0, **options: Any) -> str:
    """Send one request; returns the account."""
    taken = await node.pool.take(SITE, timeout=SOON, **options)
    assert taken.may_send
    taken.sent()
    await asyncio.sleep(seconds)
    node.pool.end(taken, judgement)
    return taken.lease.id


def places(crew: Crew) -> dict[str, int]:
    """How many accounts are where."""
    key = keys("account").key
    sets = {name: crew.client.zcard(key(name)) for name in ("free", "resting", "bench", "spent")}
    found = {**sets, "cold": crew.client.llen(key("cold")), "leased": crew.client.hlen(key("leases"))}
    return {name: count for name, count in found.items() if count}


def test_no_account_in_two_sessions_at_once(server: Server) -> None:
    """Three sessions that want all they can get share six accounts, use them alike, and never one together."""

    async def work() -> None:
        async with crew_on(server, *range(6), kind="account") as crew:
            nodes = [await crew.node(name, **rules()) for name in "abc"]
            used: Counter[str] = Counter()
            holders: dict[str, str] = {}
            # Who came first has given the others their share by then.
            begin = time.monotonic() + 3.5
            end = begin + 2

            async def worker(node: Node) -> None:
                while time.monotonic() < end:
                    taken = await node.pool.take(SITE, timeout=SOON)
                    id_ = taken.lease.id
                    assert holders.setdefault(id_, node.name) == node.name, "two have it"
                    used[id_] += time.monotonic() > begin
                    await asyncio.sleep(0.02)
                    del holders[id_]
                    node.pool.end(taken, OK)

            await gather(*(worker(node) for node in nodes for _ in range(4)))
            assert len(used) == 6
            assert min(used.values()) >= 0.9 * max(used.values())

    run(work)


def test_what_is_given_up_does_not_lie_idle(server: Server) -> None:
    """Who comes later has its share soon, and none of that was idle for long on its way."""

    async def work() -> None:
        async with crew_on(server, *range(6), kind="account") as crew:
            first = await crew.node("a", **rules())
            end = time.monotonic() + 4
            used: dict[str, tuple[str, float]] = {}
            idle: dict[str, float] = {}

            async def worker(node: Node) -> None:
                while time.monotonic() < end:
                    taken = await node.pool.take(SITE, timeout=SOON)
                    last, at = used.get(taken.lease.id, (node.name, 0.0))
                    if last != node.name:
                        idle[taken.lease.id] = time.monotonic() - at
                    await asyncio.sleep(0.03)
                    used[taken.lease.id] = node.name, time.monotonic()
                    node.pool.end(taken, OK)

            workers = [asyncio.ensure_future(worker(first)) for _ in range(8)]
            await until(lambda: len(used) == 6)
            later = await crew.node("b", **rules())
            await gather(*workers, *(worker(later) for _ in range(8)))
            assert len(idle) == 3
            assert max(idle.values()) < 0.3, idle

    run(work)


def test_a_quota_of_three_is_three_uses_of_ten_nodes(server: Server) -> None:
    """Exactly: check and take are one step, and what a session does not use others do."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            nodes = [await crew.node(f"n{number}", **rules(quota=3)) for number in range(10)]
            used: list[str] = []

            async def worker(node: Node) -> None:
                while True:
                    try:
                        taken = await node.pool.take(SITE, timeout=6)
                    except NoResource:
                        return
                    taken.sent()
                    used.append(node.name)
                    node.pool.end(taken, OK)

            await gather(*map(worker, nodes))
            assert len(used) == 3
            assert places(crew) == {"spent": 1}

    run(work)


def test_an_empty_pool_is_waited_for_as_long_as_said(server: Server) -> None:
    """Not for ever: who waits is told, and that nothing is of use."""

    async def work() -> None:
        async with crew_on(server, kind="account") as crew:
            node = await crew.node(**rules(wait=1.0))
            begin = time.monotonic()
            with pytest.raises(NoResource) as error:
                await node.pool.take(SITE)
            assert 1.0 <= time.monotonic() - begin < 3
            assert error.value.reason == "empty"

    run(work)


def test_an_interval_holds_over_all_sessions(server: Server) -> None:
    """Between any two uses of one account, whoever makes them."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            nodes = [await crew.node(name, **rules(interval=0.3, keep=0.1)) for name in "ab"]
            times: list[float] = []

            async def worker(node: Node) -> None:
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    taken = await node.pool.take(SITE, timeout=SOON)
                    await asyncio.sleep(0.05)
                    times.append(time.monotonic())
                    taken.sent()
                    node.pool.end(taken, OK)

            await gather(*map(worker, nodes))
            assert min(later - earlier for earlier, later in pairwise(times)) >= 0.3
            assert len(times) >= 8

    run(work)


def test_sessions_that_share_an_account_keep_its_interval(server: Server) -> None:
    """A key that any number may use: three sessions together wait between uses, and none starves."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            nodes = [await crew.node(name, **rules(interval=0.2, holders=0)) for name in "abc"]
            times: list[float] = []
            used: Counter[str] = Counter()

            async def worker(node: Node) -> None:
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    taken = await node.pool.take(SITE, timeout=SOON)
                    taken.sent()
                    times.append(time.monotonic())
                    used[node.name] += 1
                    node.pool.end(taken, OK)

            await gather(*map(worker, nodes))
            # An answer of the store may be a moment under way.
            assert min(later - earlier for earlier, later in pairwise(times)) >= 0.19
            assert len(times) >= 12
            assert min(used.values()) >= 3

    run(work)


def test_a_quota_is_used_without_a_pause(server: Server) -> None:
    """Permits are asked for before they are used up; what is left goes back with the lease."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            node = await crew.node(**rules(quota=1000))
            begin = time.monotonic()
            for _ in range(200):
                await use(node, seconds=0.002)
            assert time.monotonic() - begin < 3
            await node.close()
            crew.nodes.clear()
            other = await crew.node("b", **rules(quota=1000))
            taken = await other.pool.take(SITE)
            assert taken.lease.purse is not None
            assert taken.lease.purse.used == 210

    run(work)


def test_what_is_not_sent_costs_nothing(server: Server) -> None:
    """A use that ends unsent has its permit back: so does a login that goes before it."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            node = await crew.node(**rules(quota=2))
            for _ in range(5):
                node.pool.end(await node.pool.take(SITE, timeout=SOON), Judgement("unused"))
            assert [await use(node) for _ in range(2)] == ["x", "x"]
            with pytest.raises(NoResource):
                await node.pool.take(SITE, timeout=1)

    run(work)


def test_a_node_that_dies_leaves_its_accounts(server: Server) -> None:
    """They serve others within the time to live, and not before; permits that it had are spent."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            dead = await crew.node("a", ttl=2.0, **rules(quota=15))
            await use(dead)
            dead.is_silent = True
            alive = await crew.node("b", ttl=2.0, **rules(quota=15))
            begin = time.monotonic()
            await dead.pool._turns.stop()
            taken = await alive.pool.take(SITE, timeout=10)
            assert 0.5 < time.monotonic() - begin < 8
            assert taken.lease.purse is not None
            assert taken.lease.purse.places == 15 - 10 - 1

    run(work)


def test_the_hours_end_a_lease(server: Server) -> None:
    """Outside of the hours nothing begins, and the pool is of no use; who waits for quotas waits for them too."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            now = time.gmtime()
            closed = f"{(now.tm_hour + 2) % 24}-{(now.tm_hour + 3) % 24}"
            node = await crew.node(**rules(hours=closed))
            patient = await crew.node("b", **rules(hours=closed, waits_for_quota=True))
            for each in (node, patient):
                with pytest.raises(NoResource):
                    await each.pool.take(SITE, timeout=1)
            assert (node.pool.is_usable, patient.pool.is_usable) == (False, True)
            assert places(crew) == {"cold": 1}
            here = await crew.node("c", **rules(hours="0-24"))
            assert await use(here) == "x"

    run(work)


def test_spent_quotas_are_no_use_unless_they_are_waited_for(server: Server) -> None:
    """A pool whose accounts have all used up their quota is empty, but for who waits for the next day."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            node = await crew.node(**rules(quota=1))
            patient = await crew.node("b", **rules(quota=1, waits_for_quota=True))
            await use(node)
            for each in (node, patient):
                with pytest.raises(NoResource):
                    await each.pool.take(SITE, timeout=1.5)
            await until(lambda: not node.pool.is_usable)
            assert patient.pool.is_usable

    run(work)


def test_twenty_bad_uses_demote_an_account_and_nineteen_do_not(server: Server) -> None:
    """The store adds up what two holders saw of one account."""

    async def work() -> None:
        async with crew_on(server, *"xyz", kind="account") as crew:
            node = await crew.node(**rules())
            id_ = await use(node)
            for number in range(18):
                # Of one URL: a refusal of the next would bench it.
                assert await use(node, Judgement("ban", "u") if number % 3 else OK, keep=id_) == id_
            await asyncio.sleep(0.5)
            assert node.counts["demoted"] == 0
            await use(node, Judgement("ban", "u"), keep=id_)
            await until(lambda: node.counts["demoted"] == 1)
            await until(lambda: places(crew).get("bench") == 1)
            assert await use(node) != id_

    run(work)


def test_a_request_keeps_its_account_while_it_is_here(server: Server) -> None:
    """Other accounts are free, and it waits for its own; when that is gone, any will do."""

    async def work() -> None:
        async with crew_on(server, *"xy", kind="account") as crew:
            node = await crew.node(**rules())
            first, second = await gather(*(node.pool.take(SITE, timeout=SOON) for _ in range(2)))
            node.pool.end(second, OK)
            keep = first.lease.id
            assert node.pool.take_now(SITE, keep=keep) is None
            assert not node.pool.may_come(SITE, "", 0, 0, keep)
            waiting = asyncio.ensure_future(node.pool.take(SITE, timeout=SOON, keep=keep))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            node.pool.end(first, OK)
            again = await waiting
            assert again.lease is first.lease
            waiting = asyncio.ensure_future(node.pool.take(SITE, timeout=SOON, keep=keep))
            node.pool.end(again, Judgement("limited", retry_after=60))
            assert (await waiting).lease.id != keep

    run(work)


def test_the_jar_goes_from_holder_to_holder(server: Server) -> None:
    """What one session kept is there when another leases the account."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            node = await crew.node(**rules(keep=0.1))
            taken = await node.pool.take(SITE, timeout=SOON)
            node.pool.keep_jar(taken.lease, b"\x00cookies")
            node.pool.end(taken, OK)
            other = await crew.node("b", **rules())
            assert (await other.pool.take(SITE, timeout=SOON)).lease.jar == b"\x00cookies"

    run(work)


def test_a_host_with_a_wrong_clock_uses_the_servers_days(server: Server) -> None:
    """Its days are not the server's: it is told so once, and goes on."""

    async def work() -> None:
        async with crew_on(server, "x", kind="account") as crew:
            node = await crew.node(**rules(quota=5))
            desk: Any = node.pool._stock.desk
            desk.calendar = Calendar(clock=lambda: time.time() - 90 * 86400)
            assert await use(node) == "x"

    run(work)


class Shop:
    """A provider of accounts."""

    target, most = 0, 0

    def __init__(self) -> None:
        self.calls = 0

    async def fetch(self, count: int, wall: Any) -> Delivery[Resource]:
        self.calls += 1
        return Delivery(2, [Resource("bought-1", b"1"), Resource("bought-2", b"2")])

    async def checked(self, resources: Any) -> Any:
        yield resources


def test_a_provider_is_asked_once_a_day_by_all_sessions(server: Server) -> None:
    """Three sessions with a list and a provider: the list is there, the provider was called once."""

    async def work() -> None:
        async with crew_on(server, kind="account") as crew:
            shop, counts = Shop(), Counter[str]()
            refillers = []
            for name in "abc":
                node = await crew.node(name, **rules())
                options = RefillOptions("default", 100, 0, goods="accounts", calendar=Calendar())
                refiller: Refiller[Resource] = Refiller(
                    options, node.store, node.session, stock=[Resource("listed", b"0")], source=shop,
                    standing=lambda node=node: node.pool.standing,
                    count=lambda what, number: counts.update({what: number}),
                )  # fmt: skip
                refillers.append(refiller)
            for refiller in refillers:
                refiller.start()
            await until(lambda: counts["refilled"] == 3)
            await asyncio.sleep(1.5)
            await gather(*(refiller.stop() for refiller in refillers))
            assert shop.calls == 1
            assert places(crew) == {"cold": 3}

    run(work)
