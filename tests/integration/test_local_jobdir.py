"""``LEASE_QUEUE = "local"`` with JOBDIR: stopped and resumed, a crawl fetches nothing twice and loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.fleet import Fleet, Node
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

LISTS = """
class Lists(ShopSpider):
    async def start(self):
        yield self.page("/lists?page=1&per_page=15", callback=self.parse_list)

    def parse_list(self, response):
        yield from response.follow_all(css="a.product")
        yield from response.follow_all(css="a.next", callback=self.parse_list)
"""
URLS = """
class Urls(ShopSpider):
    def __init__(self, **options):
        super().__init__(**options)
        self.start_urls = [f"{self.base}/product/{number}" for number in range(1, 61)]
        self.start_urls.append(f"{self.base}/lists?page=1&per_page=5")

    def parse(self, response):
        yield from response.follow_all(css="a.product", meta={"linked": True})
        if "/product/" in response.url:
            yield super().parse(response)
"""
FAILING = """
class Failing(ShopSpider):
    async def start(self):
        for number in range(1, 61):
            yield self.page(f"/product/{number}")

    def parse(self, response):
        if response.url.endswith("0") and Path("failing").exists():
            raise ValueError("for now")
        return super().parse(response)
"""
CHAIN = """
class Chain(ShopSpider):
    async def start(self):
        yield self.page("/lists?page=1&per_page=1", callback=self.parse_list, dont_filter=True)

    def parse_list(self, response):
        yield {"path": response.url.removeprefix(self.base)}
        for request in response.follow_all(css="a.next", callback=self.parse_list, dont_filter=True):
            yield request
"""


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=60, latency=0.1)


def start(shop: Fleet, name: str, source: str, **more: Any) -> Node:
    """Start or resume the crawl of node *name*, with few requests at a time and a small window."""
    folder = name.partition("-")[0]
    settings = {
        "LEASE_QUEUE": "local", "JOBDIR": shop.folder / f"job-{folder}", "CONCURRENT_REQUESTS": 4, "LEASE_WINDOW": 8,
        **more,
    }  # fmt: skip
    return crawl(shop, name, source, settings=settings)


def stop(*nodes: Node) -> None:
    for node in nodes:
        # Before the engine runs, SIGTERM ends a process without closing anything.
        node.wait_for("joins run")
    for node in nodes:
        node.terminate()
    for node in nodes:
        assert node.wait(10) == 0
        assert node.stats["finish_reason"] == "shutdown"


def judge(shop: Fleet, *extra: str) -> None:
    """Each product was fetched once and accepted once, and so was each page of *extra*."""
    assert Counter(paths_of(shop.hits("/product/"))) == Counter([*shop.expected, *extra])
    assert Counter(paths_of(items_of(shop))) == Counter([*shop.expected, *extra])


def test_stop_and_resume(shop: Fleet, server: Server) -> None:
    """SIGTERM in mid-crawl, twice: all is fetched once, lists too, and nothing is left in the store."""
    for name in ("n0-a", "n0-b"):
        node = start(shop, name, LISTS)
        shop.wait_for_hits(15 if name == "n0-a" else 35)
        stop(node)
    shop.wait([start(shop, "n0-c", LISTS)])
    judge(shop)
    assert set(Counter(paths_of(shop.hits("/lists"))).values()) == {1}
    assert not records_of(server.client())


def test_start_urls(shop: Fleet) -> None:
    """start_urls (dont_filter) are fetched once, although start() is read again; linked ones are items of their own."""
    node = start(shop, "n0-a", URLS)
    shop.wait_for_hits(20)
    stop(node)
    shop.wait([start(shop, "n0-b", URLS)])
    judge(shop, *shop.expected[:5])
    assert len(shop.hits("/lists")) == 1


def test_failed_items_wait_in_the_store(shop: Fleet) -> None:
    """What failed before the stop comes after the resumption, with the others fetched once."""
    (shop.folder / "failing").touch()
    backoff = {"LEASE_ITEM_BACKOFF": "3,3"}
    node = start(shop, "n0-a", FAILING, **backoff)
    shop.wait_for_hits(40)
    stop(node)
    failed = node.stats["lease/items/failed"]
    assert failed >= 1
    (shop.folder / "failing").unlink()
    shop.wait([start(shop, "n0-b", FAILING, **backoff)])
    assert Counter(paths_of(items_of(shop))) == Counter(shop.expected)
    assert len(shop.hits("/product/")) == 60 + failed


@pytest.mark.parametrize("source", [LISTS, URLS], ids=["lists", "start_urls"])
def test_two_nodes(shop: Fleet, source: str) -> None:
    """Two hosts with a JOBDIR each, both stopped; one is resumed, then the other, which finds all done."""
    nodes = [start(shop, name, source) for name in ("n0-a", "n1-a")]
    shop.wait_for_hits(20)
    stop(*nodes)
    for name in ("n0-b", "n1-b"):
        shop.wait([start(shop, name, source)])
    judge(shop, *(shop.expected[:5] if source is URLS else []))
    assert max(Counter(hit.path + hit.node[:2] for hit in shop.hits("/lists")).values()) == 1


def test_requests_that_are_no_items(shop: Fleet) -> None:
    """A chain of pages that are no items goes on where it was, and what they yielded is not yielded again."""
    node = start(shop, "n0-a", CHAIN)
    shop.wait_for_hits(10, "/lists")
    stop(node)
    shop.wait([start(shop, "n0-b", CHAIN)])
    pages = [f"/lists?page={page}&per_page=1" for page in range(1, 61)]
    assert Counter(paths_of(items_of(shop))) == Counter(pages)
    assert Counter(paths_of(shop.hits("/lists"))) == Counter(pages)


def test_a_node_without_jobdir_goes_on(shop: Fleet) -> None:
    """While one is stopped another fetches all; resumed, the first fetches nothing again."""
    stopped = start(shop, "n0-a", LISTS)
    shop.wait_for_hits(15)
    stop(stopped)
    shop.wait([crawl(shop, "n1", LISTS, settings={"LEASE_QUEUE": "local"})])
    shop.wait([start(shop, "n0-b", LISTS)])
    judge(shop)


@pytest.mark.parametrize("queue", ["Fifo", "Lifo"])
def test_queue_classes_of_the_user(shop: Fleet, queue: str) -> None:
    """SCHEDULER_PRIORITY_QUEUE and the queue classes are the user's, in memory and on disk."""
    own = {
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        "SCHEDULER_MEMORY_QUEUE": f"scrapy.squeues.{queue}MemoryQueue",
        "SCHEDULER_DISK_QUEUE": f"scrapy.squeues.Marshal{queue}DiskQueue",
        "SCHEDULER_START_DISK_QUEUE": "",
        "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    }
    node = start(shop, "n0-a", LISTS, **own)
    shop.wait_for_hits(20)
    stop(node)
    shop.wait([start(shop, "n0-b", LISTS, **own)])
    judge(shop)
