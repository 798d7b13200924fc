"""Lost replies, lost sessions, restarted servers: nothing is leased twice, forgotten, or used without right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from scrapy_lease.leases.pool import OK, Judgement
from scrapy_lease.leases.session import boot_time
from tests.helpers.relay import Relay
from tests.helpers.servers import Server
from tests.integration.pool_crew import SITE, SOON, crew_on, keys, run, until, uses_of


def packed(verb: str) -> Callable[[bytes], bool]:
    """Matches calls of this verb: they name their lane."""
    return lambda frame: f"pool/proxy/default/{verb}".encode() in frame


def test_the_lost_reply_of_a_take(server: Server, relay: Relay) -> None:
    """A take whose reply was lost is made again as the same call: it gives the leases that the first one gave."""

    async def work() -> None:
        async with crew_on(server, *range(5)) as crew:
            node = await crew.node(url=relay.url)
            lost = relay.swallow(command=packed("take"))
            uses = await uses_of(node, 3)
            assert lost.is_done
            assert set(crew.holders()) == {use.lease.id for use in uses}
            events = crew.client.xrange(keys().key("events"))
            assert sum(fields[b"what"] == b"take" for _, fields in events) == 1
            assert node.counts["leased"] == 3

    run(work)


def test_the_lost_reply_of_a_settlement(server: Server, relay: Relay) -> None:
    """A settlement whose reply was lost is made again as the same call, and counts once."""

    async def work() -> None:
        async with crew_on(server, *range(3)) as crew:
            node = await crew.node(url=relay.url)
            (use,) = await uses_of(node, 1)
            lost = relay.swallow(command=packed("settle"))
            node.pool.end(use, Judgement("broken"))
            await until(lambda: lost.is_done)
            before = node.stats.roundtrips
            await until(lambda: node.stats.roundtrips > before)
            await uses_of(node, 2)
            record = crew.client.hget(keys().key("resources"), use.lease.id)
            assert record[1:3] == b"01"
            assert node.counts["lost"] == 0

    run(work)


def test_the_lost_reply_to_a_third_ban(server: Server, relay: Relay) -> None:
    """Who has not heard that its resource rests for all still has it, and alone, long after the rest is over."""

    async def work() -> None:
        async with crew_on(server, "p1", *range(7)) as crew:
            node = await crew.node(url=relay.url, concurrency=4, backoff=(0.2, 0.2))
            uses = [await node.pool.take(site) for site in ("a", "b", "c", "d")]
            lost = relay.swallow(command=packed("settle"))
            for use in uses[:3]:
                node.pool.end(use, Judgement("hang"))
            await until(lambda: lost.is_done)
            await asyncio.sleep(0.4)
            other = await crew.node("b")
            others = await uses_of(other, 7)
            assert uses[3].is_valid
            assert uses[3].lease.id not in {use.lease.id for use in others}
            node.pool.end(uses[3], OK)
            (last,) = await uses_of(other, 1)
            assert last.lease.id == uses[3].lease.id
            assert not uses[3].lease.is_held

    run(work)


def test_a_lost_session_voids_at_once(server: Server) -> None:
    """The session is lost: its uses are not valid from that moment, and nothing is handed out before a new report."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node()
            used, idle = await uses_of(node, 2)
            node.pool.end(idle, OK)
            assert used.is_valid
            node.session.lose()
            node.pool.lost()
            assert not used.is_valid
            assert node.pool.take_now(SITE) is None
            assert not node.pool.has_room(SITE)

    run(work)


def test_what_a_lost_session_held_is_reported_under_the_next(server: Server) -> None:
    """The new session takes over what nobody took; uses begun under the old one stay void, and keep their places."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node()
            used, idle = await uses_of(node, 2)
            node.pool.end(idle, OK)
            fence, old = used.lease.fence, node.session.sid
            crew.client.zadd(keys().namespace.sessions, {old: 1})
            node.session.lose()
            node.pool.lost()
            await node.reopen()
            await until(lambda: set(crew.holders().values()) == {node.session.sid})
            await until(lambda: node.pool.has_room(SITE))
            fresh = node.pool.take_now(SITE)
            assert fresh is not None
            assert fresh.is_valid
            assert fresh.lease is idle.lease
            assert node.pool.take_now(SITE) is None
            assert not used.is_valid
            assert used.lease.fence > fence
            node.pool.end(used, OK)
            again = node.pool.take_now(SITE)
            assert again is not None
            assert again.is_valid
            assert again.lease is used.lease

    run(work)


def test_what_another_took_meanwhile_is_lost(server: Server) -> None:
    """What another session has leased since is not taken back, and a late verdict on it changes nothing."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            node, other = await crew.node("a"), await crew.node("b")
            (use,) = await uses_of(node, 1)
            crew.client.zadd(keys().namespace.sessions, {node.session.sid: 1})
            node.session.lose()
            node.pool.lost()
            theirs = await other.pool.take(SITE, timeout=SOON)
            await node.reopen()
            await until(lambda: node.counts["lost"] == 1)
            assert node.pool.end(use, Judgement("broken")) == "again"
            await asyncio.sleep(0.3)
            assert crew.holders() == {"p1": other.session.sid}
            assert theirs.is_valid

    run(work)


