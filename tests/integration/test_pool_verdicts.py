"""Judgements of uses, as the store has them afterwards: who rests, where and for how long, and who is innocent."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from scrapy_lease.leases.pool import OK, UNUSED, Judgement, Lease, Refusals, sentence_of
from tests.helpers.servers import Server
from tests.integration.pool_crew import SITE, SOON, Crew, Node, crew_on, keys, run, until, uses_of

OTHER = "other.example"


def rests(crew: Crew) -> dict[str, dict[str, tuple[int, int]]]:
    """Resource -> {site: (until, strikes)}."""
    packed = crew.client.hgetall(keys().key("rests"))
    return {
        name.decode(): msgspec.msgpack.decode(marks, type=dict[str, tuple[int, int]]) for name, marks in packed.items()
    }


async def end(node: Node, lease: Lease, kind: str, url: str = "", refusals: Refusals | None = None) -> str:
    """Use this lease once, and end the use so."""
    others = set(map(str, range(9))) - {lease.id}
    use = await node.pool.take(SITE, avoid=others, timeout=SOON)
    assert use.lease is lease
    return node.pool.end(use, Judgement(kind, url), refusals)


async def leases_of(node: Node, number: int, kind: str = "ok") -> list[Lease]:
    """Take so many leases that have just been judged so."""
    uses = await uses_of(node, number)
    for use in uses:
        node.pool.end(use, Judgement(kind))
    return [use.lease for use in uses]


def test_a_suspicion_is_not_a_ban_two_in_a_row_are(server: Server) -> None:
    """The first refusal is a suspicion, which a page served ends; the second in a row, of another URL, is a ban."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node()
            lease, _, _ = await leases_of(node, 3)
            for url in ("/1", "/2"):
                assert await end(node, lease, "ban", url) == "again"
                assert await end(node, lease, "ok") == "pass"
            assert await end(node, lease, "ban", "/3") == "again"
            assert await end(node, lease, "ban", "/3") == "again"
            await asyncio.sleep(0.3)
            assert not rests(crew)
            assert await end(node, lease, "ban", "/4") == "again"
            await until(lambda: node.counts["banned"])
            assert set(rests(crew)[lease.id]) == {SITE}
            assert node.counts["banned"] == 1

    run(work)


def test_a_banned_lease_serves_other_sites(server: Server) -> None:
    """Where there is other work for it a banned lease stays, for other sites only; where there is none it goes back."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node()
            use = await node.pool.take(SITE)
            elsewhere = await node.pool.take(OTHER)
            node.pool.end(use, Judgement("hang"))
            assert node.pool.take_now(SITE) is None
            again = node.pool.take_now(OTHER)
            assert again is not None
            assert again.lease is use.lease
            node.pool.end(again, OK)
            node.pool.end(elsewhere, OK)
            node.pool.end(await node.pool.take(OTHER, avoid={elsewhere.lease.id}), Judgement("hang"))
            await until(lambda: set(rests(crew).get(use.lease.id, {})) == {SITE, OTHER})
            await until(lambda: set(crew.holders()) == {elsewhere.lease.id})

    run(work)


def test_a_url_refused_to_all_is_to_blame(server: Server) -> None:
    """One URL refused on three leases that serve the site is rejected, and a further refusal bans none of them."""

    async def work() -> None:
        async with crew_on(server, *range(5)) as crew:
            node = await crew.node()
            leases = await leases_of(node, 4)
            refusals = Refusals()
            sentences = [await end(node, lease, "ban", "/secret", refusals) for lease in leases[:3]]
            assert sentences == ["again", "again", "rejected"]
            assert refusals.ids == {lease.id for lease in leases[:3]}
            for lease in leases[:3]:
                assert await end(node, lease, "ban", "/other") == "again"
            await asyncio.sleep(0.3)
            assert not rests(crew)
            assert node.counts["banned"] == 0

    run(work)


def test_a_suspicion_goes_with_the_lease(server: Server) -> None:
    """Two refusals in a row are a ban also where another node met the first; a page served there ends it for all."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            others = await uses_of(await crew.node("c"), 1)
            one, other = await crew.node("a", keep=0.1), await crew.node("b", keep=0.1)

            async def judged(node: Node, kind: str, url: str = "") -> str:
                use = await node.pool.take(SITE, timeout=SOON)
                assert node.pool.end(use, Judgement(kind, url)) == sentence_of(kind)
                await until(lambda: len(crew.holders()) == 1)
                return use.lease.id

            for node, kind, url in ((one, "ban", "/1"), (other, "ok", ""), (one, "ban", "/2"), (other, "ban", "/2")):
                await judged(node, kind, url)
            assert not rests(crew)
            banned = await judged(other, "ban", "/3")
            assert set(rests(crew)) == {banned}
            assert others[0].is_valid

    run(work)


