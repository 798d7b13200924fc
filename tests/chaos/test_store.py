"""The store goes away: killed, frozen, out of reach. The nodes wait, go on by themselves, and leave when told to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

LONG = os.environ.get("SCRAPY_LEASE_TEST_LONG") == "1"
TTL = 3.0

WENT, CAME = " went away ", " is back after "


@dataclass
class Outage:
    """When the store was away (monotonic, s)."""

    began: float
    ended: float = 0.0


@contextmanager
def outage(gone: Callable[[], object], back: Callable[[], object], seconds: float) -> Iterator[Outage]:
    """Take the store away for *seconds*, and for as long as the body runs."""
    away = Outage(time.monotonic())
    gone()
    try:
        yield away
        time.sleep(max(0.0, away.began + seconds - time.monotonic()))
    finally:
        back()
        away.ended = time.monotonic()


def judge(shop: Fleet, away: Outage) -> None:
    """Nothing lost; twice only what was in flight when the outage cost the session its certainty."""
    verdict = shop.verdict()
    assert not verdict.lost
    for path in verdict.twice:
        first, *others = [hit for hit in shop.hits("/product/") if hit.path == path]
        assert len(others) == 1, f"{path} was fetched {len(others) + 1} times"
        assert away.began - 1 < first.started < away.began + TTL, f"{path} was not in flight: {first}, {away}"
    if away.ended - away.began < 1:
        assert not verdict.twice


def speaks_once(node: Node, *, if_at_all: bool = False) -> None:
    """One line when the store goes, one when it is back, and nothing that alarms."""
    times = node.log.count(WENT)
    assert times == node.log.count(CAME), node.log
    assert times == 1 or (if_at_all and not times), node.log
    assert " ERROR: " not in node.log
    assert "Traceback" not in node.log


@pytest.mark.parametrize("seconds", [0.5, 5, *([6, 60] if LONG else [])])
def test_the_server_is_killed(fleet: Callable[..., Fleet], own_server: Server, seconds: float) -> None:
    """SIGKILL in mid-crawl and back: nothing lost, nothing twice but what was in flight, no hang."""
    shop = fleet(url=own_server.url, products=160, latency=0.2)
    nodes = [shop.crawl(name) for name in ("a", "b")]
    shop.wait_for_hits(30)
    with outage(own_server.kill, own_server.start, seconds) as away:
        pass
    shop.wait(timeout=30)
    judge(shop, away)
    for node in nodes:
        # Who made no call meanwhile did not notice.
        speaks_once(node, if_at_all=seconds < 1)


@pytest.mark.parametrize("seconds", [1.5, *([8, 60] if LONG else [])])
def test_the_server_is_killed_during_the_first_page(
    fleet: Callable[..., Fleet], own_server: Server, seconds: float
) -> None:
    """Nothing is known yet but the page that is in flight: it is not lost, and what it leads to is not either."""
    shop = fleet(url=own_server.url, products=30, latency=1)
    node = shop.crawl("a")
    shop.wait_for_hits(1, "/lists")
    with outage(own_server.kill, own_server.start, seconds) as away:
        pass
    shop.wait(timeout=30)
    judge(shop, away)
    speaks_once(node)


@pytest.mark.parametrize("seconds", [4, *([10] if LONG else [])])
def test_the_server_is_frozen(fleet: Callable[..., Fleet], own_server: Server, seconds: float) -> None:
    """A server that keeps its connections and says nothing is one that is away."""
    shop = fleet(url=own_server.url, products=160, latency=0.2)
    timeout = {} if seconds > 8 else {"LEASE_STORE_TIMEOUT": "2"}
    nodes = [shop.crawl(name, settings=timeout) for name in ("a", "b")]
    shop.wait_for_hits(30)
    with outage(own_server.pause, own_server.resume, seconds) as away:
        pass
    shop.wait(timeout=30)
    judge(shop, away)
    for node in nodes:
        speaks_once(node)


def test_a_node_leaves_while_the_store_is_away(fleet: Callable[..., Fleet], make_server: Callable[..., Server]) -> None:
    """SIGTERM ends a node within 15 s, however the store is away; what it held is not lost."""
    servers = [make_server() for _ in range(4)]
    with Relay(servers[2].url) as cut, Relay(servers[3].url) as frozen:
        urls = [servers[0].url, servers[1].url, cut.url, frozen.url]
        shop = fleet(products=200, latency=0.3)
        nodes = [shop.crawl(f"n{number}", url=url) for number, url in enumerate(urls)]
        for node in nodes:
            until(lambda node=node: sum(hit.node == node.name for hit in shop.hits("/product/")) > 10)
        servers[0].kill()
        servers[1].pause()
        cut.cut()
        frozen.freeze()
        time.sleep(2.5 if LONG else 1)
        began = time.monotonic()
        for node in nodes:
            node.terminate()
        shop.wait(nodes, timeout=15)
        assert time.monotonic() - began < 15
        for node in nodes:
            assert node.stats["finish_reason"] == "shutdown"
            assert "Traceback" not in node.log
        servers[0].start()
        heir = shop.crawl("heir", url=servers[0].url)
        shop.wait([heir], timeout=30)
    served = {hit.path for hit in shop.hits("/product/") if hit.node in ("n0", "heir")}
    assert served == set(shop.expected)


SLOW_CALLBACK = """
import asyncio
import scrapy

class Slow(scrapy.Spider):
    name = "slow"

    def __init__(self, base):
        self.start_urls = [f"{base}/product/{number}" for number in range(1, 9)]

    async def parse(self, response):
        self.logger.info("the callback begins")
        await asyncio.sleep(2.5)
        yield {"url": response.url}
"""


def test_a_node_leaves_with_results_that_are_not_certain(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A result that may not count while the store is away does not keep a node that is told to leave."""
    shop = fleet(url=own_server.url, products=8)
    node = shop.run("a", SLOW_CALLBACK)
    node.wait_for("the callback begins")
    own_server.kill()
    time.sleep(3.5)
    node.terminate()
    assert node.wait(5) == 0
    assert "item_scraped_count" not in node.stats
    own_server.start()
    heir = shop.run("heir", SLOW_CALLBACK)
    assert heir.wait(25) == 0
    assert heir.stats["item_scraped_count"] == 8


def test_a_node_closes_when_the_store_is_away_for_too_long(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """LEASE_STORE_DOWN_TIMEOUT ends the crawl with a reason of ours and exit status 0."""
    shop = fleet(url=own_server.url, products=200, latency=0.3)
    node = shop.crawl("a", settings={"LEASE_STORE_DOWN_TIMEOUT": "2"})
    shop.wait_for_hits(20)
    own_server.kill()
    began = time.monotonic()
    shop.wait(timeout=14)
    assert time.monotonic() - began > 2
    assert node.stats["finish_reason"] == "lease_store_unavailable"
    assert "LEASE_STORE_DOWN_TIMEOUT" in node.log


def test_a_node_leaves_before_it_has_begun(fleet: Callable[..., Fleet], relay: Relay) -> None:
    """A store that goes while a crawl starts does not keep the node that is told to leave."""
    relay.delay = 0.3
    shop = fleet(url=relay.url, products=10)
    node = shop.crawl("a")
    node.wait_for("Spider opened")
    relay.cut()
    time.sleep(0.5)
    node.terminate()
    assert node.wait(10) == 0
    assert not shop.hits()
