"""A crawl that is closed in the middle, from wherever: all its leases are settled, and what is not done is pending."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import cycle

import pytest

from tests.helpers.fleet import until
from tests.helpers.proxied import Bed
from tests.helpers.spiders import items_of, records_of

pytestmark = pytest.mark.one_server

#: Closes the crawl where the sixth page, or a later one, comes by at the hook *at*; all are known by then.
CLOSES = """
from scrapy import signals


class Closer:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_request(self, request):
        self.crawler.spider.close_at("request", request)

    def process_response(self, request, response):
        self.crawler.spider.close_at("response", request)
        return response

    def process_exception(self, request, exception):
        self.crawler.spider.close_at("exception", request)


class Closes(ShopSpider):
    custom_settings = {**ShopSpider.custom_settings, "DOWNLOADER_MIDDLEWARES": {Closer: 800}}
    at = ""
    passed = 0
    knows_all = False

    async def start(self):
        for at, signal in (
            ("reached", signals.request_reached_downloader),
            ("headers", signals.headers_received),
            ("received", signals.response_received),
            ("left", signals.request_left_downloader),
        ):
            self.crawler.signals.connect(self.handler(at), signal, weak=False)
        for number in range(24):
            maxsize = {"download_maxsize": 3} if self.at in ("exception", "errback") else {}
            yield self.page(f"/page/{number}", errback=self.failed, meta=maxsize)
        self.knows_all = True

    def handler(self, at):
        return lambda request, **rest: self.close_at(at, request)

    def close_at(self, hook, request):
        if hook == self.at:
            self.passed += 1
            if self.passed >= 6 and self.knows_all:
                self.at = ""
                asyncio.ensure_future(self.crawler.engine.close_spider_async(reason="enough"))

    def failed(self, failure):
        self.close_at("errback", failure.request)

    def parse(self, response):
        self.close_at("callback", response.request)
        self.passed += self.at == "raise"
        if self.at == "raise" and self.knows_all and self.passed >= 6:
            raise CloseSpider("enough")
        return super().parse(response)
"""
HOOKS = ["request", "reached", "headers", "response", "received", "left", "exception", "errback", "callback", "raise"]


@pytest.mark.parametrize(("at", "concurrency"), list(zip(HOOKS, cycle([1, 2]))))
def test_closed_at_a_hook(bed: Callable[..., Bed], at: str, concurrency: int) -> None:
    """Whoever closes the crawl, and whatever is under way or waits for a proxy then: all is settled soon."""
    b = bed(2, latency=0.1)
    settings = {"LEASE_PROXY_CONCURRENCY": concurrency, "LEASE_ITEM_BACKOFF": "60,60", "LEASE_ITEM_ATTEMPTS": "1"}
    began = time.monotonic()
    node = b.run(CLOSES, settings=settings, at=at)
    assert node.stats["finish_reason"] == "enough"
    assert time.monotonic() - began < 10
    assert max(hit.in_flight for hit in b.site.hits) <= concurrency
    assert b.site.peers <= b.exits()
    assert b.left() == {"leased": 0, "free": 2, "resting": 0, "known": 2}
    assert node.stats["lease/proxy/leased/default"] == node.stats["lease/proxy/released/default"]
    assert {record.state for record in records_of(b.client)} <= {"pending", "delayed"}
    if at not in ("exception", "errback"):
        assert len(records_of(b.client)) == 24 - len(items_of(b.shop))


MEDIA = """
class Media(ShopSpider):
    custom_settings = {"ITEM_PIPELINES": {ItemLog: 100, "scrapy.pipelines.files.FilesPipeline": 50}}

    async def start(self):
        yield self.page("/page/0")

    def parse(self, response):
        for number in range(3):
            files = [f"{self.base}/slow/1/{number}/{file}" for file in range(4)]
            yield {"path": f"/page/{number}", "file_urls": files}
"""


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_files_that_wait_for_a_proxy(bed: Callable[..., Bed], told: signal.Signals) -> None:
    """Twelve files and one proxy: who is told to leave waits for what is being sent, and for no file that waits."""
    b = bed(1)
    node = b.crawl(MEDIA, settings={"FILES_STORE": str(b.shop.folder / "files")})
    until(lambda: len(b.site.hits) >= 2)
    node.process.send_signal(told)
    began = time.monotonic()
    assert node.wait(20) == 0
    assert time.monotonic() - began < 4
    assert len(b.site.hits) <= 3
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}