def test_what_others_were_served_proves_the_url(server: Server) -> None:
    """A URL refused on three leases that served the site for another node, now gone, is rejected by one that is new."""

    async def work() -> None:
        async with crew_on(server, *range(3)) as crew:
            first = await crew.node("a")
            await leases_of(first, 3)
            await first.pool.stop()
            node = await crew.node("b")
            refusals = Refusals()
            sentences = [
                node.pool.end(use, Judgement("ban", "/secret"), refusals) for use in await uses_of(node, 3)
            ]  # fmt: skip
            assert sentences == ["again", "again", "rejected"]
            await asyncio.sleep(0.3)
            assert not rests(crew)

    run(work)


def test_a_hang_is_blamed_at_the_site(server: Server) -> None:
    """Uncertain faults ban at the site at once, but never more than half of the pool: then the site is paused."""

    async def work() -> None:
        async with crew_on(server, *range(6)) as crew:
            node = await crew.node()
            uses = await uses_of(node, 6)
            for use in uses:
                assert node.pool.end(use, Judgement("hang")) == "again"
            await until(lambda: crew.parts("sites") == 1)
            assert len(rests(crew)) == 3
            assert crew.parts("resting") == 0
            await asyncio.sleep(1.5)
            assert node.counts["banned"] == 3
            assert not node.pool.has_room(SITE)
            assert (await node.pool.take(OTHER, timeout=SOON)).is_valid

    run(work)


def test_a_paused_site_is_probed(server: Server) -> None:
    """After the pause one request at a time goes to the site; a page served opens it for all."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node(backoff=(1.5, 60.0))
            for use in await uses_of(node, 4):
                node.pool.end(use, Judgement("hang"))
            await until(lambda: crew.parts("sites") == 1)
            node.demand = {SITE: 3}
            assert not node.pool.has_room(SITE)
            probe = await node.pool.take(SITE, timeout=SOON)
            assert not node.pool.has_room(SITE)
            node.pool.end(probe, OK)
            assert node.pool.has_room(SITE)
            await until(lambda: crew.parts("sites") == 0)

    run(work)


def test_a_site_is_open_to_all_who_wait_as_soon_as_its_probe_is_served(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits besides the probe of a site gets other leases once a page is served, not with a later look."""
    monkeypatch.setattr("scrapy_lease.leases.pool.stock.LOOK", 60.0)

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node(backoff=(0.6, 60.0), ttl=60.0)
            for use in await uses_of(node, 4):
                node.pool.end(use, Judgement("hang"))
            await until(lambda: crew.parts("sites"))
            takes = [asyncio.ensure_future(node.pool.take(SITE, timeout=SOON)) for _ in range(3)]
            (probe,), others = await asyncio.wait(takes, return_when=asyncio.FIRST_COMPLETED)
            node.pool.end(probe.result(), OK)
            assert len({use.lease.id for use in await asyncio.gather(*others)}) == 2

    run(work)


def test_who_waits_for_a_paused_site_learns_how_the_pool_is(server: Server) -> None:
    """Nothing has answered another node, which gives up what it had: who waits here learns that nothing is of use."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            one, other = await crew.node("a", ttl=2.0, keep=0.1, concurrency=2), await crew.node("b", ttl=2.0)
            use, elsewhere = await one.pool.take(SITE), await one.pool.take(OTHER)
            waiting = asyncio.ensure_future(other.pool.take(SITE, timeout=30))
            one.pool.end(use, Judgement("hang"))
            await until(lambda: crew.parts("sites"))
            await asyncio.sleep(1.5)
            assert other.pool.useless_for == 0
            one.pool.end(elsewhere, UNUSED)
            await until(lambda: other.pool.useless_for > 1.5)
            waiting.cancel()

    run(work)


def test_a_probe_decides(server: Server) -> None:
    """After its rest a lease is tried once: refused again it rests twice as long at once, served it is as before."""

    async def work() -> None:
        async with crew_on(server, *range(5)) as crew:
            node = await crew.node(backoff=(0.6, 60.0), concurrency=2)
            use = await node.pool.take(SITE)
            lease = use.lease
            (other,) = await uses_of(node, 1, avoid={lease.id})
            await node.pool.take(OTHER, avoid={other.lease.id})
            node.pool.end(use, Judgement("hang"))
            await asyncio.sleep(0.7)
            node.pool.end(await node.pool.take(SITE, avoid={other.lease.id}), Judgement("ban", "/x"))
            await until(lambda: rests(crew).get(lease.id, {}).get(SITE, (0, 0))[1] == 2)
            await asyncio.sleep(1.3)
            assert await end_probe(node, lease, other) == "pass"
            await until(lambda: not rests(crew))

    async def end_probe(node: Node, lease: Lease, other: Lease) -> str:
        use = await node.pool.take(SITE, avoid={other.lease.id})
        assert (use.lease, use.is_probe) == (lease, True)
        return node.pool.end(use, OK)

    run(work)


def test_a_limit_rests_for_as_long_as_it_asks(server: Server) -> None:
    """`limited` rests the lease for that site for exactly retry_after, here and in the store."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            node = await crew.node()
            use = await node.pool.take(SITE)
            for _ in range(3):
                await node.pool.take(OTHER)
            now = int(crew.client.hget(keys().namespace.clock, "now"))
            assert node.pool.end(use, Judgement("limited", retry_after=1.2)) == "again"
            began = time.monotonic()
            await until(lambda: rests(crew))
            assert 1200 <= rests(crew)[use.lease.id][SITE][0] - now < 2200
            again = await node.pool.take(SITE, timeout=SOON)
            assert again.lease is use.lease
            assert 1.2 <= time.monotonic() - began < 2.5

    run(work)


