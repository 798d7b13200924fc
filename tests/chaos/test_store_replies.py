"""Replies that get lost: what the store did, it did once, and whoever asked learns of it in the end."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from typing import Any, TypeVar

import pytest

from scrapy_lease.exceptions import SessionLost, StoreUnavailable
from scrapy_lease.leases.session import Session
from scrapy_lease.store.calls import Script
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace, Scope
from scrapy_lease.store.scripts import Answer, Entry, Grant, Scripts, Settlement
from scrapy_lease.store.server import StoreStats
from tests.helpers.fleet import Fleet
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

LONG = os.environ.get("SCRAPY_LEASE_TEST_LONG") == "1"
VERBS = ("open", "beat", "push", "claim", "lease", "settle", "report", "reclaim", "close", "start")
ITEMS, NAMED, WANT = 24, 8, 5

T = TypeVar("T")


def sha(verb: str) -> bytes:
    """What the commands that run *verb* contain: its SHA-1, as a server from Redis 7 on knows it."""
    return Script.load(verb, shebang=True).sha.encode()


def digest(number: int) -> bytes:
    return blake2b(str(number).encode(), digest_size=16).digest()


class Worker:
    """The least that uses every verb: leases in batches, settles what it got, repeats what had no answer."""

    def __init__(self, url: str, scope: Scope, name: str) -> None:
        self.channel = Channel(url, url, 2.0, StoreStats())
        self.scripts = Scripts(self.channel, scope)
        self.session = Session(node=name, ttl=1.0, config="", fresh=True, info={})
        self.granted: list[Grant] = []
        self.refused = 0

    async def sure(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call until it is answered; the same call, so with the same number."""
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    def numbered(self, verb: str) -> tuple[str, int]:
        return self.session.sid, self.session.number(verb)

    async def open(self) -> None:
        await self.sure(lambda: self.session.open(self.scripts))
        await self.sure(lambda: self.session.beat(self.scripts))

    async def produce(self) -> None:
        """Read "start()", if it is this worker's turn."""
        sid = self.session.sid
        answer = await self.sure(lambda: self.scripts.start(sid, "claim", "one"))
        for first in range(0, ITEMS - NAMED if answer == "yours" else 0, 8):
            entries = self.entries(range(first, first + 8))
            sid, n = self.numbered("push")
            reply = await self.sure(lambda sid=sid, n=n, entries=entries: self.scripts.push(sid, n, entries))
            assert reply == "+" * 8
        await self.claim(range(ITEMS - NAMED, ITEMS), 3)
        await self.has_produced()

    @staticmethod
    def entries(numbers: Iterable[int]) -> list[Entry]:
        return [Entry(digest(i), "slot", 0, b"%d" % i, "auto") for i in numbers]

    async def claim(self, numbers: range, at_once: int) -> None:
        """Lease items by name, some at once, and settle them."""
        for first in numbers[::at_once]:
            entries = self.entries(i for i in range(first, first + at_once) if i in numbers)
            sid, n = self.numbered("claim")
            claims = await self.sure(lambda sid=sid, n=n, entries=entries: self.scripts.claim(sid, n, entries))
            assert {claim.answer for claim in claims} == {Answer.GRANTED}
            granted = [
                Grant(e.digest, claim.fence, 0, 0, e.slot, e.mark, e.payload)
                for e, claim in zip(entries, claims, strict=True)
            ]
            self.granted += granted
            await self.settle(granted, "done", "leads", 1)

    async def has_produced(self) -> None:
        await self.sure(lambda: self.scripts.start(self.session.sid, "finish", "one"))

    async def lease(self) -> bool:
        """Lease some; False: the run is drained."""
        sid, n = self.numbered("lease")
        standing, grants = await self.sure(lambda: self.scripts.lease(sid, n, want=WANT, rooms={"slot": WANT}))
        self.granted += grants
        if standing.expired:
            await self.sure(lambda: self.scripts.reclaim(standing.expired, deaths=5, policy="refetch"))
        if not grants:
            await self.sure(lambda: self.session.beat(self.scripts))
            await asyncio.sleep(0.05)
        return not standing.drained

    async def settle(self, grants: list[Grant], verb: str, *args: Any) -> None:
        sid, n = self.numbered("settle")
        settlements = [Settlement(grant.digest, grant.fence, verb, args) for grant in grants]
        reply = await self.sure(lambda: self.scripts.settle(sid, n, settlements))
        self.refused += reply.count("-")

    async def lose(self) -> None:
        """Lose the session with some items in hand; open another and take them back."""
        before = len(self.granted)
        await self.lease()
        held = self.granted[before:]
        old = self.session.sid
        await self.sure(lambda: self.scripts.close(old))
        self.session.lose()
        await self.open()
        sid, n = self.numbered("report")
        holds = [(grant.digest, grant.fence) for grant in held]
        fences = await self.sure(lambda: self.scripts.report(sid, n, holds, previous=old))
        assert all(fence > grant.fence for fence, grant in zip(fences, held, strict=True))
        regained = [
            Grant(g.digest, fence, g.attempts, g.deaths, g.slot, g.mark, g.payload)
            for g, fence in zip(held, fences, strict=True)
        ]
        await self.settle(regained, "done", "keep")

    async def work(self) -> None:
        """Do everything that is to be done, and close."""
        try:
            await self.open()
            await self.produce()
            await self.lose()
            await self.has_produced()
            known = len(self.granted)
            while await self.lease():
                batch, known = self.granted[known:], len(self.granted)
                handed_back = batch[:1] if len(batch) > 1 else []
                await self.settle(handed_back, "back", 0)
                await self.settle(batch[len(handed_back) :], "done", "keep")
            sid = self.session.sid
            await self.sure(lambda: self.session.close(self.scripts))
            await self.sure(lambda: self.scripts.reclaim(sid, deaths=5, policy="refetch"))
            with pytest.raises(SessionLost):
                await self.sure(lambda: self.scripts.beat(sid, ttl=3000, node="n"))
        finally:
            await self.channel.close()


