"""Every way in which a request can end without an answer of the site: no lease is left behind by any."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.fleet import Node, until
from tests.helpers.proxied import PAGES, Bed, urls
from tests.helpers.proxies import DIRECT
from tests.helpers.servers import Server
from tests.helpers.spiders import items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

#: A middleware between the one that gives proxies and the one that judges, or behind both.
MIDDLEWARE = """
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import HtmlResponse
from scrapy import signals


class Between:
    def process_request(self, request):
        path = request.url.partition("/page/")[2]
        if path == "1":
            return HtmlResponse(request.url, body=b"early")
        if path == "2":
            raise IgnoreRequest("not this one")
        if path == "3":
            raise ValueError("a bug")
        if path == "4":
            return request.replace(url=request.url + "4")

    def process_response(self, request, response):
        path = request.url.partition("/page/")[2]
        if path == "5":
            raise ValueError("a bug")
        if path == "6":
            return request.replace(url=request.url + "6")
        return response

    def process_exception(self, request, exception):
        if request.url.endswith("/page/3"):
            return HtmlResponse(request.url, body=b"recovered")
"""


def one_proxy(b: Bed, node: Node) -> None:
    """Assert that the only proxy was used for everything, one request at a time, and is free again."""
    assert b.site.peers <= b.exits()
    assert max(hit.in_flight for hit in b.site.hits) == 1
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}
    assert node.stats["lease/proxy/leased/default"] == node.stats["lease/proxy/released/default"]


@pytest.mark.parametrize("order", [800, 945, 990])
def test_a_middleware_that_answers_raises_or_replaces(bed: Callable[..., Bed], order: int) -> None:
    """Whatever it does, and wherever it stands, the only proxy serves the next request."""
    b = bed(1)
    settings = {"DOWNLOADER_MIDDLEWARES": f'{{"between.Between": {order}}}', "LEASE_ITEM_ATTEMPTS": 1}
    (b.shop.folder / "between.py").write_text(MIDDLEWARE)
    node = b.run(pages=12, settings=settings)
    got = set(paths_of(items_of(b.shop)))
    assert got == {f"/page/{number}" for number in (0, 1, 3, 7, 8, 9, 10, 11, 44, 66)}
    sent = set(b.site.paths())
    assert sent == {f"/page/{number}" for number in (0, 5, 6, 7, 8, 9, 10, 11, 44, 66)}
    one_proxy(b, node)


def test_what_the_cache_has_needs_no_proxy(bed: Callable[..., Bed]) -> None:
    """A page from the HTTP cache ends its use unsent; neither the cache nor a page holds the proxy's credentials."""
    b = bed()
    b.web.add(("anna", "hunter2"))
    cache = b.shop.folder / "cache"
    settings = {"HTTPCACHE_ENABLED": "True", "HTTPCACHE_DIR": str(cache)}
    b.run(pages=6, settings=settings)
    assert len(b.site.hits) == 6
    again = b.run(name="n1", pages=8, settings={**settings, "LEASE_RUN": "again"})
    assert (again.stats["httpcache/hit"], again.stats["httpcache/miss"]) == (6, 2)
    assert len(b.site.hits) == 8
    one_proxy(b, again)
    files = [path.read_bytes().lower() for path in cache.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert not [data for data in files if b"proxy-auth" in data or b"hunter2" in data or b"anna" in data]


CANCELLED = """
from scrapy import signals
from scrapy.exceptions import StopDownload


class Cancels(ShopSpider):
    async def start(self):
        self.crawler.signals.connect(self.stop, signals.headers_received)
        for number in range(8):
            yield self.page(f"/page/{number}", meta={"download_maxsize": 3} if number == 1 else {})

    def stop(self, request):
        if request.url.endswith("/2"):
            raise StopDownload(fail=True)
        if request.url.endswith("/3"):
            raise StopDownload(fail=False)
"""


def test_a_download_that_is_cancelled(bed: Callable[..., Bed]) -> None:
    """Too large a page, or a download that a signal handler stops, is no fault of the proxy, which serves the next."""
    b = bed(1)
    node = b.run(CANCELLED, settings={"LEASE_ITEM_ATTEMPTS": 1})
    assert set(paths_of(items_of(b.shop))) == {f"/page/{number}" for number in (0, 3, 4, 5, 6, 7)}
    assert not [name for name in node.stats if name.startswith(("lease/proxy/banned", "lease/proxy/broken"))]
    one_proxy(b, node)


@pytest.mark.parametrize("waits", ["for a proxy", "for an answer"])
def test_a_close_in_the_middle(bed: Callable[..., Bed], waits: str) -> None:
    """SIGTERM ends a node soon, also one that waits for a proxy; its leases are free at once, its items pending."""
    b = bed(1 if waits == "for a proxy" else 8, latency=1.0)
    node = b.crawl(pages=20, settings={"DOWNLOAD_TIMEOUT": 30})
    until(lambda: b.site.hits and len(records_of(b.client)) + len(items_of(b.shop)) >= 20, 20, "all to be known")
    node.terminate()
    told = time.monotonic()
    assert node.wait(10) == 0
    assert time.monotonic() - told < 4
    left = b.left()
    assert (left["leased"], left["free"]) == (0, left["known"])
    pending = [record for record in records_of(b.client) if record.state in ("pending", "delayed")]
    assert len(pending) == 20 - len(items_of(b.shop))
    assert {record.attempts for record in pending} == {0}


@pytest.mark.each_server
def test_a_killed_node(bed: Callable[..., Bed]) -> None:
    """After SIGKILL its proxies serve others when its time to live is over, and not before."""
    b = bed(2, latency=0.1)
    first = b.crawl(pages=40)
    until(lambda: len(b.site.hits) > 6, 20, "some pages")
    kill = first.kill()
    second = b.crawl(name="n1", pages=40)
    b.shop.wait([second])
    hits = [hit for hit in b.site.hits if hit.agent == "n1"]
    assert min(hit.started for hit in hits) > kill.at + 1.0
    assert set(b.site.paths()) == {f"/page/{number}" for number in range(40)}
    assert b.left() == {"leased": 0, "free": 2, "resting": 0, "known": 2}


KINDS: dict[str, dict[str, Any]] = {
    "local": {"LEASE_QUEUE": "local"},
    "their scheduler": {"SCHEDULER": "scrapy.core.scheduler.Scheduler"},
    "no items": {"LEASE_ITEMS_ENABLED": "False"},
    "no items, their scheduler": {"LEASE_ITEMS_ENABLED": "False", "SCHEDULER": "scrapy.core.scheduler.Scheduler"},
    "reactorless": {"TWISTED_REACTOR_ENABLED": "False"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_ways_to_keep_requests(bed: Callable[..., Bed], server: Server, kind: str) -> None:
    """Proxies work with each host's own queues, with a scheduler of the user's, without items, without a reactor."""
    b = bed(3, latency=0.02)
    b.web.proxies[0].mode = "refuse"
    node = b.run(settings=KINDS[kind])
    assert sorted(paths_of(items_of(b.shop))) == sorted(f"/page/{number}" for number in range(20))
    assert b.site.peers == b.exits(b.web.proxies[1:])
    assert max(hit.in_flight for hit in b.site.hits) == 1
    assert b.left()["leased"] == 0
    if "no items" in kind:
        assert "this crawl leases proxies, and no items" in node.log
        assert not b.client.keys("*:done:*")


def test_switched_off(bed: Callable[..., Bed]) -> None:
    """LEASE_PROXY_ENABLED = False: one warning, and pages go as without proxies."""
    b = bed(1)
    node = b.run(settings={"LEASE_PROXY_ENABLED": "False"}, pages=3)
    assert b.site.peers == {DIRECT}
    assert node.log.count("LEASE_PROXY_ENABLED is False") == 1
    assert not b.client.keys("*:pool:*")


ROBOTS = """
class Robots(ShopSpider):
    async def start(self):
        for number in range(5):
            yield self.page(f"/page/{number}")
"""


def test_robots_txt_goes_through_a_proxy_too(bed: Callable[..., Bed]) -> None:
    """It waits for the one proxy like any page, which is not held meanwhile by the page that waits for it."""
    b = bed(1)
    node = b.run(ROBOTS, settings={"ROBOTSTXT_OBEY": "True"})
    assert len(b.site.hits) == 6
    assert len(items_of(b.shop)) == 5
    one_proxy(b, node)


UNSENT = """
import asyncio


class Slow:
    async def process_request(self, request):
        await asyncio.sleep(3)


class Pages(ShopSpider):
    custom_settings = {**ShopSpider.custom_settings, "DOWNLOADER_MIDDLEWARES": {Slow: 800}}

    async def start(self):
        for number in range(2):
            yield self.page(f"/page/{number}")
"""


def test_a_proxy_that_is_held_and_not_used(bed: Callable[..., Bed]) -> None:
    """A middleware that keeps a request after it got its proxy is told about, once."""
    b = bed(1)
    node = b.run(UNSENT, settings={"LEASE_PROXY_WAIT": "1.5"})
    assert node.log.count("has held a proxy") == 1
    assert len(items_of(b.shop)) == 2


def test_pools_beside_each_other(bed: Callable[..., Bed]) -> None:
    """Routes, meta and media each take the pool they name; False goes directly, an unknown name nowhere."""
    b = bed(4)
    first, second, third, fourth = b.web.proxies
    pools = {name: [proxy.url] for name, proxy in (("default", first), ("dc", second), ("resi", third), ("m", fourth))}
    table = ", ".join(
        f'"{name}": {{"proxies": {urls_of}}}' for name, urls_of in ((n, _json(u)) for n, u in pools.items())
    )
    route = f'{{"{b.site.base}/page/1": "dc", "media": "m"}}'
    node = b.run(
        """
class Routed(ShopSpider):
    custom_settings = {"ITEM_PIPELINES": {ItemLog: 100, "scrapy.pipelines.files.FilesPipeline": 50}}

    async def start(self):
        yield self.page("/page/0")
        yield self.page("/page/1")
        yield self.page("/page/2", meta={"lease_proxy": "resi"})
        yield self.page("/page/3", meta={"lease_proxy": False})
        yield self.page("/page/4", meta={"lease_proxy": "rezi"})

    def parse(self, response):
        path = response.url.removeprefix(self.base)
        yield {"path": path, "file_urls": [self.base + "/file" + path]}
""",
        settings={
            "LEASE_PROXY_POOLS": f"{{{table}}}",
            "LEASE_PROXY_POOL": route,
            "FILES_STORE": str(b.shop.folder / "files"),
            "LEASE_ITEM_ATTEMPTS": 1,
        },
    )
    peers = {hit.path: hit.peer for hit in b.site.hits}
    assert {path: peer for path, peer in peers.items() if path.startswith("/page/")} == {
        "/page/0": first.exit, "/page/1": second.exit, "/page/2": third.exit, "/page/3": DIRECT,
    }  # fmt: skip
    assert {peer for path, peer in peers.items() if path.startswith("/file/")} == {fourth.exit}
    assert len(items_of(b.shop)) == 4
    assert "names the pool 'rezi', which does not exist: did you mean resi?" in node.log
    assert all(b.left(name)["leased"] == 0 for name in pools)


def _json(values: list[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def test_the_next_pool_after_a_ban(bed: Callable[..., Bed]) -> None:
    """Of a list of pools the first serves what it can; what it is refused goes through the next."""
    b = bed(2)
    cheap, dear = b.web.proxies
    b.site.bans = lambda peer, path: peer == cheap.exit and path in ("/page/3", "/page/9")
    pools = f'{{"dc": {{"proxies": {urls([cheap])}}}, "resi": {{"proxies": {urls([dear])}}}}}'
    b.run(PAGES, settings={"LEASE_PROXY_POOLS": pools, "LEASE_PROXY_POOL": '["dc", "resi"]'}, pages=12)
    assert {hit.path for hit in b.site.hits if hit.peer == dear.exit} >= {"/page/3", "/page/9"}
    assert sum(hit.peer == dear.exit for hit in b.site.hits) <= 4
    assert len(items_of(b.shop)) == 12