def test_what_is_broken_rests_for_all(server: Server) -> None:
    """A lease that cannot be reached rests for every site; one that its provider took back is gone."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node()
            broken, expired = await uses_of(node, 2)
            assert node.pool.end(broken, Judgement("broken")) == "again"
            assert node.pool.end(expired, Judgement("expired")) == "again"
            await until(lambda: crew.parts("resources") == 2)
            assert crew.client.zrange(keys().key("resting"), 0, -1) == [broken.lease.id.encode()]
            assert not broken.is_valid
            assert (node.counts["broken"], node.counts["expired"]) == (1, 1)

    run(work)


def test_others_on_a_broken_lease_end_first(server: Server) -> None:
    """A lease that others are using is given up with its last request: till then it is nobody else's."""

    async def work() -> None:
        async with crew_on(server, "p1") as crew:
            node = await crew.node(concurrency=2)
            one, other = await uses_of(node, 2)
            node.pool.end(one, Judgement("broken"))
            await asyncio.sleep(0.3)
            assert crew.holders()
            assert other.is_valid
            assert node.pool.take_now(SITE) is None
            node.pool.end(other, OK)
            await until(lambda: crew.parts("resting") == 1)

    run(work)


def test_a_minted_id_that_is_banned_is_replaced(server: Server) -> None:
    """An id that was made for the asking does not rest: banned or broken it is gone."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node(is_minted=True)
            one, other = await uses_of(node, 2)
            node.pool.end(one, Judgement("broken"))
            node.pool.end(other, Judgement("ban", "/1"))
            lease = other.lease
            use = await node.pool.take(SITE)
            assert use.lease is lease
            node.pool.end(use, Judgement("ban", "/2"))
            await until(lambda: node.counts["banned"] == 2)
            assert crew.parts("resources") == 1

    run(work)


def test_banned_at_three_sites_it_is_the_resource(server: Server) -> None:
    """It rests for all sites as soon as what still uses it has ended: till then it is nobody else's."""

    async def work() -> None:
        async with crew_on(server, *range(8)) as crew:
            node = await crew.node(concurrency=4)
            uses = [await node.pool.take(site) for site in ("a", "b", "c", "d")]
            (lease,) = {use.lease for use in uses}
            for use in uses[:3]:
                node.pool.end(use, Judgement("hang"))
            await until(lambda: node.counts["broken"])
            assert set(crew.holders()) == {lease.id}
            assert uses[3].is_valid
            assert node.pool.take_now("d") is None
            node.pool.end(uses[3], OK)
            await until(lambda: crew.parts("resting") == 1)
            assert node.counts["broken"] == 1

    run(work)


def test_a_recalled_lease_goes_back_at_once(server: Server) -> None:
    """What an operator revokes or frees is given back at the next look, and its use is not valid."""

    async def work() -> None:
        async with crew_on(server, "p1", "p2", "p3") as crew:
            node = await crew.node(ttl=2.0)
            uses = await uses_of(node, 3)
            by_id = {use.lease.id: use for use in uses}
            await crew.outside.change("revoke", ["p1"])
            await crew.outside.change("free", ["p2"])
            await until(lambda: set(crew.holders()) == {"p3"})
            await until(lambda: crew.parts("recalls") == 0)
            assert [by_id[name].is_valid for name in ("p1", "p2", "p3")] == [False, False, True]

    run(work)
