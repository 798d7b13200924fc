"""Nodes that are told to leave: what they hold is back in the backlog at once, nothing counts against it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

SLOW = """
class Slow(ShopSpider):
    seconds = "2"

    async def start(self):
        for number in range(1, 31):
            yield self.page(f"/slow/{number}?s={self.seconds}")
"""
SETTINGS = {"CONCURRENT_REQUESTS": 4, "LEASE_TTL": 30, "LEASE_WINDOW": 20}


@pytest.mark.each_server
def test_a_node_that_leaves_hands_everything_back_at_once(fleet: Callable[..., Fleet], server: Server) -> None:
    """SIGTERM: what was being sent is waited for, the window is pending again, without an attempt or a death."""
    shop = fleet(products=30)
    node = crawl(shop, "n0", SLOW, settings=SETTINGS, seconds="1")
    shop.wait_for_hits(4, "/slow/")
    node.terminate()
    assert node.wait(8) == 0
    done = paths_of(items_of(shop))
    assert paths_of(shop.hits("/slow/")) == done
    records = records_of(server.client())
    assert len(records) == 30 - len(done)
    assert {(record.state, record.attempts, record.deaths) for record in records} == {("pending", 0, 0)}


def test_what_a_leaving_node_had_goes_to_the_others_at_once(fleet: Callable[..., Fleet]) -> None:
    """The other node gets what a leaving one held without waiting for the time to live (30 s here)."""
    shop = fleet(products=30)
    leaving = crawl(shop, "n0", SLOW, settings=SETTINGS, seconds="0.5")
    shop.wait_for_hits(4, "/slow/")
    other = crawl(shop, "n1", SLOW, settings=SETTINGS, seconds="0.5")
    shop.wait_for_hits(14, "/slow/")
    leaving.terminate()
    left_at = time.monotonic()
    assert leaving.wait(8) == 0
    shop.wait([other])
    assert time.monotonic() - left_at < 12
    assert Counter(paths_of(items_of(shop))) == Counter(f"/slow/{number}?s=0.5" for number in range(1, 31))
    assert Counter(paths_of(shop.hits("/slow/"))) == Counter(paths_of(items_of(shop)))


def test_a_second_sigterm_exits(fleet: Callable[..., Fleet], server: Server) -> None:
    """A second SIGTERM ends a node that waits for a page of 30 s; what it held is taken over when it has expired."""
    shop = fleet(products=30)
    node = crawl(shop, "n0", SLOW, settings={**SETTINGS, "LEASE_TTL": 3}, seconds="30")
    shop.wait_for_hits(4, "/slow/")
    node.terminate()
    node.wait_for("Received SIGTERM, shutting down gracefully")
    time.sleep(0.5)
    assert node.is_running
    node.terminate()
    assert node.wait(5) == 0
    assert len(records_of(server.client())) == 30
    heir = crawl(shop, "n1", SLOW, settings=SETTINGS, seconds="30")
    shop.wait_for_hits(8, "/slow/", timeout=15)
    heir.end()


def test_the_reader_of_start_leaves(fleet: Callable[..., Fleet]) -> None:
    """The session that reads start() is told to leave half way: another reads it at once, each page is fetched once."""
    shop = fleet(products=40)
    source = """
        class Reader(ShopSpider):
            async def start(self):
                self.logger.info("Reading")
                for number in range(1, 41):
                    yield self.page(f"/product/{number}", dont_filter=bool(number % 2))
                    await asyncio.sleep(0.2)
        """
    nodes = [crawl(shop, f"n{number}", source, settings=SETTINGS) for number in range(2)]
    for node in nodes:
        node.wait_for("Spider opened")
    shop.wait_for_hits(3)
    reader, other = sorted(nodes, key=lambda node: "Reading" not in node.log)
    reader.terminate()
    assert reader.wait(8) == 0
    left_at = time.monotonic()
    shop.wait([other])
    assert time.monotonic() - left_at < 15
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
