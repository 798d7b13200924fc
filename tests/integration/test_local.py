"""``LEASE_QUEUE = "local"``: hosts that discover for themselves fetch each item once, and each page that leads on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from scrapy_lease.payload import from_spec
from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.servers import Server
from tests.helpers.spiders import LISTS, LOCAL, crawl, dead_letters, items_of, paths_of, push, records_of

pytestmark = pytest.mark.one_server


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=40, latency=0.05)


def local(shop: Fleet, name: str, source: str, *, settings: Mapping[str, Any] = {}, **options: Any) -> Node:
    """Start a local crawl of *source* as node *name*."""
    return crawl(shop, name, source, settings={**LOCAL, **settings}, **options)


def nodes_of(shop: Fleet, source: str, number: int = 2, **options: Any) -> list[Node]:
    """Crawl with several nodes until all have ended by themselves."""
    nodes = [local(shop, f"n{i}", source, **options) for i in range(number)]
    shop.wait(nodes)
    return nodes


@pytest.mark.each_server
def test_each_item_once_each_list_by_each_host(fleet: Callable[..., Fleet], server: Server) -> None:
    """Three hosts, 900 products of a site that takes its time: each is fetched once, and each host has its share."""
    shop = fleet(products=900, latency=0.25)
    nodes = [shop.crawl(f"n{number}", "s03_local", per_page=100) for number in range(3)]
    shop.wait(nodes, timeout=60)
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    assert set(Counter(paths_of(shop.hits("/lists"))).values()) == {3}
    shares = [node.stats["item_scraped_count"] for node in nodes]
    assert sum(shares) == 900
    assert min(shares) >= 100
    assert not records_of(server.client())


@pytest.mark.parametrize("settings", [
    {"DOWNLOAD_DELAY": 0.1}, {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.1},
    {"CONCURRENT_REQUESTS": 0}, {"LEASE_WINDOW": 1}, {"TWISTED_REACTOR_ENABLED": False},
    {"LEASE_ON_HOLDER_DEATH": "park"},
], ids=lambda settings: next(iter(settings)))  # fmt: skip
def test_other_settings(shop: Fleet, settings: dict[str, Any]) -> None:
    """A delay, throttling, no limit, a window of one, no reactor, at most once: each product is fetched once."""
    nodes_of(shop, LISTS, settings=settings)
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)


def test_alone_the_order_is_that_of_the_queue(shop: Fleet) -> None:
    """One host fetches in the order of Scrapy's own queue: by priority, start requests as they came."""
    (node,) = nodes_of(shop, """
        class Ordered(ShopSpider):
            async def start(self):
                for number in range(1, 21):
                    yield self.page(f"/product/{number}", priority=number % 2)
        """, 1, settings={"CONCURRENT_REQUESTS": 1})  # fmt: skip
    order = [int(hit.path.rpartition("/")[2]) for hit in shop.hits("/product/")]
    assert order[1:] == [*range(3, 20, 2), *range(2, 21, 2)]
    assert node.stats["scheduler/dequeued"] == 20


def test_a_second_run_finds_all_done(shop: Fleet) -> None:
    """Products that all are done: the second crawl fetches nothing and says so; lists are walked again."""
    source = """
        class Products(ShopSpider):
            start_urls = ()

            async def start(self):
                for number in range(1, 11):
                    yield self.page(f"/product/{number}")
        """
    nodes_of(shop, source, 1)
    again = local(shop, "again", source)
    shop.wait([again])
    assert again.stats["finish_reason"] == "lease_all_done"
    assert len(shop.hits("/product/")) == 10
    lists = local(shop, "lists", LISTS)
    shop.wait([lists])
    assert lists.stats["finish_reason"] == "finished"
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)


def test_who_came_late_does_not_say_that_all_was_done(shop: Fleet) -> None:
    """A host whose only item was another's all the while has finished like the other."""
    nodes = nodes_of(
        shop,
        """
        class One(ShopSpider):
            async def start(self):
                yield self.page("/slow/1?s=4")
        """,
    )
    assert [node.stats["finish_reason"] for node in nodes] == ["finished", "finished"]
    assert len(shop.hits("/slow/")) == 1


BOTH = """
class Both(ShopSpider):
    async def start(self):
        yield self.page("/lists?page=1&per_page=20", callback=self.parse_both)

    def parse_both(self, response):
        yield {"path": "list"}
        yield from response.follow_all(css="a.product")
"""