def how_it_ended(server: Server, scope: Scope) -> dict[str, Any]:
    """What is left in the store of a run that is over."""
    client = server.client()
    meta = {k.decode(): int(v) for k, v in client.hgetall(scope.key("meta")).items() if v.isdigit()}
    held = client.keys(scope.key("held:*").replace("{", "?").replace("}", "?"))
    return {
        "left": client.hlen(scope.key("state")) + client.hlen(scope.key("payload")) + client.zcard(scope.key("ready")),
        "held": sum(client.hlen(key) for key in held),
        "done": meta.get("done"),
        "accepted": meta.get("accepted"),
        "failed": meta.get("failed", 0) + meta.get("died", 0) + meta.get("taken_over", 0),
    }


@pytest.mark.parametrize("verb", VERBS)
def test_a_reply_of_each_verb(server: Server, relay: Relay, verb: str) -> None:
    """Whichever reply of whichever verb is lost: nothing is held by nobody, nothing is granted twice, all is done."""
    k, orders = 0, []
    while not orders or orders[-1].is_done:
        k += 1
        scope = Namespace("replies").scope(f"{verb}-{k}-{secrets.token_hex(3)}")
        worker = Worker(relay.url, scope, "n")
        orders.append(relay.swallow(k, sha(verb)))
        asyncio.run(worker.work())
        assert how_it_ended(server, scope) == {"left": 0, "held": 0, "done": ITEMS, "accepted": ITEMS, "failed": 0}
        assert worker.refused == 0
        assert len({(grant.digest, grant.fence) for grant in worker.granted}) == len(worker.granted)
    assert k > 1, f"{verb} was never called"


IN_A_CRAWL = ["beat", "push", "lease", "settle", "reclaim", "close", "start"]
EACH = [([verb], [k]) for verb in IN_A_CRAWL for k in range(1, 9)]


@pytest.mark.parametrize("queue", ["redis", "local"])
@pytest.mark.parametrize(("verbs", "ks"), [(IN_A_CRAWL, [1, 2, 4]), *(EACH if LONG else [])], ids=str)
def test_replies_in_a_crawl(
    fleet: Callable[..., Fleet], server: Server, relay: Relay, verbs: list[str], ks: list[int], queue: str
) -> None:
    """A crawl whose replies get lost loses nothing else: it drains, and fetches each page once."""
    shop = fleet(products=40, latency=0.05)
    asks = {"redis": "push", "local": "claim"}[queue]
    verbs = [asks if verb == "push" else verb for verb in verbs]
    orders = [relay.swallow(k, sha(verb)) for verb in verbs for k in ks]
    node = shop.crawl("a", url=relay.url, per_page=7, settings={"LEASE_QUEUE": queue})
    shop.wait(timeout=25)
    assert all(order.is_done for order in orders[:: len(ks)]) or ks > [1]
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    assert node.stats["lease/session/lost"] == 0
    assert " ERROR: " not in node.log
    assert "did not take back" not in node.log
    ended = how_it_ended(server, Namespace("example").scope("s01_catalog"))
    assert ended == {"left": 0, "held": 0, "done": 46, "accepted": 46, "failed": 0}


def test_the_first_reply_of_a_crawl(fleet: Callable[..., Fleet], relay: Relay) -> None:
    """A crawl that gets no answer at first contact refuses; the session it may have opened costs others one TTL."""
    shop = fleet(products=10)
    relay.swallow(1, sha("open"))
    refused = shop.crawl("a", url=relay.url)
    assert refused.wait(10) == 1
    assert "LEASE_REDIS_URL" in refused.log
    assert not shop.hits()
    shop.wait([shop.crawl("b", url=relay.url)], timeout=15)
    assert not shop.verdict().lost
