"""Nodes and stores that die under schedulers that the user chose."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from scrapy_lease.store.calls import Script
from tests.helpers.fleet import Fleet, until
from tests.helpers.foreign import plain, scrapy_redis, together
from tests.helpers.relay import Relay
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, items_of, paths_of, records_of, scope_of

pytestmark = pytest.mark.one_server

#: Lists of ten products each, of which each page links to the next.
SHOP = """
    class Shop(ShopSpider):
        async def start(self):
            await self.all_are_here()
            yield self.page("/lists?page=1&per_page=10", callback=self.parse_list)

        def parse_list(self, response):
            for path in response.css("a::attr(href)").getall():
                callback = self.parse_list if "lists" in path else self.parse
                yield response.follow(path, callback=callback, priority=int("lists" in path))
    """
SLOW = """
    class Slow(ShopSpider):
        async def start(self):
            for number in range(1, 31):
                yield self.page(f"/slow/{number}?s={self.seconds}")
    """


@pytest.mark.each_server
def test_four_nodes_with_the_scheduler_of_scrapy_redis(fleet: Callable[..., Fleet], server: Server) -> None:
    """Four live nodes with one queue in Redis: each product is fetched once and reaches the pipelines once."""
    shop = fleet(products=120, latency=0.2)
    nodes = together(shop, 4, SHOP, lambda: scrapy_redis(server.url, CONCURRENT_REQUESTS=4))
    shop.wait(nodes)
    assert Counter(paths_of(shop.hits("/product/"))) == dict.fromkeys(shop.expected, 1)
    assert paths_of(items_of(shop)) == sorted(shop.expected)
    assert len({hit.node for hit in shop.hits("/product/")}) > 1
    assert not records_of(server.client())


def test_one_of_four_is_killed(fleet: Callable[..., Fleet], server: Server) -> None:
    """One of four is SIGKILLed: what it had in flight is fetched by the others, nothing else twice, nothing is lost."""
    shop = fleet(products=100, latency=0.2)
    nodes = together(shop, 4, SHOP, lambda: scrapy_redis(server.url, CONCURRENT_REQUESTS=4))
    shop.wait_for_hits(30)
    victim = until(lambda: next((hit.node for hit in shop.hits("/product/") if hit.ended is None), None))
    node = next(node for node in nodes if node.name == victim)
    kill = node.kill()
    shop.wait([other for other in nodes if other is not node])
    hits = shop.hits("/product/")
    assert {hit.path for hit in hits if hit.status == 200} == set(shop.expected)
    assert set(paths_of(items_of(shop))) == set(shop.expected)
    in_flight = {hit.path for hit in hits if hit.node == victim and (hit.ended or kill.at) > kill.at - 0.5}
    assert {path for path, number in Counter(paths_of(hits)).items() if number > 1} <= in_flight
    assert not records_of(server.client())


def test_a_host_that_dies_is_replaced_by_one_with_the_same_list(fleet: Callable[..., Fleet]) -> None:
    """Two hosts, each with its own scheduler, one SIGKILLed while it fetches the first list: nothing is lost."""
    shop = fleet(products=30, latency=0.3)
    nodes = together(shop, 2, SHOP, lambda: plain(CONCURRENT_REQUESTS=4))
    first = until(lambda: shop.hits("/lists"))[0]
    victim = next(node for node in nodes if node.name == first.node)
    victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    assert paths_of(items_of(shop)) == sorted(shop.expected)


def test_a_node_that_leaves_ends_promptly(fleet: Callable[..., Fleet], server: Server) -> None:
    """SIGTERM with a delay between requests: what waits for its turn is not sent any more; nothing stays held."""
    shop = fleet(products=30)
    node = crawl(shop, "n0", SLOW, settings=plain(DOWNLOAD_DELAY=1), seconds="0.1")
    shop.wait_for_hits(2, "/slow/")
    node.terminate()
    at = time.monotonic()
    assert node.wait(8) == 0
    assert time.monotonic() - at < 5
    assert len(shop.hits("/slow/")) <= 4
    records = records_of(server.client())
    assert {(record.state, record.attempts, record.deaths) for record in records} == {("pending", 0, 0)}


def test_a_frozen_node_is_taken_over_from(fleet: Callable[..., Fleet]) -> None:
    """SIGSTOP beyond the time to live: the other host takes over; awake, its stale results reach no pipeline."""
    shop = fleet(products=30)
    settings = {"CONCURRENT_REQUESTS": 4}
    sleeper = crawl(shop, "n0", SLOW, settings=plain(**settings), seconds="0.4")
    shop.wait_for_hits(6, "/slow/")
    sleeper.pause()
    paused_at = time.monotonic()
    frozen = {hit.path for hit in shop.hits("/slow/") if hit.ended is None}
    other = crawl(shop, "n1", SLOW, settings=plain(**settings), seconds="0.4")
    until(lambda: {hit.path for hit in shop.hits("/slow/") if hit.node == "n1"} & frozen, 30, "the takeover")
    sleeper.resume()
    shop.wait([sleeper, other])
    after = [item for item in items_of(shop) if item["mono"] > paused_at]
    assert set(paths_of(items_of(shop))) == {f"/slow/{number}?s=0.4" for number in range(1, 31)}
    assert max(Counter(paths_of(after)).values()) == 1
    assert sleeper.stats["lease/session/lost"] == 1


@pytest.mark.each_server
def test_the_store_is_killed_in_mid_crawl(
    fleet: Callable[..., Fleet], own_server: Server, make_server: Callable[..., Server]
) -> None:
    """The store dies and comes back: meanwhile nothing is fetched nor taken out of the scheduler, then all the rest."""
    queue = make_server()
    shop = fleet(url=own_server.url, products=40)
    source = """
        class Slow(ShopSpider):
            async def start(self):
                await self.all_are_here()
                for number in range(1, 41):
                    yield self.page(f"/slow/{number}?s=0.3", meta={"lease_item": None if number % 2 else False})
        """
    settings = scrapy_redis(queue.url, CONCURRENT_REQUESTS=4)
    nodes = together(shop, 2, source, lambda: settings)
    shop.wait_for_hits(12, "/slow/")
    own_server.kill()
    time.sleep(4.5)
    seen, waiting = len(shop.hits("/slow/")), queue.client().zcard("shop:requests")
    assert seen < 40
    assert waiting > 0
    time.sleep(1.5)
    assert (len(shop.hits("/slow/")), queue.client().zcard("shop:requests")) == (seen, waiting)
    own_server.start()
    shop.wait(nodes)
    items = Counter(paths_of(items_of(shop)))
    assert set(items) == {f"/slow/{number}?s=0.3" for number in range(1, 41)}
    assert max(items[f"/slow/{number}?s=0.3"] for number in range(1, 41, 2)) == 1


def test_a_node_leaves_while_the_store_is_frozen(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """SIGTERM while the store answers nothing: requests that wait for a lease hold nobody up; JOBDIR has them."""
    shop = fleet(url=own_server.url, products=30)
    settings = plain(CONCURRENT_REQUESTS=4, LEASE_STORE_TIMEOUT=2, JOBDIR=str(shop.folder / "job"))
    node = crawl(shop, "n0", SLOW, settings=settings, seconds="0.3")
    shop.wait_for_hits(6, "/slow/")
    own_server.pause()
    time.sleep(4)
    node.terminate()
    assert node.wait(12) == 0
    own_server.resume()
    shop.wait([crawl(shop, "n1", SLOW, settings=settings, seconds="0.3")])
    assert set(paths_of(items_of(shop))) == {f"/slow/{number}?s=0.3" for number in range(1, 31)}


def test_replies_get_lost(fleet: Callable[..., Fleet], server: Server, relay: Relay) -> None:
    """Leases that the store gave and of which nobody heard are this node's all the same: each page is fetched once."""
    shop = fleet(products=40, latency=0.05)
    calls = [Script.load(verb, shebang=True).sha.encode() for verb in ("claim", "settle")]
    orders = [relay.swallow(k, call) for call in calls for k in (1, 3)]
    shop.wait([shop.crawl("a", url=relay.url, per_page=7, settings=plain(CONCURRENT_REQUESTS=4))], timeout=40)
    assert all(order.is_done for order in orders)
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    assert not records_of(server.client(), scope_of(job="s01_catalog", namespace="example"))
