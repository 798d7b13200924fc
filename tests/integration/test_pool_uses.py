"""A pool on a real server: what a request costs, how long a lease stays, and that none is left behind."""

from __future__ import annotations

import asyncio
import time

import pytest

from scrapy_lease.leases.pool import OK, UNUSED, Judgement, NoResource, Use
from tests.helpers.servers import Server
from tests.integration.pool_crew import SITE, SOON, Node, crew_on, gather, run, until, uses_of


def end_all(node: Node, uses: list[Use], judgement: Judgement = OK) -> None:
    for use in uses:
        node.pool.end(use, judgement)


def test_a_good_lease_is_reused_without_a_round_trip(server: Server) -> None:
    """A thousand requests on one lease cost the store one word, that it serves, and the looks of the heartbeats."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node()
            node.pool.end(await node.pool.take(SITE), OK)
            before, began = node.stats.roundtrips, time.monotonic()
            for _ in range(1000):
                use = node.pool.take_now(SITE)
                assert use is not None
                await asyncio.sleep(0)
                assert node.pool.end(use, OK) == "pass"
            looks = (time.monotonic() - began) / (node.session.ttl / 3)
            assert node.stats.roundtrips - before <= 1 + looks + 1
            assert (node.counts["leased"], node.counts["reused"]) == (1, 1000)

    run(work)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_requests_on_a_lease_than_its_concurrency(server: Server, concurrency: int) -> None:
    """Each lease carries so many requests at once and no more; what goes beyond waits until one ends."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node(concurrency=concurrency)
            uses = await uses_of(node, 2 * concurrency)
            assert sorted(use.lease.id for use in uses) == sorted(["p1", "p2"] * concurrency)
            assert not node.pool.has_room(SITE)
            assert node.pool.take_now(SITE) is None
            waiting = asyncio.ensure_future(node.pool.take(SITE))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            node.pool.end(uses[0], OK)
            assert (await waiting).lease is uses[0].lease

    run(work)


def test_a_lease_goes_back_after_so_many_requests(server: Server) -> None:
    """With a limit of reuse a lease serves so many requests, and then it is another's turn."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node(reuse=2)
            ids = []
            for _ in range(6):
                use = await node.pool.take(SITE, timeout=SOON)
                ids.append(use.lease.id)
                node.pool.end(use, OK)
            assert ids[0::2] == ids[1::2]
            assert len(set(ids)) == 3
            await until(lambda: not crew.holders())
            assert node.counts["released"] == 3

    run(work)


def test_an_idle_lease_stays_for_a_while(server: Server) -> None:
    """An idle lease is given back after `keep` seconds, one in use is not."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node(keep=1.5)
            idle, used = await uses_of(node, 2)
            node.pool.end(idle, OK)
            ended = time.monotonic()
            await asyncio.sleep(0.9)
            assert len(crew.holders()) == 2
            await until(lambda: set(crew.holders()) == {used.lease.id})
            assert 1.5 <= time.monotonic() - ended < 3.5
            assert used.is_valid
            assert not idle.is_valid

    run(work)


