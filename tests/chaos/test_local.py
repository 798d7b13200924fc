"""Hosts that discover for themselves (``LEASE_QUEUE = "local"``) are killed, told to leave, and slow."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.servers import Server
from tests.helpers.spiders import LISTS, LOCAL, crawl, items_of, paths_of, records_of, seeds

pytestmark = pytest.mark.one_server

#: Chained list pages, each one list long in time.
SLOW_FIRST = """
class SlowFirst(ShopSpider):
    async def start(self):
        yield self.page("/slow/1?s=1.5", callback=self.parse_first)

    def parse_first(self, response):
        yield self.page("/lists?page=1&per_page=10", callback=self.parse_list)

    def parse_list(self, response):
        yield from response.follow_all(css="a.product")
        yield from response.follow_all(css="a.next", callback=self.parse_list)
"""


def local(shop: Fleet, number: int, source: str, **settings: object) -> Node:
    """Start a local crawl of *source*."""
    return crawl(shop, f"n{number}", source, settings={**LOCAL, **settings})


def twice_of(shop: Fleet, victim: Node, at: float) -> None:
    """Assert that nothing is lost, and that twice is only what *victim* had in flight, or not settled, at that time."""
    hits = shop.hits("/product/")
    assert {hit.path for hit in hits} == set(shop.expected)
    in_flight = {hit.path for hit in hits if hit.node == victim.name and (hit.ended or at) > at - 0.5}
    assert {path for path, number in Counter(paths_of(hits)).items() if number > 1} <= in_flight
    assert set(shop.expected) <= set(paths_of(items_of(shop)))


@pytest.mark.each_server
@pytest.mark.parametrize("seed", seeds(2))
def test_a_node_is_killed(fleet: Callable[..., Fleet], server: Server, seed: int) -> None:
    """Three hosts, one SIGKILLed at a random moment: what it held is taken over, twice only what it had in flight."""
    chance = random.Random(seed)
    shop = fleet(products=150, latency=0.1)
    nodes = [local(shop, number, LISTS) for number in range(3)]
    shop.wait_for_hits(chance.randrange(10, 100))
    victim = chance.choice(nodes)
    kill = victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    twice_of(shop, victim, kill.at)
    assert not records_of(server.client())


@pytest.mark.parametrize("pages", [0, 1, 2, 5])
def test_the_fetcher_of_a_list_page_is_killed(fleet: Callable[..., Fleet], pages: int) -> None:
    """Ten chained lists, three hosts; who fetches the first page is killed meanwhile, or when it has seen some lists.

    Nothing is lost, each list is fetched once by each living host.
    """
    shop = fleet(products=100, latency=0.2)
    nodes = [local(shop, number, SLOW_FIRST) for number in range(3)]
    holder = shop.wait_for_hits(1, "/slow/")[0].node
    if pages:
        until(lambda: sum(hit.node == holder for hit in shop.hits("/lists")) >= pages)
    victim = next(node for node in nodes if node.name == holder)
    kill = victim.kill()
    living = [node for node in nodes if node is not victim]
    shop.wait(living)
    twice_of(shop, victim, kill.at)
    lists = Counter((hit.path, hit.node) for hit in shop.hits("/lists") if hit.node != holder)
    assert len(lists) == 20
    assert set(lists.values()) == {1}


@pytest.mark.parametrize("is_settled", [False, True])
def test_the_holder_of_a_page_with_items_and_links_is_killed(fleet: Callable[..., Fleet], is_settled: bool) -> None:
    """Before its page was settled, the items come again from who takes it over; afterwards they come no more."""
    shop = fleet(products=10, latency=0.3)
    source = """
        class Holding:
            async def process_item(self, item):
                if item["path"] == "list" and Path("holding").exists():
                    await asyncio.sleep(30)
                return item

        class Both(ShopSpider):
            custom_settings = {"ITEM_PIPELINES": {Holding: 200, ItemLog: 100}}

            async def start(self):
                yield self.page("/lists?page=1&per_page=10", callback=self.parse_both)

            def parse_both(self, response):
                yield {"path": "list"}
                yield from response.follow_all(css="a.product")
        """
    if not is_settled:
        (shop.folder / "holding").touch()
    nodes = [local(shop, number, source) for number in range(2)]
    until(lambda: items_of(shop))
    holder = items_of(shop)[0]["node"]
    if is_settled:
        shop.wait_for_hits(2, "/lists")
    victim = next(node for node in nodes if node.name == holder)
    victim.kill()
    (shop.folder / "holding").unlink(missing_ok=True)
    shop.wait([node for node in nodes if node is not victim])
    assert paths_of(items_of(shop)).count("list") == (1 if is_settled else 2)
    assert set(paths_of(items_of(shop))) == {"list", *shop.expected}


def test_what_is_no_item_is_not_lost(fleet: Callable[..., Fleet]) -> None:
    """A host killed with requests under way that are no items: their page was not done, and another fetches both."""
    shop = fleet(products=4)
    source = """
        class Parts(ShopSpider):
            async def start(self):
                for number in range(1, 5):
                    yield self.page(f"/product/{number}", callback=self.parse_first)

            def parse_first(self, response):
                path = response.url.removeprefix(self.base).replace("product", "slow")
                yield self.page(f"{path}?s=1", dont_filter=True)
        """
    nodes = [local(shop, number, source) for number in range(2)]
    holder = shop.wait_for_hits(4, "/slow/")[0].node
    victim = next(node for node in nodes if node.name == holder)
    victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    assert set(paths_of(items_of(shop))) == {f"/slow/{number}?s=1" for number in range(1, 5)}


def test_nobody_leaves_while_another_holds(fleet: Callable[..., Fleet]) -> None:
    """A host that failed with an item which another holds now is there to take it over when that one dies."""
    shop = fleet(products=1)
    source = """
        class Failing(ShopSpider):
            async def start(self):
                yield self.page("/product/1")

            async def parse(self, response):
                if self.settings["LEASE_NODE"] == "n0" and not Path("failed").exists():
                    Path("failed").touch()
                    raise ValueError("at first")
                if self.settings["LEASE_NODE"] == "n1":
                    await asyncio.sleep(30)
                yield {"path": "/product/1"}
        """
    settings = {"LEASE_ITEM_BACKOFF": "4,4", "LEASE_TTL": 8}
    first = local(shop, 0, source, **settings)
    until(lambda: (shop.folder / "failed").exists())
    second = local(shop, 1, source, **settings)
    time.sleep(1.5)
    first.pause()
    shop.wait_for_hits(2)
    first.resume()
    time.sleep(2)
    assert first.is_running
    second.kill()
    shop.wait([first])
    assert paths_of(items_of(shop)) == ["/product/1"]


def test_a_node_that_leaves_hands_its_window_back(fleet: Callable[..., Fleet]) -> None:
    """SIGTERM: the others fetch what it held at once, not after the time to live (30 s), each page once."""
    shop = fleet(products=30)
    source = """
        class Slow(ShopSpider):
            async def start(self):
                for number in range(1, 31):
                    yield self.page(f"/slow/{number}?s=0.5")
        """
    settings = {"CONCURRENT_REQUESTS": 4, "LEASE_TTL": 30, "LEASE_WINDOW": 20}
    leaving = local(shop, 0, source, **settings)
    shop.wait_for_hits(4, "/slow/")
    other = local(shop, 1, source, **settings)
    shop.wait_for_hits(12, "/slow/")
    leaving.terminate()
    left_at = time.monotonic()
    assert leaving.wait(8) == 0
    shop.wait([other])
    assert time.monotonic() - left_at < 15
    assert Counter(paths_of(shop.hits("/slow/"))) == Counter(f"/slow/{number}?s=0.5" for number in range(1, 31))
    assert Counter(paths_of(items_of(shop))) == Counter(paths_of(shop.hits("/slow/")))


def test_a_window_that_drains_more_slowly_than_the_time_to_live(fleet: Callable[..., Fleet]) -> None:
    """25 items leased at once and fetched one after the other for longer than the TTL: the heartbeat holds them."""
    shop = fleet(products=30)
    source = """
        class Slow(ShopSpider):
            async def start(self):
                for number in range(1, 26):
                    yield self.page(f"/slow/{number}?s=0.3")
        """
    holder = local(shop, 0, source, CONCURRENT_REQUESTS=1, LEASE_WINDOW=40)
    shop.wait_for_hits(1, "/slow/")
    other = local(shop, 1, source)
    shop.wait([holder, other])
    assert len(shop.hits("/slow/")) == 25
    assert holder.stats["lease/session/lost"] == 0
    assert max(Counter(paths_of(shop.hits("/slow/"))).values()) == 1


def test_a_frozen_node_is_taken_over(fleet: Callable[..., Fleet]) -> None:
    """SIGSTOP beyond the TTL: the others take over what it held and look where it leads; it finds its leases gone."""
    shop = fleet(products=60, latency=0.2)
    nodes = [local(shop, number, LISTS) for number in range(3)]
    shop.wait_for_hits(15)
    nodes[0].pause()
    paused_at = time.monotonic()
    time.sleep(5)
    nodes[0].resume()
    shop.wait()
    assert set(paths_of(shop.hits("/product/"))) == set(shop.expected)
    items = items_of(shop)
    before, after = ([item for item in items if (item["mono"] > paused_at) is late] for late in (False, True))
    assert {*paths_of(before), *paths_of(after)} == set(shop.expected)
    assert max(Counter(paths_of(before)).values()) == max(Counter(paths_of(after)).values()) == 1
    # What had left its pipelines before it froze may not have been reported.
    unreported = {item["path"] for item in before if item["node"] == "n0"}
    assert {*paths_of(before)} & {*paths_of(after)} <= unreported
