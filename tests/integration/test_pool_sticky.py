"""Sticky keys on a real server: the same key has the same resource, whichever process asks, and waits for it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from scrapy_lease.leases.pool import OK, Judgement, NoResource, Use
from tests.helpers.servers import Server
from tests.integration.pool_crew import SITE, SOON, Crew, Node, crew_on, gather, keys, run, until, uses_of

OTHER_SITE = "other.example"


async def use_once(node: Node, key: str, *, site: str = SITE, timeout: float = SOON, **options: Any) -> str:
    """Make one request of a key; return the id of the resource it went through."""
    use = await node.pool.take(site, sticky=key, timeout=timeout, **options)
    node.pool.end(use, OK)
    return use.lease.id


async def leave(crew: Crew, node: Node) -> None:
    """Let a node end as a crawl does."""
    crew.nodes.remove(node)
    await node.close()


def test_the_same_key_has_the_same_resource_after_its_node_has_left(server: Server) -> None:
    """Twenty keys of a node are each on the same resource with the next node, and with the one after that."""

    async def work() -> None:
        async with crew_on(server, *range(12)) as crew:
            first = None
            for name in "abc":
                node = await crew.node(name)
                names = [f"key {number}" for number in range(20)]
                seen = dict(zip(names, await gather(*(use_once(node, key) for key in names)), strict=True))
                assert first in (None, seen)
                first = seen
                await leave(crew, node)
            assert len(set(seen.values())) == 12

    run(work)


def test_the_same_key_has_the_same_resource_after_its_node_has_died(server: Server) -> None:
    """What a process that fell silent had serves its keys elsewhere when its session is over, and not before."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            dead, node = await crew.node("a", ttl=1.5), await crew.node("b")
            held = await dead.pool.take(SITE, sticky="k")
            dead.is_silent = True
            began = time.monotonic()
            assert await use_once(node, "k") == held.lease.id
            assert time.monotonic() - began > 0.9
            assert not dead.session.is_confirmed

    run(work)


def test_a_key_waits_while_its_resource_is_with_another(server: Server) -> None:
    """Though others are free; others of that node do not wait with it, and what it waits for it gets at last."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            one, other = await crew.node("a", keep=0.1), await crew.node("b", keep=0.1)
            held = await one.pool.take(SITE, sticky="k")
            waiting = asyncio.ensure_future(use_once(other, "k"))
            await asyncio.sleep(0.3)
            began = time.monotonic()
            assert await use_once(other, "l") != held.lease.id
            await use_once(other, "")
            assert time.monotonic() - began < 0.5
            await asyncio.sleep(1.5)
            assert not waiting.done()
            one.pool.end(held, OK)
            assert await waiting == held.lease.id

    run(work)


def test_the_wait_is_bounded(server: Server) -> None:
    """As every wait is; the request is told that there is something, and that it did not get it."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            one, other = await crew.node("a"), await crew.node("b", wait=0.5)
            await one.pool.take(SITE, sticky="k")
            with pytest.raises(NoResource) as error:
                await other.pool.take(SITE, sticky="k")
            assert error.value.reason == "wait"
            assert await use_once(other, "l", timeout=SOON)

    run(work)


@pytest.mark.parametrize("how", ["gone", "banned", "drained", "broken"])
def test_a_key_is_bound_anew_when_its_resource_is_of_no_use(server: Server, how: str) -> None:
    """Gone, resting for the site or for all, or drained: the key has another, here and elsewhere, for good."""

    async def work() -> None:
        async with crew_on(server, *range(6)) as crew:
            one, other = await crew.node("a", keep=0.1), await crew.node("b", keep=0.1)
            held = await one.pool.take(SITE, sticky="k")
            if how == "drained":
                await crew.outside.change("drain", [held.lease.id])
            judgement = {"gone": Judgement("expired"), "banned": Judgement("hang"), "broken": Judgement("broken")}
            one.pool.end(held, judgement.get(how, OK))
            if how == "drained":
                await until(lambda: not crew.holders())
            second = await use_once(one, "k")
            assert second != held.lease.id
            assert await use_once(other, "k") == second

    run(work)


def test_what_refused_a_request_is_left_by_its_key(server: Server) -> None:
    """A request that is to avoid what its key is tied to takes the key along to another."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node()
            first = await use_once(node, "k")
            second = await use_once(node, "k", avoid=frozenset({first}))
            assert second != first
            assert await use_once(node, "k") == second

    run(work)


def test_a_tie_lives_by_use(server: Server) -> None:
    """A key that is used keeps its resource beyond the time to live; one that is not is forgotten by the store."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node(sticky_ttl=2.0, ttl=1.5)
            used, idle = await gather(use_once(node, "used"), use_once(node, "idle"))
            assert used != idle
            for _ in range(30):
                await asyncio.sleep(0.1)
                assert await use_once(node, "used") == used
            ends = keys().ties[1]
            await until(lambda: crew.client.zcard(ends) == 1)
            assert crew.client.hlen(keys().ties[0]) == 1

    run(work)