def test_an_idle_lease_goes_at_once_when_others_wait(server: Server) -> None:
    """However long an idle lease may stay: when another session waits for more than is free, it goes."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            rich, poor = await crew.node("a", keep=60), await crew.node("b")
            rich.pool.end(await rich.pool.take(SITE), OK)
            use = await poor.pool.take(SITE, timeout=SOON)
            assert (use.lease.id, rich.counts["released"]) == ("p1", 1)

    run(work)


def test_no_request_starts_within_the_margin(server: Server) -> None:
    """A lease with less life than the margin serves no further request; what it says of its life is right."""

    async def work() -> None:
        async with crew_on(server) as crew:
            await crew.add("p1", life=4.0)
            node = await crew.node(margin=2.0)
            use = await node.pool.take(SITE)
            assert use.life_left == pytest.approx(4.0, abs=1.0)
            node.pool.end(use, OK)
            assert node.pool.has_room(SITE)
            await asyncio.sleep(2.5)
            assert not node.pool.has_room(SITE)
            await until(lambda: not crew.holders())

    run(work)


def test_what_waits_outside_is_told_of_room(server: Server) -> None:
    """Demand without a single take leases what it needs, rounded by concurrency, and on_room says that it is there."""

    async def work() -> None:
        async with crew_on(server, *range(9)) as crew:
            node = await crew.node(concurrency=2)
            node.demand = {SITE: 5, "other.example": 2}
            assert not node.pool.has_room(SITE)
            await until(lambda: node.rooms)
            assert len(crew.holders()) == 4
            assert node.pool.has_room(SITE)
            assert node.pool.has_room("other.example")

    run(work)


def test_not_more_leases_than_the_node_can_use(server: Server) -> None:
    """With a limit of its own a node does not lease more, whatever waits."""

    async def work() -> None:
        async with crew_on(server, *range(9)) as crew:
            node = await crew.node(most=3)
            node.demand = {SITE: 50}
            assert not node.pool.has_room(SITE)
            await until(lambda: node.rooms)
            await asyncio.sleep(1.2)
            assert len(crew.holders()) == 3

    run(work)


def test_sticky_requests_share_a_lease(server: Server) -> None:
    """Requests of one key go through one lease, one after the other if need be, while others have their own."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node()
            first = await node.pool.take(SITE, sticky="k")
            second = asyncio.ensure_future(node.pool.take(SITE, sticky="k"))
            other = await node.pool.take(SITE, sticky="l")
            await asyncio.sleep(0.1)
            assert not second.done()
            node.pool.end(first, OK)
            assert (await second).lease is first.lease
            assert other.lease is not first.lease
            assert len(crew.holders()) == 2

    run(work)


def test_what_is_avoided_comes_only_when_nothing_else_does(server: Server) -> None:
    """A request does not get what it avoids while the store has another; with nothing else it does, after asking."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node()
            one = await node.pool.take(SITE)
            node.pool.end(one, OK)
            assert node.pool.take_now(SITE, avoid={one.lease.id}) is None
            other = await node.pool.take(SITE, avoid={one.lease.id}, timeout=SOON)
            assert other.lease is not one.lease
            again = await node.pool.take(SITE, avoid={one.lease.id}, timeout=SOON)
            assert again.lease is one.lease

    run(work)


@pytest.mark.parametrize(("names", "reason"), [(("p1",), "wait"), ((), "empty")])
def test_a_wait_is_bounded(server: Server, names: tuple[str, ...], reason: str) -> None:
    """Nothing in time: the error says whether others have it or there is nothing at all, the pool for how long."""

    async def work() -> None:
        async with crew_on(server, *names) as crew:
            node = await crew.node()
            held = await uses_of(node, len(names))
            began = time.monotonic()
            with pytest.raises(NoResource, match=r"shop\.example") as info:
                await node.pool.take(SITE, timeout=0.5)
            assert (info.value.reason, node.pool.is_usable) == (reason, reason == "wait")
            assert 0.5 <= time.monotonic() - began < 2
            assert (node.pool.useless_for > 0) == (reason == "empty")
            await crew.add("late")
            assert (await node.pool.take(SITE, timeout=SOON)).lease.id == "late"
            assert node.pool.is_usable
            assert node.pool.useless_for == 0
            end_all(node, held)

    run(work)


def test_a_take_that_is_cancelled_leaves_no_lease_behind(server: Server) -> None:
    """Cancelled at any moment, also when its lease is already there, a take holds nothing: others get all places."""

    async def work() -> None:
        async with crew_on(server, *range(3)) as crew:
            node = await crew.node()
            for delay in (0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05):
                takes = [asyncio.ensure_future(node.pool.take(SITE)) for _ in range(6)]
                await asyncio.sleep(delay)
                for take in takes:
                    take.cancel()
                done = await asyncio.gather(*takes, return_exceptions=True)
                end_all(node, [use for use in done if isinstance(use, Use)], UNUSED)
            held = await uses_of(node, 1)
            waiting = asyncio.ensure_future(node.pool.take(SITE, avoid={"0", "1", "2"} - {held[0].lease.id}))
            # In the same turn of the loop: a place is given to it, and it is cancelled before it can see that.
            node.pool.end(held[0], OK)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert len(await uses_of(node, 3)) == 3

    run(work)


def test_a_served_waiter_that_is_cancelled_gives_its_place_back(server: Server) -> None:
    """The place that came in the same turn of the loop as the cancellation goes to the next one."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            node = await crew.node()
            (use,) = await uses_of(node, 1)
            first, second = (asyncio.ensure_future(node.pool.take(SITE)) for _ in range(2))
            await asyncio.sleep(0.1)
            node.pool.end(use, OK)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert (await second).lease is use.lease

    run(work)