def test_items_of_a_page_that_leads_on_are_accepted_once(shop: Fleet) -> None:
    """A page with items and links: fetched by each host for its links, its items reach the pipelines of one."""
    nodes = nodes_of(shop, BOTH, 3)
    assert len(shop.hits("/lists")) == 3
    assert Counter(paths_of(items_of(shop))) == Counter(["list", *shop.expected[:20]])
    assert sum(node.stats.get("lease/items/done", 0) for node in nodes) == 21


def test_a_page_with_items_and_links_in_a_second_run(shop: Fleet) -> None:
    """It is done as any page that yielded items is: neither fetched nor followed again."""
    nodes_of(shop, BOTH, 1)
    again = local(shop, "again", BOTH)
    shop.wait([again])
    assert again.stats["finish_reason"] == "lease_all_done"
    assert len(shop.hits()) == 21


def test_contended_is_skipped(shop: Fleet) -> None:
    """LEASE_ON_CONTENDED = "skip": what another holds is dropped at once, and the node leaves."""
    source = """
        class Slow(ShopSpider):
            async def start(self):
                for number in range(1, 5):
                    yield self.page(f"/slow/{number}?s=25")
        """
    holder = local(shop, "n0", source)
    shop.wait_for_hits(4, "/slow/")
    skipping = local(shop, "n1", source, settings={"LEASE_ON_CONTENDED": "skip"})
    shop.wait([skipping], timeout=20)
    assert holder.is_running
    assert skipping.stats["lease/items/contended"] == 4
    assert len(shop.hits("/slow/")) == 4


def test_pages_of_an_item_belong_together(shop: Fleet) -> None:
    """Redirects, retries, get_retry_request and requests of the same key go on with their item, on each host."""
    nodes = nodes_of(
        shop,
        """
        from scrapy.downloadermiddlewares.retry import get_retry_request

        class Again(ShopSpider):
            async def start(self):
                yield self.page("/go/1")
                yield self.page("/flaky/2")
                yield self.page("/product/3", callback=self.parse_again, meta={"lease_item": "own"})
                yield self.page("/lists?page=1&per_page=5", callback=self.parse_part, meta={"lease_item": "parts"})

            def parse_again(self, response):
                if "turn" not in response.meta:
                    yield get_retry_request(response.request, spider=self, reason="again", max_retry_times=1)
                    response.meta["turn"] = 1
                yield {"path": "again"}

            def parse_part(self, response):
                yield from response.follow_all(css="a.product")
                if "page=1" in response.url:
                    yield self.page("/lists?page=2&per_page=5", callback=self.parse_part, meta={"lease_item": "parts"})
        """,
    )
    counted = Counter(paths_of(items_of(shop)))
    assert counted.pop("again") == 2
    # Scrapy's duplicate filter knows the address of product 3.
    assert counted == Counter(["/flaky/2", "/product/1", *(f"/product/{n}" for n in range(1, 11) if n != 3)])
    assert Counter(paths_of(shop.hits("/lists"))) == {f"/lists?page={page}&per_page=5": 2 for page in (1, 2)}
    assert len(shop.hits("/product/3")) == 2
    assert sum(node.stats.get("lease/items/done", 0) for node in nodes) == 13


def test_what_is_no_item_belongs_to_what_led_to_it(shop: Fleet) -> None:
    """A page with requests that are no items: fetched with it, by one host, and their items accepted once."""
    nodes = nodes_of(
        shop,
        """
        class Parts(ShopSpider):
            async def start(self):
                for number in range(1, 11):
                    yield self.page(f"/product/{number}", callback=self.parse_first)

            def parse_first(self, response):
                for part in range(3):
                    yield Request(response.url + f"?part={part}", dont_filter=True)
        """,
        3,
    )
    hits = Counter(hit.path for hit in shop.hits("/product/"))
    assert set(hits.values()) == {1}
    assert len(hits) == 40
    assert len(items_of(shop)) == 30
    assert sum(node.stats.get("lease/items/done", 0) for node in nodes) == 10


def test_what_cannot_be_stored_is_fetched_by_each(shop: Fleet, server: Server) -> None:
    """Unserialisable meta: fetched by each host that comes to it, without a lease; one warning each."""
    nodes = nodes_of(
        shop,
        """
        class Unstorable(ShopSpider):
            async def start(self):
                yield self.page("/product/1", meta={"lock": asyncio.Lock()})
                yield self.page("/product/2")
        """,
    )
    assert Counter(paths_of(shop.hits("/product/"))) == {"/product/1": 2, "/product/2": 1}
    for node in nodes:
        assert node.log.count("stays with this node because it cannot be stored") == 1
    assert not records_of(server.client())


