"""Readers of a feed that die, servers that go: no entry is lost, none is fetched twice but what was in flight."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from scrapy_lease.store.calls import Script
from tests.helpers.feeds import FEED, crawl_feed, feed, left_behind, urls
from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.relay import Relay
from tests.helpers.servers import Server
from tests.helpers.spiders import items_of, paths_of, seeds

WENT, CAME = "The feed's server", "is back after"


def judge(shop: Fleet, victim: Node) -> None:
    """Nothing lost; fetched again only what *victim* had in flight when it was killed."""
    assert set(paths_of(items_of(shop))) == set(shop.expected)
    hits = shop.hits("/product/")
    twice = {path for path, number in Counter(paths_of(hits)).items() if number > 1}
    assert victim.killed_at is not None
    in_flight = {
        hit.path for hit in hits if hit.node == victim.name and (hit.ended or victim.killed_at) > victim.killed_at - 0.5
    }
    assert twice <= in_flight
    assert max(Counter(paths_of(hits)).values()) <= 2


@pytest.mark.parametrize("mode", ["one", "each"])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_reader_is_killed(fleet: Callable[..., Fleet], server: Server, seed: int, mode: str) -> None:
    """lpush of 500 URLs to two nodes, one SIGKILLed at a random moment: 500 are fetched, no key is left."""
    shop, client, chance = fleet(products=500, latency=0.02), server.client(), random.Random(seed)
    nodes = [crawl_feed(shop, f"n{number}", idle=5, settings={"LEASE_START": mode}) for number in range(2)]
    for node in nodes:
        node.wait_for("Spider opened")
    feed(client, "list", *urls(shop))
    shop.wait_for_hits(chance.randrange(1, 300))
    victim = chance.choice(nodes)
    victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    judge(shop, victim)
    assert left_behind(client) == []


def test_a_reader_is_killed_and_nobody_is_left(fleet: Callable[..., Fleet], server: Server) -> None:
    """The only node is killed while it reads: the next crawl takes over what it had taken, and loses nothing."""
    shop, client = fleet(products=300, latency=0.01), server.client()
    feed(client, "list", *urls(shop))
    victim = crawl_feed(shop, "n0", settings={"LEASE_START_AHEAD": 50, "CONCURRENT_REQUESTS": 4})
    shop.wait_for_hits(20)
    victim.kill()
    assert client.llen(FEED) > 0
    shop.wait([crawl_feed(shop, "n1")])
    judge(shop, victim)
    assert left_behind(client) == []


@pytest.mark.parametrize("script", ["feed_take", "feed_settle", "push"])
def test_a_reader_dies_between_two_servers(
    fleet: Callable[..., Fleet], server: Server, make_server: Callable[..., Server], script: str
) -> None:
    """Killed when the reply to a take, a push or a settle is lost, with feed and store on two servers: all is fetched.

    Twice only what had been fetched before the kill, which may have been in flight.
    """
    other = make_server()
    client = other.client()
    shop = fleet(products=40)
    for each in (other, server):
        each.client().script_load(_script(script).source)
    feed(client, "list", *urls(shop))
    with Relay(other.url) as feeds, Relay(server.url) as store:
        relay = store if script == "push" else feeds
        lost = relay.swallow(1, _calls_of(script))
        settings = {"REDIS_URL": feeds.url, "LEASE_REDIS_URL": store.url, "LEASE_STORE_TIMEOUT": "30"}
        victim = crawl_feed(shop, "n0", settings=settings, url=store.url)
        assert lost.wait(20)
        victim.kill()
    before = len(shop.hits("/product/"))
    heir = crawl_feed(shop, "n1", settings={"REDIS_URL": other.url})
    shop.wait([heir])
    assert set(paths_of(items_of(shop))) == set(shop.expected)
    assert len(shop.hits("/product/")) <= 40 + before
    assert left_behind(client) == []


def _calls_of(script: str) -> Callable[[bytes], bool]:
    """Tell whether a frame calls *script*, by its digest or its text."""
    known = _script(script)
    return lambda frame: known.sha.encode() in frame or known.source in frame


def _script(name: str) -> Script:
    """Return a script as the servers of these tests have it."""
    return Script.load(name, shebang=True)


@pytest.mark.parametrize("script", ["feed_take", "feed_settle", "push"])
@pytest.mark.parametrize("seed", seeds(1))
def test_replies_are_lost(fleet: Callable[..., Fleet], server: Server, script: str, seed: int) -> None:
    """A reply to a take, a settle or a push is lost in mid-crawl: each page is fetched once."""
    shop, client, chance = fleet(products=200), server.client(), random.Random(seed)
    client.script_load(_script(script).source)
    feed(client, "list", *urls(shop))
    with Relay(server.url) as relay:
        lost = [relay.swallow(k, _calls_of(script)) for k in sorted(chance.sample(range(1, 8), 2))]
        node = crawl_feed(shop, "n0", settings={"LEASE_STORE_TIMEOUT": "1"}, url=relay.url)
        shop.wait([node])
    assert lost[0].is_done
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
    assert left_behind(client) == []


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_the_server_of_the_feed_goes_and_comes_back(
    fleet: Callable[..., Fleet], make_server: Callable[..., Server], how: str
) -> None:
    """The feed's own server is killed or frozen: one line when it goes, one when it is back, nothing lost or doubled.

    What is in the backlog is fetched meanwhile, and a crawl does not end for want of work that it cannot see.
    """
    feeds = make_server()
    shop = fleet(products=300, latency=0.05)
    feed(feeds.client(), "list", *urls(shop))
    settings = {"REDIS_URL": feeds.url, "LEASE_STORE_TIMEOUT": "1", "LEASE_START_AHEAD": 20}
    nodes = [crawl_feed(shop, name, idle=3, settings={**settings, "LEASE_START": "each"}) for name in ("a", "b")]
    shop.wait_for_hits(40)
    gone, back = (feeds.kill, feeds.start) if how == "kill" else (feeds.pause, feeds.resume)
    gone()
    time.sleep(5)
    assert all(node.is_running for node in nodes)
    back()
    shop.wait(nodes)
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
    assert left_behind(feeds.client()) == []
    for node in nodes:
        lines = [line for line in node.log.splitlines() if WENT in line]
        assert [CAME in line for line in lines] == [False, True], lines
        assert "Traceback" not in node.log


def test_the_feed_is_away_when_the_crawl_starts_and_ends(
    fleet: Callable[..., Fleet], make_server: Callable[..., Server]
) -> None:
    """A crawl waits for the server of its feed from the start, and leaves promptly while it is away."""
    feeds = make_server()
    feed(feeds.client(), "list", "x")
    feeds.kill()
    shop = fleet(products=3)
    node = crawl_feed(shop, "n0", settings={"REDIS_URL": feeds.url, "LEASE_STORE_TIMEOUT": "1"})
    node.wait_for("The feed's server .* went away")
    feeds.start()
    feeds.client().delete(FEED)
    feed(feeds.client(), "list", *urls(shop))
    shop.wait_for_hits(3)
    feeds.kill()
    began = time.monotonic()
    node.terminate()
    assert node.wait(12) == 0
    assert time.monotonic() - began < 10
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)


def test_the_store_goes_and_comes_back(fleet: Callable[..., Fleet], own_server: Server, server: Server) -> None:
    """The lease store, on another server than the feed, is killed while a feed is read: each page is fetched once."""
    shop, client = fleet(url=own_server.url, products=300, latency=0.05), server.client()
    feed(client, "list", *urls(shop))
    settings = {"REDIS_URL": server.url, "LEASE_START_AHEAD": 20, "LEASE_STORE_TIMEOUT": "1"}
    node = crawl_feed(shop, "n0", settings=settings)
    shop.wait_for_hits(40)
    own_server.kill()
    time.sleep(0.5)
    own_server.start()
    shop.wait([node])
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
    assert left_behind(client) == []


def test_two_stores_and_one_feed(
    fleet: Callable[..., Fleet], server: Server, make_server: Callable[..., Server]
) -> None:
    """Crawls of two stores share a feed: neither takes the other's entries for those of the dead."""
    feeds, second = make_server(), make_server()
    client = feeds.client()
    shop = fleet(products=60, latency=0.3)
    settings: dict[str, Any] = {"REDIS_URL": feeds.url}
    stores = enumerate((server.url, second.url))
    nodes = [crawl_feed(shop, f"n{number}", idle=5, settings=settings, url=url) for number, url in stores]
    for node in nodes:
        node.wait_for("Spider opened")
    feed(client, "list", *urls(shop))
    shop.wait(nodes)
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
    assert until(lambda: left_behind(client) == [], 5)


def test_a_reader_is_asked_to_leave(fleet: Callable[..., Fleet], server: Server) -> None:
    """SIGTERM to the node that reads: another reads on, each page is fetched once or was cut off, no key is left."""
    shop, client = fleet(products=400, latency=0.03), server.client()
    settings = {"LEASE_START_AHEAD": 20, "CONCURRENT_REQUESTS": 8}
    nodes = [crawl_feed(shop, f"n{number}", idle=5, settings=settings) for number in range(2)]
    for node in nodes:
        node.wait_for("Spider opened")
    feed(client, "list", *urls(shop))
    shop.wait_for_hits(40)
    reader = server.client().hget("{scrapybot:0}:job:shop:start", "reader").decode()
    leaving = next(node for node in nodes if f"Session {reader} " in node.log)
    leaving.terminate()
    shop.wait(nodes)
    assert set(paths_of(items_of(shop))) == set(shop.expected)
    assert max(Counter(paths_of(items_of(shop))).values()) == 1
    assert left_behind(client) == []
