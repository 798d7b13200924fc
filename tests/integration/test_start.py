"""start(): read by one session or by each, each request counted once, never ahead of the backlog or of the reactor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import psutil
import pytest

from tests.helpers.fleet import Fleet, until
from tests.helpers.servers import Server
from tests.helpers.spiders import ALL_ARE_HERE, crawl, is_long, items_of, paths_of, records_of, scope_of

pytestmark = pytest.mark.one_server

SAME = """
class Same(ShopSpider):
    number = "0"

    async def start(self):
        for number in range(1, int(self.number) + 1):
            yield self.page(f"/product/{number}", dont_filter=bool(number % 2))
"""
BUSY = """
class Busy(ShopSpider):
    async def start(self):
        await self.all_are_here()
        for number in range(1, 301):
            yield self.page(f"/product/{number}")

    def parse(self, response):
        time.sleep(0.02)
        return super().parse(response)
"""
MANY = """

class Many(ShopSpider):
    number = "0"

    async def start(self):
        for number in range(int(self.number)):
            yield self.page(f"/product/{number}")
        Path("read").touch()
"""


@pytest.mark.each_server
@pytest.mark.parametrize("mode", ["one", "each"])
def test_the_same_start_on_every_node(fleet: Callable[..., Fleet], mode: str) -> None:
    """Nodes whose start() yields the same requests, with and without dont_filter: each is fetched once."""
    nodes, number = (10, 5000) if is_long() else (3, 300)
    shop = fleet(products=number)
    shop.wait([
        crawl(shop, f"n{node}", SAME, settings={"LEASE_START": mode}, number=number) for node in range(nodes)
    ], timeout=300)  # fmt: skip
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
    assert Counter(paths_of(items_of(shop))) == Counter(shop.expected)


def test_a_busy_reader_finds_work_for_all(fleet: Callable[..., Fleet]) -> None:
    """The one that reads start() has its own pages to process: it yields for the others all the same."""
    shop = fleet(products=300)
    nodes = [crawl(shop, f"n{node}", BUSY) for node in range(3)]
    for node in nodes:
        node.wait_for("joins run")
    # With its next heartbeat the reader knows of the others.
    time.sleep(1.5)
    (shop.folder / ALL_ARE_HERE).touch()
    shop.wait(nodes)
    fetched = Counter(hit.node for hit in shop.hits("/product/"))
    assert fetched.total() == 300
    assert min(fetched[node.name] for node in nodes) > 30, fetched


def test_identical_requests_with_dont_filter(fleet: Callable[..., Fleet]) -> None:
    """200 identical requests with dont_filter from start(), and 200 times one object from a callback: all come out."""
    shop = fleet(products=2)
    node = crawl(shop, "n0", """
        class Identical(ShopSpider):
            async def start(self):
                for _ in range(200):
                    yield self.page("/product/1", dont_filter=True)
                yield self.page("/lists", callback=self.parse_list)

            def parse_list(self, response):
                same = self.page("/product/2", dont_filter=True)
                for _ in range(200):
                    yield same
        """)  # fmt: skip
    shop.wait([node])
    assert Counter(paths_of(items_of(shop))) == {"/product/1": 200, "/product/2": 200}


def test_one_start_request_object_yielded_again_and_again(fleet: Callable[..., Fleet]) -> None:
    """start() of each node yields one object 200 times, with dont_filter: over both nodes it is fetched 200 times."""
    shop = fleet(products=1)
    source = """
        class Again(ShopSpider):
            async def start(self):
                same = self.page("/product/1", dont_filter=True)
                for _ in range(200):
                    yield same
        """
    shop.wait([crawl(shop, f"n{node}", source, settings={"LEASE_START": "each"}) for node in range(2)])
    assert len(items_of(shop)) == 200


def test_a_long_start_without_an_await(fleet: Callable[..., Fleet], server: Server) -> None:
    """start() of very many requests without an await: heartbeats keep their pace, memory stays flat."""
    number = 200_000 if is_long() else 8_000
    shop = fleet(products=1)
    settings = {"LEASE_START_AHEAD": 1_000_000, "CONCURRENT_REQUESTS": 1, "LOG_LEVEL": "INFO"}
    node = crawl(shop, "n0", MANY, settings=settings, number=number)
    client, scope = server.client(), scope_of()
    until(lambda: client.hlen(scope.key("state")) > min(number // 10, 10_000), 60, "the first of start()")
    process = psutil.Process(node.process.pid)
    early = process.memory_info().rss
    until((shop.folder / "read").exists, 300, "the end of start()")
    grown = process.memory_info().rss - early
    print(f"{number} requests, bytes: {early} after the first {min(number // 10, 10_000)}, {grown:+} at the end")
    node.terminate()
    assert node.wait(20) == 0
    assert client.hlen(scope.key("state")) > number * 0.9
    assert grown < 30e6
    assert node.stats["lease/session/lost"] == 0
    assert node.stats["lease/session/lag_max"] < 1.0
    # A beat each third of the time to live (3 s), one at the beginning.
    assert node.stats["lease/session/renewed"] >= 0.6 * node.stats["elapsed_time_seconds"]


def test_start_is_not_far_ahead(fleet: Callable[..., Fleet], server: Server) -> None:
    """LEASE_START_AHEAD: start() pauses while more requests are pending, goes on as they are fetched, and ends."""
    shop = fleet(products=1000, latency=0.05)
    settings = {"LEASE_START_AHEAD": 50, "CONCURRENT_REQUESTS": 4, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    node = crawl(shop, "n0", MANY, settings=settings, number=5000)
    shop.wait_for_hits(40)
    most = 0
    for _ in range(10):
        most = max(most, len(records_of(server.client())))
        time.sleep(0.1)
    assert not (shop.folder / "read").exists()
    # What is here waiting to be pushed and what is leased comes on top of what is pending.
    assert most <= 50 + 1000 + 300 + 16
    node.terminate()
    assert node.wait(10) == 0


def test_a_start_that_raises(fleet: Callable[..., Fleet]) -> None:
    """start() raises after some requests: what it yielded is fetched, every node ends, nobody reads it again."""
    shop = fleet(products=10)
    source = """
        class Raising(ShopSpider):
            async def start(self):
                Path(f"read-{self.settings['LEASE_NODE']}").touch()
                for number in range(1, 6):
                    yield self.page(f"/product/{number}")
                raise ValueError("no more")
        """
    shop.wait([crawl(shop, f"n{node}", source) for node in range(2)])
    assert paths_of(items_of(shop)) == [f"/product/{number}" for number in range(1, 6)]
    assert len(list(shop.folder.glob("read-*"))) == 1


def test_an_item_from_start(fleet: Callable[..., Fleet]) -> None:
    """An item that start() itself yields reaches the pipelines, without a lease."""
    shop = fleet(products=1)
    node = crawl(shop, "n0", """
        class Direct(ShopSpider):
            async def start(self):
                yield {"path": "start"}
                yield self.page("/product/1")
        """)  # fmt: skip
    shop.wait([node])
    leases = {item["path"]: item["lease"] for item in items_of(shop)}
    assert leases["start"] is None
    assert leases["/product/1"]["fence"] > 0
