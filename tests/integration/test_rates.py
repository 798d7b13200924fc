"""Rate limits in whole crawls of one node: what is sent when, what pays nothing, and whom a limit does not slow."""

from __future__ import annotations

import json
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.foreign import PLAIN
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, records_of

PRODUCTS = """
class Products(ShopSpider):
    number = "40"

    async def start(self):
        for number in range(1, int(self.number) + 1):
            yield self.page(f"/product/{number}")
"""


def limits(**given: Any) -> dict[str, str]:
    """Settings with these limits."""
    return {"LEASE_RATE_LIMITS": json.dumps(given)}


FREE = {**limits(domain={"127.0.0.1": "2/second"}), "CONCURRENT_REQUESTS": "16"}


def per_window(moments: Iterable[float], seconds: float = 1.0) -> Counter[int]:
    """How many of *moments* are in each window of the wall clock."""
    return Counter(int(moment // seconds) for moment in moments)


def worst(shop: Fleet, prefix: str = "/product/", seconds: float = 1.0) -> int:
    """The most arrivals in one window of the wall clock, which the server has too."""
    return max(per_window((hit.epoch for hit in shop.hits(prefix)), seconds).values())


def rates(node: Node, dimension: str) -> dict[str, float]:
    """The stats of one dimension."""
    names = ("granted", "waited", "parked", "shadow")
    return {name: node.stats.get(f"lease/rate/{name}/{dimension}", 0) for name in names}


@pytest.mark.parametrize("dimension", ["api", "domain", "ip", "ua"])
def test_no_window_has_more_than_its_limit(fleet: Callable[..., Fleet], dimension: str) -> None:
    """40 pages at 10 a second take four windows, none of which sees more; each page is fetched once."""
    shop = fleet(products=40)
    node = crawl(shop, "n0", PRODUCTS, settings=limits(**{dimension: "10/second"}))
    shop.wait([node])
    assert worst(shop) <= 10
    moments = [hit.epoch for hit in shop.hits("/product/")]
    assert len(moments) == 40
    assert max(moments) - min(moments) < 5
    assert rates(node, dimension)["granted"] == 40
    assert node.stats["finish_reason"] == "finished"


def test_a_delay_moves_no_permit_into_another_window(fleet: Callable[..., Fleet]) -> None:
    """Behind DOWNLOAD_DELAY, and at a site that is slow first and fast then, each window keeps its limit."""
    shop = fleet(products=12)
    node = crawl(shop, "n0", """
        class Delayed(ShopSpider):
            async def start(self):
                for number in range(1, 5):
                    yield self.page(f"/slow/{number}?s=1.3")
                for number in range(1, 13):
                    yield self.page(f"/product/{number}")
        """, settings={**limits(api="3/second"), "DOWNLOAD_DELAY": 0.15})  # fmt: skip
    shop.wait([node])
    assert worst(shop, "/") <= 3
    assert len(shop.hits()) == 16


def free_host(shop: Fleet, name: str, limited: int) -> tuple[float, Node]:
    """Crawl 40 pages of a free host behind *limited* ones of a host at 2 a second; return what the free ones took."""
    node = crawl(shop, name, """
        class Two(ShopSpider):
            limited = "0"

            async def start(self):
                for number in range(1, int(self.limited) + 1):
                    yield self.page(f"/product/{number}")
                for number in range(1, 41):
                    url = self.base.replace("127.0.0.1", "localhost") + f"/product/{number}"
                    yield Request(url, headers={"X-Node": self.crawler.settings["LEASE_NODE"]})
        """, settings=FREE | {"LEASE_RUN": name}, limited=str(limited))  # fmt: skip

    def hits() -> list[float]:
        return [hit.epoch for hit in shop.hits("/product/") if hit.node == name and hit.host.startswith("localhost")]

    until(lambda: len(hits()) == 40, 30, "40 pages of the free host")
    return max(hits()) - min(hit.epoch for hit in shop.hits("/product/") if hit.node == name), node


def test_a_free_host_is_not_slowed(fleet: Callable[..., Fleet]) -> None:
    """40 requests to a host at 2 a second before 40 to a free one, 16 slots: those take twice their time at most."""
    shop = fleet(products=40)
    alone, node = free_host(shop, "alone", 0)
    node.wait(20)
    both, node = free_host(shop, "both", 40)
    # On a machine with other work a node stands still now and then; the limited host takes 20 s.
    assert both <= 2 * alone + 0.5
    node.terminate()
    assert node.wait(10) == 0
    limited = [hit.epoch for hit in shop.hits("/product/") if not hit.host.startswith("localhost")]
    assert max(per_window(limited).values()) <= 2


@pytest.mark.parametrize("queue", ["redis", "local"])
def test_what_is_parked_goes_back_at_once(fleet: Callable[..., Fleet], server: Server, queue: str) -> None:
    """With 1 000 requests parked a node that is told to leave does so at once; they are in the backlog, or on disk."""
    shop = fleet(products=1200)
    settings = {**limits(api="1/hour"), "LEASE_QUEUE": queue, "LEASE_TTL": 10}
    if queue == "local":
        settings["JOBDIR"] = str(shop.folder / "job")
    node = crawl(shop, "n0", PRODUCTS, settings=settings, number="1200")
    shop.wait_for_hits(1)
    client = server.client()
    until(lambda: Counter(record.state for record in records_of(client))["leased"] >= 1000, 30, "1 000 leases")
    node.terminate()
    told = time.monotonic()
    assert node.wait(10) == 0
    assert time.monotonic() - told < 4
    assert rates(node, "api")["parked"] >= 900
    assert len(shop.hits("/product/")) == 1
    left = Counter(record.state for record in records_of(client))
    if queue == "redis":
        # What start() had not come to yet is read by the next session.
        assert set(left) == {"pending"}
        assert left["pending"] >= 999
    else:
        again = crawl(shop, "n1", PRODUCTS, settings={**settings, **limits(api="10000/second")}, number="1200")
        shop.wait([again])
        assert len(shop.hits("/product/")) == 1200


def test_what_is_not_sent_pays_nothing(fleet: Callable[..., Fleet], server: Server) -> None:
    """Cached pages, what robots.txt forbids and what a middleware drops take no permit of any dimension."""
    shop = fleet(products=8)
    source = """
    class Dropping:
        def process_request(self, request):
            if request.url.endswith("/7"):
                raise scrapy_lease_test_ignore("dropped")

    class Products(ShopSpider):
        custom_settings = {**ShopSpider.custom_settings, "DOWNLOADER_MIDDLEWARES": {Dropping: 930}}

        async def start(self):
            for number in range(1, 8):
                yield self.page(f"/product/{number}")
    """
    source = "from scrapy.exceptions import IgnoreRequest as scrapy_lease_test_ignore\n" + textwrap.dedent(source)
    settings = {
        **limits(api="1000/hour", ip="100/minute"), "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": shop.folder / "cache",
    }  # fmt: skip
    first = crawl(shop, "n0", source, settings={**settings, "LEASE_RUN": "1"})
    shop.wait([first])
    second = crawl(shop, "n1", source, settings={**settings, "LEASE_RUN": "2"})
    shop.wait([second])
    assert len(shop.hits("/product/")) == 6
    for dimension in ("api", "ip"):
        assert rates(first, dimension)["granted"] == 6
        assert rates(second, dimension)["granted"] == 0
    assert counted(server) == {6}


def test_a_request_pays_in_all_dimensions_or_in_none(fleet: Callable[..., Fleet], server: Server) -> None:
    """5 a minute by address and 2 by site, 10 tries: 2 are sent, and both have counted 2."""
    shop = fleet(products=10)
    node = crawl(shop, "n0", PRODUCTS, settings=limits(ip="5/hour", api="2/hour"), number="10")
    shop.wait_for_hits(2)
    time.sleep(1.5)
    node.terminate()
    assert node.wait(10) == 0
    assert len(shop.hits("/product/")) == 2
    assert (rates(node, "ip")["granted"], rates(node, "api")["granted"]) == (2, 2)
    assert counted(server) == {2}


def test_what_a_request_says_of_its_cost(fleet: Callable[..., Fleet]) -> None:
    """lease_rate_cost weighs, lease_rate = False exempts; what costs more than there is in a window fails."""
    shop = fleet(products=30)
    node = crawl(shop, "n0", """
        class Costs(ShopSpider):
            async def start(self):
                for number in range(1, 7):
                    yield self.page(f"/product/{number}", meta={"lease_rate_cost": 5})
                for number in range(7, 30):
                    yield self.page(f"/product/{number}", meta={"lease_rate": False})
                yield self.page("/product/30", meta={"lease_rate_cost": 11})
        """, settings={**limits(api="10/second"), "LEASE_ITEM_ATTEMPTS": 1})  # fmt: skip
    shop.wait([node])
    paid = [hit.epoch for hit in shop.hits("/product/") if int(hit.path.rpartition("/")[2]) < 7]
    assert max(per_window(paid).values()) <= 2
    assert len(shop.hits("/product/")) == 29
    assert rates(node, "api")["granted"] == 30
    assert "it costs 11" in node.log


def test_a_function_tells_requests_apart(fleet: Callable[..., Fleet]) -> None:
    """Each key that a dotted path returns has the limit for itself; None has none."""
    shop = fleet(products=30)
    (shop.folder / "halves.py").write_text(
        "def half(request):\n"
        "    number = int(request.url.rpartition('/')[2])\n"
        "    return None if number > 20 else 'low' if number <= 10 else 'high'\n"
    )
    settings = {"LEASE_RATE_LIMITS": json.dumps({"halves.half": "5/second"})}
    node = crawl(shop, "n0", "import sys; sys.path.insert(0, '.')" + PRODUCTS, settings=settings, number="30")
    shop.wait([node])
    for low, high in ((1, 10), (11, 20)):
        hits = [hit.epoch for hit in shop.hits("/product/") if low <= int(hit.path.rpartition("/")[2]) <= high]
        assert (len(hits), max(per_window(hits).values())) == (10, 5)
    assert "'lease/rate/granted/halves.half': 20" in node.log


def test_what_no_scheduler_gave_is_counted_too(fleet: Callable[..., Fleet]) -> None:
    """engine.download_async waits for its permits, and takes them at the send."""
    shop = fleet(products=8)
    node = crawl(shop, "n0", """
        class Media(ShopSpider):
            async def start(self):
                yield self.page("/product/1", callback=self.fetch)

            async def fetch(self, response):
                requests = [self.page(f"/product/{number}") for number in range(2, 9)]
                await asyncio.gather(*map(self.crawler.engine.download_async, requests))
        """, settings=limits(api="3/second"))  # fmt: skip
    shop.wait([node])
    assert worst(shop) <= 3
    assert (len(shop.hits("/product/")), rates(node, "api")["granted"]) == (8, 8)


def test_keys_outside_of_the_rollout_are_only_counted(fleet: Callable[..., Fleet]) -> None:
    """LEASE_ROLLOUT = 0: nothing waits, and what would have been spent is told."""
    shop = fleet(products=40)
    settings = {**limits(api="5/second"), "LEASE_ROLLOUT": 0, "LEASE_QUEUE": "local"}
    node = crawl(shop, "n0", PRODUCTS, settings=settings)
    shop.wait([node])
    assert rates(node, "api") == {"granted": 0, "waited": 0, "parked": 0, "shadow": 40}


def test_a_rule_that_can_match_nothing_stops_the_crawl(fleet: Callable[..., Fleet]) -> None:
    """As an argument of the spider too: exit status 1, nothing fetched, one error that names it."""
    shop = fleet(products=1)
    node = crawl(shop, "n0", PRODUCTS, lease_rate_limits='{"api": {"example.com/v1": "5/s"}}')
    assert node.wait() == 1
    assert shop.hits() == []
    assert "LEASE_RATE_LIMITS" in node.log
    assert "can match nothing" in node.log


@pytest.mark.parametrize("settings", [{"LEASE_ITEMS_ENABLED": False}, {"LEASE_QUEUE": "local"}, {"SCHEDULER": PLAIN}])
def test_limits_hold_whoever_keeps_the_requests(fleet: Callable[..., Fleet], settings: dict[str, Any]) -> None:
    """With items off, with each host's own queue, and with a scheduler that the user chose."""
    shop = fleet(products=20)
    node = crawl(shop, "n0", PRODUCTS, settings={**limits(api="8/second"), **settings}, number="20")
    shop.wait([node])
    assert worst(shop) <= 8
    assert (len(shop.hits("/product/")), rates(node, "api")["granted"]) == (20, 20)


def counted(server: Server) -> set[int]:
    """What the counters of the store have counted in their windows."""
    client = server.client()
    return {int(client.hget(key, "count")) for key in client.scan_iter("*:rate:*")}


def test_what_waits_goes_in_its_order(fleet: Callable[..., Fleet]) -> None:
    """Those that were parked too: none overtakes more than the downloader takes at once; the urgent go first."""
    shop = fleet(products=30)
    node = crawl(shop, "n0", """
        class Ordered(ShopSpider):
            async def start(self):
                for number in range(1, 31):
                    yield self.page(f"/product/{number}", priority=5 if number > 25 else 0)
        """, settings={**limits(api="4/second"), "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "LEASE_WINDOW": 40})  # fmt: skip
    shop.wait([node])
    numbers = [int(hit.path.rpartition("/")[2]) for hit in shop.hits("/product/")]
    plain = [number for number in numbers if number <= 25]
    assert all(abs(number - place) <= 4 for place, number in enumerate(plain, 1))
    # What was handed out before they were there is not called back.
    assert {26, 27, 28, 29, 30} <= set(numbers[:17])
    assert rates(node, "api")["parked"] > 0