def test_an_end_counts_once(server: Server) -> None:
    """A second end of a use changes nothing: its place is not given twice, and a late verdict blames nobody."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            node = await crew.node()
            (use,) = await uses_of(node, 1)
            assert node.pool.end(use, OK) == "pass"
            assert node.pool.end(use, Judgement("broken")) == "again"
            (use,) = await uses_of(node, 1)
            assert node.pool.take_now(SITE) is None
            assert node.counts["broken"] == 0
            assert use.is_valid

    run(work)


def test_closing_wakes_and_gives_back(server: Server) -> None:
    """Who waits is told at once; what is idle goes at once, what is in use with its request; nothing more is given."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node()
            idle, used = await uses_of(node, 2)
            waiting = [asyncio.ensure_future(node.pool.take(SITE)) for _ in range(3)]
            await asyncio.sleep(0.1)
            began = time.monotonic()
            node.pool.close()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert time.monotonic() - began < 0.2
            assert [error.reason for error in results] == ["closed"] * 3
            with pytest.raises(NoResource, match="closed"):
                await node.pool.take(SITE)
            node.pool.end(idle, OK)
            assert node.pool.take_now(SITE) is None
            await until(lambda: set(crew.holders()) == {used.lease.id})
            assert used.is_valid
            node.pool.end(used, OK)
            await until(lambda: not crew.holders())

    run(work)


def test_stopping_gives_everything_back(server: Server) -> None:
    """After a stop the store knows of no lease and no waiter of the session, and what was in use is not valid."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node()
            uses = await uses_of(node, 2)
            waiting = asyncio.ensure_future(node.pool.take(SITE))
            await until(lambda: crew.parts("waiting"))
            await node.pool.stop()
            await asyncio.gather(waiting, return_exceptions=True)
            assert not crew.holders()
            assert crew.free() == {"p1", "p2"}
            assert crew.parts("waiting") == 0
            assert not any(use.is_valid for use in uses)
            end_all(node, uses)

    run(work)


def test_what_a_dead_session_held_serves_others(server: Server) -> None:
    """A session that ends without a word is reclaimed by who waits, after its time to live and not before."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            dead, other = await crew.node("a", ttl=2.0), await crew.node("b")
            await uses_of(dead, 1)
            dead.is_silent = True
            began = time.monotonic()
            use = await other.pool.take(SITE, timeout=10)
            assert use.lease.id == "p1"
            assert 1.0 < time.monotonic() - began < 8

    run(work)


def test_two_nodes_never_share(server: Server) -> None:
    """While nodes take and give back as they like, no resource is in use by two of them."""

    async def work() -> None:
        async with crew_on(server, *range(3)) as crew:
            nodes = [await crew.node(f"n{number}", reuse=3) for number in range(4)]
            busy: set[str] = set()

            async def request(node: Node) -> None:
                for _ in range(15):
                    use = await node.pool.take(SITE, timeout=30)
                    assert use.lease.id not in busy
                    busy.add(use.lease.id)
                    await asyncio.sleep(0.01)
                    busy.discard(use.lease.id)
                    node.pool.end(use, OK)

            await gather(*(request(node) for node in nodes))

    run(work)
