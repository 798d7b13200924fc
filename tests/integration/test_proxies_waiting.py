"""What waits for a proxy: outside of the downloader, not for ever, and not in the way of others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.helpers.fleet import until
from tests.helpers.proxied import Bed, urls
from tests.helpers.proxies import Web
from tests.helpers.spiders import items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

TWO_POOLS = """
class Two(ShopSpider):
    other = ""

    async def start(self):
        for number in range(40):
            yield self.page(f"/page/{number}", priority=1)
        for number in range(60):
            yield Request(f"{self.other}/page/{number}", meta={"lease_proxy": "fast"})
"""


def test_what_waits_takes_no_place_of_others(bed: Callable[..., Bed]) -> None:
    """40 pages that share one slow proxy are asked for first; 60 through another pool take no longer than alone."""
    b = bed(5, latency=0.4)
    slow, *fast = b.web.proxies
    pools = f'{{"default": {{"proxies": {urls([slow])}}}, "fast": {{"proxies": {urls(fast)}}}}}'
    with Web(latency=0.02) as other:
        base = other.site.base.replace("127.0.0.1", "localhost")
        settings = {"LEASE_PROXY_POOLS": pools, "CONCURRENT_REQUESTS": 8}
        node = b.crawl(TWO_POOLS, other=base, settings=settings)
        until(lambda: len(other.site.hits) == 60, 40, "the pages of the other site")
        took = other.site.hits[-1].started - other.site.hits[0].started
        node.terminate()
        assert node.wait(20) == 0
    assert took < 4
    assert len(b.site.hits) < 15
    assert node.stats["lease/proxy/waited/default"] >= len(b.site.hits) - 3


def test_an_item_goes_back_after_its_tries(bed: Callable[..., Bed]) -> None:
    """After LEASE_PROXY_RETRIES it is pending again, nothing counted; it is done when a proxy serves it at last."""
    b = bed(3)
    b.site.bans = lambda peer, path: path == "/page/3" and sum(hit.path == path for hit in b.site.hits) <= 2
    node = b.run(settings={"LEASE_PROXY_RETRIES": 0}, pages=6)
    assert paths_of(items_of(b.shop)) == sorted(f"/page/{number}" for number in range(6))
    assert sum(hit.path == "/page/3" for hit in b.site.hits) == 3
    assert node.stats["lease/queue/requeued"] == 2
    assert node.stats["lease/items/done"] == 6
    assert "lease/items/failed" not in node.stats


def test_an_item_goes_back_after_its_wait(bed: Callable[..., Bed]) -> None:
    """Who gets no proxy within LEASE_PROXY_WAIT gives its items back for others; whoever has proxies fetches them."""
    b = bed(1, latency=0.2)
    b.web.die(b.web.proxies[0])
    (good,) = b.web.add()
    pool = {"LEASE_PROXY_WAIT": "1", "LEASE_PROXY_BACKOFF": "60,60"}
    poor = b.crawl(name="poor", pages=10, settings={**pool, "LEASE_PROXIES": urls(b.web.proxies[:1])})
    poor.wait_for("has no usable proxy")
    rich = {"LEASE_PROXY_POOLS": f'{{"rich": {{"proxies": {urls([good])}}}}}', "LEASE_PROXY_POOL": "rich"}
    started = time.monotonic()
    b.shop.wait([b.crawl(name="rich", pages=10, settings=rich)])
    assert {hit.agent for hit in b.site.hits} == {"rich"}
    assert len(items_of(b.shop)) == 10
    assert time.monotonic() - started < 30
    assert poor.wait(20) == 0
    assert poor.stats["lease/proxy/refused/default"] >= 1
    assert not records_of(b.client)


FREED = """
class Slow(ShopSpider):
    async def start(self):
        yield self.page("/page/1")
"""


def test_a_lease_that_an_operator_ends(bed: Callable[..., Bed]) -> None:
    """Its download is cut off as soon as the node is told; the page is fetched through another proxy."""
    b = bed(2, latency=8.0)
    node = b.crawl(FREED, settings={"DOWNLOAD_TIMEOUT": 30})
    until(lambda: b.site.hits, 20, "the page")
    b.site.latency = 0.0
    taken = next(proxy for proxy in b.web.proxies if proxy.exit == b.site.hits[0].peer)
    b.free(taken.endpoint)
    assert node.wait(20) == 0
    first, second = b.site.hits
    assert first.peer != second.peer
    assert second.started - first.started < 6
    assert node.stats["lease/items/done"] == 1
    assert "lease/items/failed" not in node.stats


def test_a_robots_txt_without_proxy_is_told_in_one_line(bed: Callable[..., Bed]) -> None:
    """It gets no proxy in time: Scrapy prints no traceback, and crawls the site as one that has no such file."""
    b = bed(2)
    good, dead = b.web.proxies
    b.web.die(dead)
    pools = {"default": {"proxies": [good.url]}, "dead": {"proxies": [dead.url]}}
    settings = {"ROBOTSTXT_OBEY": "True", "LEASE_PROXY_WAIT": "1", "LEASE_PROXY_BACKOFF": "60,60"}
    routes = {"LEASE_PROXY_POOLS": json.dumps(pools), "LEASE_PROXY_POOL": '{"media": "dead", "*": "default"}'}
    node = b.run(pages=3, settings={**settings, **routes})
    assert sorted(paths_of(items_of(b.shop))) == [f"/page/{number}" for number in range(3)]
    assert node.log.count("its site is crawled as one that has none") == 1
    assert "Traceback" not in node.log
    assert b.site.peers == {good.exit}
