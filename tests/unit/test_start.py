"""Who reads start(), how it is paced, and when this session says that it produces nothing more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.leases.session import Session
from scrapy_lease.scheduler import start as module
from scrapy_lease.scheduler.start import Start
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server
from tests.state.store import Store

pytestmark = pytest.mark.one_server

Sizes = Callable[[], tuple[int, int]]


class Node:
    """A session and its reading of start()."""

    def __init__(self, scripts: Scripts, mode: str, ahead: int = 10, sizes: Sizes = lambda: (0, 0)) -> None:
        self.session = Session(node="n", ttl=5.0, config="c", fresh=True, info={})
        fingerprinter = RequestFingerprinter(get_crawler())
        self.scripts = scripts
        self.start = Start(self.session, scripts, fingerprinter, mode, ahead, sizes)

    async def open(self) -> Node:
        await self.session.open(self.scripts)
        return self


class World:
    """A loop, scripts over a real server, and its clock."""

    def __init__(self, runner: asyncio.Runner, server: Server) -> None:
        scope = Namespace("ns").scope("job")
        self.run = runner.run
        self.scripts = Scripts(Channel(server.url, server.url, 10, StoreStats()), scope)
        self.store = Store(server.client(), scope)

    def node(self, mode: str = "one", **options: Any) -> Node:
        return self.run(Node(self.scripts, mode, **options).open())

    def producing(self, *nodes: Node) -> list[bool]:
        """Which of these sessions the store counts as producing."""
        producing = self.store.read([]).producing
        return [node.session.sid in producing for node in nodes]


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    with asyncio.Runner() as runner:
        world = World(runner, server)
        yield world
        runner.run(world.scripts.channel.close())


async def at_once(waiting: Any) -> Any:
    """The result of what must not take long."""
    return await asyncio.wait_for(waiting, 5)


def test_one_reads_and_the_others_find_it_read(world: World) -> None:
    """The first to ask reads; another waits until that one has finished, and then has nothing to read."""
    reader, other = world.node(), world.node()

    async def play() -> None:
        assert await reader.start.is_mine()
        waiting = asyncio.ensure_future(other.start.is_mine())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        reader.start.ended()
        await reader.start.finish()
        assert not await at_once(waiting)

    world.run(play())
    assert not other.start.was_over
    late = world.node()
    assert not world.run(late.start.is_mine())
    assert late.start.was_over


def test_another_takes_over_when_the_reader_dies(world: World) -> None:
    """A reader whose deadline passes is replaced by who waits."""
    reader = world.node()
    assert world.run(reader.start.is_mine())
    world.store.pass_time(4000)
    other = world.node()
    world.store.pass_time(2000)
    assert world.run(at_once(other.start.is_mine()))


@pytest.mark.parametrize(("mode", "others", "awaited"), [("one", 0, False), ("one", 1, True), ("each", 1, False)])
def test_others_wait_for_what_one_reads(world: World, mode: str, others: int, awaited: bool) -> None:
    """Only where one session reads for all, and there are others, do they wait for what it yields."""
    reader = world.node(mode)
    for _ in range(others):
        world.node(mode)
    world.run(reader.session.beat(world.scripts))
    assert reader.start.is_awaited == awaited


def test_each_reads_where_each_is_to(world: World) -> None:
    """With "each" nobody waits for anybody, also after one has finished."""
    first, second = world.node("each"), world.node("each")
    assert world.run(at_once(first.start.is_mine()))
    first.start.ended()
    world.run(first.start.finish())
    assert world.run(at_once(second.start.is_mine()))


def test_a_store_that_is_away_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """is_mine() asks again when the store does not answer, and when the session was lost meanwhile."""
    node = world.node()
    claim, asked = world.scripts.start, 0

    async def shaky(sid: str, verb: str, mode: str) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnavailable("no answer")
        if asked == 2:
            node.session.lose()
        elif asked == 3:
            world.store.pass_time(6000)
            await node.session.open(world.scripts)
        return await claim(node.session.sid, verb, mode)

    monkeypatch.setattr(world.scripts, "start", shaky)
    assert world.run(at_once(node.start.is_mine()))
    assert asked == 3


def test_finish_says_once_that_nothing_more_comes(world: World) -> None:
    """Nothing is told before start() has ended, and nothing twice; then the session is no longer producing."""
    node = world.node()
    world.run(node.start.is_mine())
    world.run(node.start.finish())
    assert (node.start.has_ended, node.start.is_finished, world.producing(node)) == (False, False, [True])
    node.start.ended()
    assert (node.start.has_ended, node.start.is_finished) == (True, False)
    world.run(node.start.finish())
    assert (node.start.has_ended, node.start.is_finished, world.producing(node)) == (False, True, [False])
    calls = world.scripts.channel.stats.commands
    world.run(node.start.finish())
    assert world.scripts.channel.stats.commands == calls


def test_a_new_session_says_it_again(world: World) -> None:
    """After a loss the new session is producing until it has told so itself."""
    node = world.node()
    world.run(node.start.is_mine())
    node.start.ended()
    world.run(node.start.finish())
    node.session.lose()
    world.run(node.open())
    assert (node.start.is_finished, world.producing(node)) == (False, [True])
    world.run(node.start.finish())
    assert (node.start.is_finished, world.producing(node)) == (True, [False])


@pytest.mark.each_server
def test_a_new_server_is_told_again(own_server: Server) -> None:
    """A server that restarted may have forgotten it, also where it gives its generation a number that was in use."""
    with asyncio.Runner() as runner:
        world = World(runner, own_server)
        node = world.node()
        world.run(node.start.is_mine())
        node.start.ended()
        world.run(node.start.finish())
        generation = node.session.generation
        own_server.client().hset("{ns:0}:clock", "generation", generation - 1)
        own_server.client().sadd("{ns:0}:job:job:producing", node.session.sid)
        own_server.restart()
        with contextlib.suppress(StoreUnavailable):
            world.run(node.session.beat(world.scripts))
        world.run(node.session.beat(world.scripts))
        assert node.session.generation == generation
        assert (node.start.is_finished, node.start.has_ended) == (False, True)
        world.run(node.start.finish())
        assert (node.start.is_finished, world.producing(node)) == (True, [False])
        world.run(world.scripts.channel.close())


def test_who_found_it_read_only_leaves(world: World) -> None:
    """A session that did not read does not end start() for those that come later; it only stops producing."""
    reader, other = world.node(), world.node()
    world.run(reader.start.is_mine())
    other.start.ended()
    world.run(other.start.finish())
    assert world.producing(reader, other) == [True, False]
    world.store.pass_time(6000)
    assert world.run(at_once(world.node().start.is_mine()))


def test_occurrences_are_counted_by_kind(world: World) -> None:
    """With dont_filter the n-th request of a fingerprint has number n; any other has 1, and each is asked once."""
    start = Node(world.scripts, "each").start
    again = [Request("http://site.example/?a=1&b=2", dont_filter=True) for _ in range(2)]
    again.append(Request("http://site.example/?b=2&a=1", dont_filter=True))
    plain = [Request("http://site.example/x") for _ in range(2)]
    for request in (*again, *plain):
        start.yielded(request)
    assert [start.occurrence_of(request) for request in (*again, *plain)] == [1, 2, 3, 1, 1]
    assert start.occurrence_of(again[0]) == 0, "the engine schedules a request that start() yielded once"
    assert start.occurrence_of(Request("http://site.example/page")) == 0


def test_a_fingerprinter_that_fails_counts_by_url(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user's fingerprinter raises does not end start(): it is told where the key is made."""
    start = Node(world.scripts, "each").start
    monkeypatch.setattr(start, "_fingerprint_of", lambda request: 1 / 0)
    requests = [Request(f"http://site.example/{name}", dont_filter=True) for name in "aab"]
    for request in requests:
        start.yielded(request)
    assert [start.occurrence_of(request) for request in requests] == [1, 2, 1]