def test_known_keys_cost_no_round_trip(server: Server) -> None:
    """Of a thousand requests of ten keys each key's first asks the store; the others cost no more than any request."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node(concurrency=4)
            names = [f"k{number}" for number in range(10)]
            await gather(*(use_once(node, key) for key in names))
            before, began = node.stats.roundtrips, time.monotonic()
            for number in range(1000):
                use = node.pool.take_now(SITE, sticky=names[number % 10])
                assert use is not None
                await asyncio.sleep(0)
                node.pool.end(use, OK)
            looks = (time.monotonic() - began) / (node.session.ttl / 3)
            assert node.stats.roundtrips - before <= looks + 1

    run(work)


async def work_on(node: Node, requests: list[str], seen: dict[str, set[str]], busy: Counter[str]) -> None:
    for key in requests:
        use: Use = await node.pool.take(SITE, sticky=key, timeout=30)
        busy[use.lease.id] += 1
        assert busy[use.lease.id] == 1
        await asyncio.sleep(0.005)
        busy[use.lease.id] -= 1
        seen.setdefault(key, set()).add(use.lease.id)
        node.pool.end(use, OK)


def test_many_keys_on_few_resources(server: Server) -> None:
    """Three nodes, six resources, sixty keys of each node's own: each key is served, and on one resource only."""

    async def work() -> None:
        async with crew_on(server, *range(6)) as crew:
            nodes = [await crew.node(name) for name in "abc"]
            seen: dict[str, set[str]] = {}
            busy: Counter[str] = Counter()
            began = time.monotonic()
            await gather(
                *(
                    work_on(node, [f"{node.name}{chain}{number % 5}" for number in range(10)], seen, busy)
                    for node in nodes
                    for chain in "abcdefghijkl"
                )
            )
            assert len(seen) == 180
            moved = {key: ids for key, ids in seen.items() if len(ids) > 1}
            assert not moved
            assert time.monotonic() - began < 30

    run(work)


def test_one_key_of_all_nodes_is_one_resource(server: Server) -> None:
    """Nodes that use one key in turn share its resource: never two at once, never another, and each has its turn."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            nodes = [await crew.node(name, keep=0.2) for name in "abc"]
            seen: dict[str, set[str]] = {}
            busy: Counter[str] = Counter()
            await gather(*(work_on(node, ["k"] * 20, seen, busy) for node in nodes))
            assert seen == {"k": {"p1"}}

    run(work)


def test_a_new_session_keeps_its_keys(server: Server) -> None:
    """After the loss of a session its keys are where they were, as far as the process got its leases back."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node(ttl=1.5)
            first = await use_once(node, "k")
            node.is_silent = True
            crew.client.zadd(keys().namespace.sessions, {node.session.sid: 1})
            node.pool.beaten(None)
            node.session.lose()
            node.pool.lost()
            await node.reopen()
            node.is_silent = False
            assert await use_once(node, "k") == first

    run(work)


def test_the_probe_of_a_pause_that_a_node_never_heard_of_ends_it(server: Server) -> None:
    """A node that joins after a site was paused gets the probe, says so when it is served, and the site is open."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            one = await crew.node("a", backoff=(1.0, 2.0))
            uses = await gather(*(one.pool.take(SITE) for _ in range(2)))
            for use in uses:
                one.pool.end(use, Judgement("hang"))
            await until(lambda: crew.parts("sites"))
            await leave(crew, one)
            await asyncio.sleep(1.1)
            other = await crew.node("b")
            other.pool.end(await other.pool.take(SITE, timeout=SOON), OK)
            await until(lambda: not crew.parts("sites"))

    run(work)


def test_who_waits_outside_is_counted_by_key(server: Server) -> None:
    """No more of a key come than its own resource takes, whatever else is free; of a new key one comes to ask."""

    async def work() -> None:
        async with crew_on(server, *range(3)) as crew:
            node = await crew.node()
            use = await node.pool.take(SITE, sticky="k")
            others = await uses_of(node, 2)
            node.pool.end(others[0], OK)

            def may_come(key: str, of_key: int = 0) -> bool:
                return node.pool.may_come(SITE, key, 0, of_key)

            assert [may_come("k"), may_come("new"), may_come("new", 1), may_come("")] == [False, True, False, True]
            assert [node.pool.lacks(SITE, key) for key in ("k", "new", "")] == [False, True, True]
            rooms = node.rooms
            node.pool.end(use, OK)
            assert node.rooms > rooms
            assert [may_come("k"), may_come("k", 1)] == [True, False]
            node.pool.end(others[1], OK)

    run(work)
