"""The reader of a feed, step by step on a real server: who passes on what, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import CloseSpider

from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.feeds import reader as module
from scrapy_lease.feeds.data import request_from_data
from scrapy_lease.feeds.entries import Fed, take_origin
from scrapy_lease.feeds.reader import Reader
from scrapy_lease.feeds.sessions import Sessions
from scrapy_lease.leases.session import Session
from scrapy_lease.store.client import Channel
from scrapy_lease.store.feed_scripts import FeedScripts, Taken
from scrapy_lease.store.keys import FeedKeys, Namespace
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from scrapy_lease.store.tools import Tools
from tests.helpers.servers import Server

FEED = "feed"
SCOPE = Namespace("ns").scope("job")


class Forgetful(FeedScripts):
    """Scripts whose next replies are lost: the server has done what it was asked."""

    lost = 0

    async def take(self, sid: str, want: int) -> Taken:
        taken = await super().take(sid, want)
        if self.lost:
            self.lost -= 1
            raise StoreUnavailable("the reply was lost")
        return taken


class Node:
    """A session with its reader, and a scheduler that takes in what is read."""

    def __init__(self, world: World, batch: int = 10, max_idle: float = 0.0) -> None:
        self.session = Session(node="n", ttl=30.0, config="c", fresh=True, info={})
        self.world = world
        sessions = Sessions(Tools(world.channel(), SCOPE.namespace), SCOPE)
        self.scripts: Forgetful | None = None
        self.reader = Reader(
            self.session, sessions, self.connect, lambda data: request_from_data(data, "utf-8"), batch=batch,
            max_idle=max_idle,
        )  # fmt: skip
        self.reading: AsyncIterator[Request] = self.reader.requests()
        #: The entries whose requests have arrived and are not pushed yet.
        self.unpushed: list[Fed] = []

    def connect(self, store: str) -> FeedScripts:
        self.scripts = Forgetful(self.world.channel(), FeedKeys(FEED, "ns", store), "list")
        return self.scripts

    async def read(self, number: int) -> list[str]:
        """Take in so many requests, as the engine does, and return their URLs."""
        found = []
        for _ in range(number):
            request = await asyncio.wait_for(anext(self.reading), 5)
            origin = take_origin(request)
            assert origin is not None
            origin.fed.unsafe += 1
            self.unpushed.append(origin.fed)
            found.append(request.url.rpartition("/")[2])
        return found

    def push(self) -> None:
        """The pushes of all that arrived are answered."""
        for fed in self.unpushed:
            fed.unsafe -= 1
        self.unpushed.clear()

    async def idle(self) -> None:
        """Let the reader look, settle and find nothing."""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(self.reading), 0.3)
        self.reading = self.reader.requests()


class World:
    """A server with a feed, and what is open on it."""

    def __init__(self, runner: asyncio.Runner, server: Server) -> None:
        self.run: Callable[..., Any] = runner.run
        self.client = server.client()
        self.server = server
        self.channels: list[Channel] = []

    def channel(self) -> Channel:
        self.channels.append(Channel(self.server.url, "server", 5, StoreStats()))
        return self.channels[-1]

    async def node(self, **options: Any) -> Node:
        node = Node(self, **options)
        await node.session.open(Scripts(self.channel(), SCOPE))
        return node

    def feed(self, *names: str) -> None:
        self.client.rpush(FEED, *(f"http://a.test/{name}" for name in names))

    def left(self) -> list[str]:
        return [entry.decode().rpartition("/")[2] for entry in self.client.lrange(FEED, 0, -1)]

    def accounts(self) -> int:
        """How many entries are on an account."""
        return sum(self.client.hlen(key) for key in self.client.keys("*taken*"))


@pytest.fixture
def world(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "ROUND", 0.0)
    with asyncio.Runner() as runner:
        world = World(runner, server)
        yield world
        for channel in world.channels:
            runner.run(channel.close())


def test_an_entry_stays_on_the_account_until_it_is_pushed(world: World) -> None:
    """Not when it was read, not when its request arrived: when the push was answered."""

    async def play() -> None:
        node = await world.node()
        world.feed("1", "2")
        assert await node.read(2) == ["1", "2"]
        await node.idle()
        assert world.accounts() == 2
        node.push()
        await node.idle()
        assert world.accounts() == 0

    world.run(play())


@pytest.mark.parametrize("lost", [1, 3])
def test_what_a_lost_reply_told_is_read_all_the_same(world: World, lost: int) -> None:
    """Takes whose replies are lost: every entry is passed on, once, and no more than a batch is taken meanwhile."""

    async def play() -> None:
        node = await world.node(batch=2)
        await node.idle()
        assert node.scripts is not None
        node.scripts.lost = lost
        world.feed("1", "2", "3", "4", "5")
        assert sorted(await node.read(2)) == ["1", "2"]
        assert world.left() == ["3", "4", "5"]
        assert await node.read(3) == ["3", "4", "5"]
        node.push()
        await node.idle()

    world.run(play())
    assert world.accounts() == 0


def test_only_the_entries_of_who_is_over_are_taken_over(world: World) -> None:
    """Those of a live session are left to it; when it is over they come with the keys that they had."""

    async def play() -> None:
        first, second = await world.node(), await world.node()
        world.feed("1", "2")
        await first.read(2)
        await second.idle()
        keys = {fed.key(1) for fed in first.unpushed}
        await first.session.close(Scripts(world.channel(), SCOPE))
        assert sorted(await second.read(2)) == ["1", "2"]
        assert {fed.key(1) for fed in second.unpushed} == keys
        await second.idle()
        assert world.accounts() == 2
        second.push()
        await second.idle()
        # Who was slow and not dead settles the same entries, in vain.
        first.push()
        await first.idle()

    world.run(play())
    assert world.accounts() == 0
    assert world.left() == []


def test_who_leaves_settles_and_gives_back(world: World) -> None:
    """What is pushed is done, what has not arrived is in the feed again, in order; then it only waits."""

    async def play() -> None:
        node = await world.node(batch=4)
        world.feed(*"12345")
        assert await node.read(2) == ["1", "2"]
        node.push()
        await node.reader.leave()
        assert world.left() == ["3", "4", "5"]
        assert world.accounts() == 0
        await node.idle()

    world.run(play())


def test_what_others_may_have_is_not_given_back(world: World) -> None:
    """Neither what a session took that is not known to live, nor what was taken over: it would be fetched twice."""

    async def play() -> None:
        lost, heir = await world.node(), await world.node()
        world.feed("1", "2", "3")
        await lost.read(1)
        await lost.session.close(Scripts(world.channel(), SCOPE))
        await lost.reader.leave()
        await heir.read(1)
        await heir.reader.leave()
        assert world.left() == []
        assert world.accounts() == 3

    world.run(play())


def test_what_was_given_back_is_not_taken_in(world: World) -> None:
    """A request that arrives after its entry went back to the feed belongs to whoever reads it there."""

    async def play() -> None:
        node = await world.node()
        world.feed("1")
        request = await anext(node.reading)
        await node.reader.leave()
        assert world.left() == ["1"]
        origin = take_origin(request)
        assert origin is not None
        assert origin.fed.is_settled

    world.run(play())


def test_reading_ends_only_when_nobody_has_work(world: World) -> None:
    """Idle is: nothing fed, nothing on the account of anybody, nothing pending or leased in the job."""

    async def play() -> None:
        node, other = await world.node(max_idle=0.2), await world.node()
        world.feed("1")
        await other.read(1)
        world.client.hset(SCOPE.key("state"), "digest", "item")
        ending = asyncio.ensure_future(anext(node.reading))
        await asyncio.sleep(1.5)
        assert not ending.done()
        other.push()
        await other.idle()
        await asyncio.sleep(1.5)
        assert not ending.done()
        world.client.delete(SCOPE.key("state"))
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(ending, 5)

    world.run(play())


def test_a_feed_that_cannot_be_read_closes_the_crawl(world: World) -> None:
    """What waiting does not cure is no reason to wait."""

    async def play() -> None:
        node = await world.node()
        world.client.set(FEED, "text")
        with pytest.raises(CloseSpider) as caught:
            await anext(node.reading)
        assert caught.value.reason == "lease_feed_refused"

    world.run(play())