@pytest.mark.parametrize("sizes", [(11, 0), (0, module.BUFFER + 1)], ids=["backlog", "here"])
def test_start_waits_while_enough_is_pending(world: World, sizes: tuple[int, int]) -> None:
    """pace() returns only when no more than LEASE_START_AHEAD is pending, nor too much waits here to be pushed."""
    now = [sizes]
    start = Node(world.scripts, "one", ahead=10, sizes=lambda: now[0]).start

    async def play() -> None:
        pacing = asyncio.ensure_future(start.pace())
        await asyncio.sleep(0.15)
        assert not pacing.done()
        now[0] = (10, module.BUFFER)
        await at_once(pacing)

    world.run(play())


def test_start_gives_the_reactor_a_turn(world: World) -> None:
    """A start() that yields without awaiting lets others run after SLICE s."""
    start = Node(world.scripts, "one").start

    async def play() -> int:
        turns = 0
        done = False

        async def other() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        end = time.monotonic() + 10
        while turns < 5 and time.monotonic() < end:
            await start.pace()
        done = True
        await task
        return turns

    assert world.run(play()) >= 5


def test_its_repr_tells_the_state(world: World) -> None:
    """The state shows without a debugger."""
    start = Node(world.scripts, "one").start
    assert repr(start) == "<Start one: reading>"
    start.ended()
    assert repr(start) == "<Start one: read>"
