"""What becomes of an item under a scheduler that the user chose: as the outcome table says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.helpers.fleet import Fleet, Node
from tests.helpers.foreign import plain, scrapy_redis
from tests.helpers.servers import Server
from tests.helpers.spiders import AGAIN, crawl, dead_letters, items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

Settings = Callable[..., Mapping[str, Any]]


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=20)


@pytest.fixture(params=["plain", "scrapy-redis"])
def settings(request: pytest.FixtureRequest, server: Server) -> Settings:
    """The settings of a node with either scheduler."""
    return plain if request.param == "plain" else lambda **more: scrapy_redis(server.url, **more)


def run(shop: Fleet, source: str, settings: Mapping[str, Any], name: str = "n0") -> Node:
    """Crawl with one node until it has ended by itself."""
    node = crawl(shop, name, source, settings=settings)
    shop.wait([node])
    return node


def counted(node: Node) -> dict[str, int]:
    """What became of the items of a node."""
    names = ("leased", "done", "rejected", "failed", "dead", "stale")
    return {name: int(found) for name in names if (found := node.stats.get(f"lease/items/{name}"))}


def test_redirects_and_retries_stay_under_their_lease(shop: Fleet, server: Server, settings: Settings) -> None:
    """A redirected and a retried page are each one item, done once, and never go through the scheduler again."""
    node = run(shop, """
        class Redirected(ShopSpider):
            async def start(self):
                for path in ("/go/1", "/flaky/2", "/product/1"):
                    yield self.page(path)
        """, settings())  # fmt: skip
    assert counted(node) == {"leased": 3, "done": 3}
    items = items_of(shop)
    assert paths_of(items) == ["/flaky/2", "/product/1", "/product/1"]
    assert len({item["lease"]["item"] for item in items}) == 3
    assert node.stats["scheduler/dequeued/" + ("memory" if "PlainScheduler" in node.log else "redis")] == 3
    assert not records_of(server.client())


def test_a_page_is_asked_for_again(shop: Fleet, settings: Settings) -> None:
    """get_retry_request and one's own request yielded from the callback: the item is done with the last of them."""
    node = run(shop, AGAIN, settings())
    assert counted(node) == {"leased": 2, "done": 2}
    assert paths_of(items_of(shop)) == ["/product/1", "/product/2"]
    assert Counter(hit.path for hit in shop.hits()) == {"/product/1": 3, "/product/2": 3}


def test_what_ends_an_item(shop: Fleet, server: Server, settings: Settings) -> None:
    """404 and a redirect that a handler refuses: rejected; DropItem: done; exceptions: dead after their attempts."""
    node = run(shop, """
        from scrapy import signals
        from scrapy.exceptions import DropItem, IgnoreRequest

        class Ends:
            def process_item(self, item):
                if item["path"] == "/product/2":
                    raise DropItem("not wanted")
                if item["path"] == "/product/3":
                    raise ValueError("no price")
                return item

        class Ending(ShopSpider):
            custom_settings = {"ITEM_PIPELINES": {Ends: 50, ItemLog: 100}}

            async def start(self):
                self.crawler.signals.connect(self.scheduled, signals.request_scheduled)
                for path in ("/product/99", "/product/2", "/product/3", "/product/4", "/product/5", "/go/6"):
                    yield self.page(path)

            def scheduled(self, request):
                if request.url.endswith("/product/6"):
                    raise IgnoreRequest

            def parse(self, response):
                yield super().parse(response)
                if response.url.endswith("/product/4"):
                    raise ValueError("no name")
        """, settings(LEASE_ITEM_ATTEMPTS=2))  # fmt: skip
    assert counted(node) == {"leased": 8, "done": 2, "rejected": 2, "failed": 4, "dead": 2}
    assert {(letter["reason"], letter["attempts"]) for letter in dead_letters(server.client())} == {
        ("callback", 2), ("pipeline", 2),
    }  # fmt: skip
    assert Counter(hit.path for hit in shop.hits()) == {
        "/product/99": 1, "/product/2": 1, "/product/3": 2, "/product/4": 2, "/product/5": 1, "/go/6": 1,
    }  # fmt: skip
    assert not records_of(server.client())


def test_meta_copied_by_a_spider_carries_no_lease(shop: Fleet, settings: Settings) -> None:
    """meta=response.meta: each page is its own item under its own lease; lease_of tells which."""
    node = run(shop, """
        class Copying(ShopSpider):
            async def start(self):
                yield self.page("/product/1")

            def parse(self, response):
                yield super().parse(response)
                number = int(response.url.rpartition("/")[2])
                if number < 5:
                    yield self.page(f"/product/{number + 1}", meta=response.meta)
        """, settings())  # fmt: skip
    assert counted(node) == {"leased": 5, "done": 5}
    leases = [item["lease"] for item in items_of(shop)]
    assert len({lease["item"] for lease in leases}) == len({lease["fence"] for lease in leases}) == 5


def test_downloads_that_nobody_scheduled_take_no_lease(shop: Fleet, settings: Settings) -> None:
    """engine.download_async, as media and robots.txt use it, passes the guard while its own page is leased."""
    node = run(shop, """
        class Media(ShopSpider):
            async def start(self):
                yield self.page("/product/1")

            async def parse(self, response):
                media = await self.crawler.engine.download_async(self.page("/go/2"))
                yield {"path": media.url.removeprefix(self.base)}
        """, settings())  # fmt: skip
    assert counted(node) == {"leased": 1, "done": 1}
    assert paths_of(items_of(shop)) == ["/product/2"]


def test_closing_from_a_callback_hands_back(shop: Fleet, server: Server, settings: Settings) -> None:
    """CloseSpider: its page is pending again without an attempt; the next crawl fetches it."""
    source = """
        from scrapy.exceptions import CloseSpider

        class Closing(ShopSpider):
            async def start(self):
                yield self.page("/product/1")

            def parse(self, response):
                if not Path("closed").exists():
                    Path("closed").touch()
                    raise CloseSpider("enough")
                return super().parse(response)
        """
    assert run(shop, source, settings()).stats["finish_reason"] == "enough"
    (record,) = records_of(server.client())
    assert (record.state, record.attempts, record.deaths) == ("pending", 0, 0)
    run(shop, source, settings(), "n1")
    assert paths_of(items_of(shop)) == ["/product/1"]


def test_at_most_once(shop: Fleet, settings: Settings) -> None:
    """LEASE_ON_HOLDER_DEATH = "park": each page is marked as sent before it is, and fetched once."""
    node = run(shop, """
        class Parked(ShopSpider):
            async def start(self):
                for path in ("/product/1", "/go/2", "/flaky/3"):
                    yield self.page(path)
        """, settings(LEASE_ON_HOLDER_DEATH="park"))  # fmt: skip
    assert counted(node) == {"leased": 3, "done": 3}
    assert paths_of(items_of(shop)) == ["/flaky/3", "/product/1", "/product/2"]