def test_words_that_were_not_heard_are_said_under_the_next_session(server: Server, relay: Relay) -> None:
    """A verdict that the lost session could not tell is told by the next one, which holds the lease again."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node(url=relay.url)
            broken, _ = await uses_of(node, 2)
            relay.freeze()
            node.pool.end(broken, Judgement("broken"))
            await asyncio.sleep(0.3)
            crew.client.zadd(keys().namespace.sessions, {node.session.sid: 1})
            node.session.lose()
            relay.drop()
            relay.thaw()
            await node.reopen()
            await until(lambda: crew.parts("resting") == 1)
            await until(lambda: len(crew.holders()) == 1)

    run(work)


def test_a_restarted_server_is_told_what_is_held(own_server: Server) -> None:
    """A server that comes back is reported to by itself: leases stay, uses stay valid, takes go on after its grace."""

    async def work() -> None:
        async with crew_on(own_server, "p1", "p2", "p3") as crew:
            node = await crew.node(ttl=2.0)
            used, idle = await uses_of(node, 2)
            node.pool.end(idle, OK)
            reports = crew.client.hget(keys().namespace.session(node.session.sid), "pool/proxy/default/report:n")
            own_server.restart()
            crew.client.connection_pool.disconnect()

            def count() -> bytes | None:
                return crew.client.hget(keys().namespace.session(node.session.sid), "pool/proxy/default/report:n")

            await until(lambda: count() != reports)
            assert used.is_valid
            assert len(crew.holders()) == 2
            await uses_of(node, 2)
            assert node.counts["lost"] == 0

    run(work)


def test_a_server_that_lost_its_tail(own_server: Server) -> None:
    """What a server forgot that it had leased is leased again under a new fence, to who reports it."""

    async def work() -> None:
        async with crew_on(own_server, "p1") as crew:
            node = await crew.node(ttl=2.0)
            (use,) = await uses_of(node, 1)
            fence, key = use.lease.fence, keys().key
            own_server.restart()
            crew.client.connection_pool.disconnect()
            crew.client.hdel(key("leases"), "p1")
            crew.client.delete(keys().held(node.session.sid))
            crew.client.zadd(key("free"), {"p1": 0})
            await until(lambda: crew.holders() and use.lease.fence > fence)
            assert use.is_valid

    run(work)


def test_nothing_is_handed_out_unconfirmed(server: Server) -> None:
    """While the process does not know that its session lives, nothing starts; when it knows again, who waited does."""

    async def work() -> None:
        late = 0.0
        async with crew_on(server, "p1") as crew:
            node = await crew.node(clock=lambda: boot_time() + late)
            node.pool.end(await node.pool.take(SITE), OK)
            node.is_silent = True
            late = 5.0
            assert not node.session.is_confirmed
            assert node.pool.take_now(SITE) is None
            assert not node.pool.has_room(SITE)
            waiting = asyncio.ensure_future(node.pool.take(SITE))
            await asyncio.sleep(1.3)
            assert not waiting.done()
            node.is_silent = False
            assert (await waiting).is_valid

    run(work)


def test_a_store_that_is_away(server: Server, relay: Relay) -> None:
    """Without the store good leases are reused while the session is confirmed; what was said then is told later."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            node = await crew.node(url=relay.url, ttl=20.0)
            one, other = await uses_of(node, 2)
            relay.cut()
            node.pool.end(one, Judgement("broken"))
            node.pool.end(other, OK)
            for _ in range(3):
                use = node.pool.take_now(SITE)
                assert use is not None
                node.pool.end(use, OK)
                await asyncio.sleep(0.1)
            relay.restore()
            await until(lambda: crew.parts("resting") == 1)

    run(work)


def test_what_an_operator_freed_before_a_restart(own_server: Server) -> None:
    """A lease that was freed is lost with the report to the new server, and nothing is left to be told of it."""

    async def work() -> None:
        async with crew_on(own_server, "p1", "p2") as crew:
            node = await crew.node(ttl=2.0)
            uses = {use.lease.id: use for use in await uses_of(node, 2)}
            await crew.outside.change("free", ["p1"])
            own_server.restart()
            crew.client.connection_pool.disconnect()
            await until(lambda: crew.parts("recalls") == 0)
            assert [uses[name].is_valid for name in ("p1", "p2")] == [False, True]
            assert node.counts["lost"] == 1

    run(work)


def test_stopping_does_not_wait_for_a_store_that_is_silent(server: Server, relay: Relay) -> None:
    """A stop takes at most two seconds when the store does not answer; what it held comes back with its session."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            node = await crew.node(url=relay.url)
            (use,) = await uses_of(node, 1)
            relay.freeze()
            began = time.monotonic()
            await node.pool.stop()
            assert time.monotonic() - began < 2.5
            assert not use.is_valid
            relay.thaw()

    run(work)