def test_start_requests_with_dont_filter(shop: Fleet) -> None:
    """start_urls are fetched once a run over all hosts, and again in the next; one listed twice is fetched twice."""
    source = """
        class Urls(ShopSpider):
            def __init__(self, **options):
                super().__init__(**options)
                self.start_urls = [f"{self.base}/product/{number % 5 + 1}" for number in range(10)]
        """
    nodes_of(shop, source, 3)
    assert Counter(paths_of(shop.hits("/product/"))) == {f"/product/{number}": 2 for number in range(1, 6)}
    shop.wait([local(shop, "again", source)])
    assert set(Counter(paths_of(shop.hits("/product/"))).values()) == {4}


def test_failed_items_are_tried_by_whoever(shop: Fleet, server: Server) -> None:
    """A fault is counted over all hosts; at the limit the item is a dead letter, which is not tried again."""
    nodes = nodes_of(
        shop,
        """
        class Failing(ShopSpider):
            async def start(self):
                for number in range(1, 6):
                    yield self.page(f"/product/{number}")

            def parse(self, response):
                if response.url.endswith("/2"):
                    raise ValueError("of the callback")
                return super().parse(response)
        """,
    )
    assert len(shop.hits("/product/2")) == 3
    (letter,) = dead_letters(server.client())
    assert (letter["reason"], letter["attempts"]) == ("callback", 3)
    assert paths_of(items_of(shop)) == [f"/product/{number}" for number in (1, 3, 4, 5)]
    assert sum(node.stats.get("lease/items/failed", 0) for node in nodes) == 3
    assert not records_of(server.client())


def test_a_page_that_led_on_is_tried_again_on_each_host(fleet: Callable[..., Fleet]) -> None:
    """A host that fails with a page which led on at another's tries it again: it must see where it leads."""
    shop = fleet(products=10)
    source = """
        class Looking(ShopSpider):
            async def start(self):
                yield self.page("/lists?page=1&per_page=10", callback=self.parse_list)
                yield self.page("/slow/1?s=5")

            def parse_list(self, response):
                path = Path("failed")
                if self.settings["LEASE_NODE"] == "n1" and not path.exists():
                    path.touch()
                    raise ValueError("at first")
                yield from response.follow_all(css="a.product")
        """
    first = local(shop, "n0", source)
    shop.wait_for_hits(10)
    second = local(shop, "n1", source)
    shop.wait([first, second])
    assert [hit.node for hit in shop.hits("/lists")] == ["n0", "n1", "n1"]
    assert second.stats["scheduler/enqueued"] == 12
    assert Counter(paths_of(items_of(shop))) == Counter([*shop.expected, "/slow/1?s=5"])


def test_a_refused_page_that_leads_on(shop: Fleet) -> None:
    """A 404 whose errback yields requests leads on: each host follows it, what it leads to is fetched once."""
    nodes_of(
        shop,
        """
        class Refused(ShopSpider):
            async def start(self):
                yield self.page("/product/999", errback=self.refused)

            def refused(self, failure):
                yield self.page("/product/1")
        """,
    )
    assert Counter(paths_of(shop.hits("/product/"))) == {"/product/999": 2, "/product/1": 1}


def test_what_others_push_and_retry(shop: Fleet, server: Server) -> None:
    """Requests pushed from outside are fetched by local nodes, also when nothing else is left to them."""
    push(server.url, *(from_spec({"url": shop.base + f"/product/{number}"}) for number in range(1, 8)))
    nodes_of(
        shop,
        """
        class Nothing(ShopSpider):
            async def start(self):
                yield self.page("/product/8")
        """,
    )
    assert Counter(paths_of(items_of(shop))) == Counter(shop.expected[:8])


def test_a_callback_that_one_host_lacks(shop: Fleet, server: Server) -> None:
    """A rolling deploy: what an older host cannot read waits for a newer one, and costs no attempt."""
    source = """
        class Version(ShopSpider):
            async def start(self):
                yield self.page("/product/2")
        """
    newer = local(shop, "n1", source + """
                yield self.page("/slow/1?s=1", callback=self.parse_new)

            def parse_new(self, response):
                yield {"path": "new"}
        """)  # fmt: skip
    shop.wait_for_hits(1, "/slow/")
    newer.terminate()
    newer.kill()
    older = local(shop, "n0", source)
    older.wait_for("left to nodes that have its callback")
    client = server.client()
    until(lambda: [record.state for record in records_of(client)] == ["delayed"], 8, "a wait in the backlog")
    assert [record.attempts for record in records_of(client)] == [0]
    newer = local(shop, "n2", source + """
            def parse_new(self, response):
                yield {"path": "new"}
        """)  # fmt: skip
    shop.wait([older, newer])
    assert paths_of(items_of(shop)) == ["/product/2", "new"]
