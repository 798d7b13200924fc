"""Whatever other code does at any of Scrapy's hooks, each place on a leased proxy is free for the next request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.fleet import until
from tests.helpers.proxied import Bed
from tests.helpers.proxies import DIRECT
from tests.helpers.spiders import items_of

pytestmark = pytest.mark.one_server

#: What a middleware does with a page is in the page's path: ``/HOOK-DEED/NUMBER``. What is returned again is so once.
TRICKS = """
import asyncio

from scrapy import signals
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured, NotSupported, StopDownload
from scrapy.http import HtmlResponse

ERRORS = {
    "ignore": IgnoreRequest, "bug": ValueError, "close": CloseSpider, "timeout": TimeoutError, "os": OSError,
    "unsupported": NotSupported, "unconfigured": NotConfigured,
}


class Tricks:
    def __init__(self):
        self.done = set()

    async def deed(self, hook, request, instead):
        path = request.url.split("/", 3)[3]
        told, _, deed = path.partition("/")[0].partition("-")
        if told != hook:
            return instead
        if deed.startswith("late"):
            await asyncio.sleep(0.03)
            deed = deed.removeprefix("late")
        if deed in ("same", "other") and path in self.done:
            return instead
        self.done.add(path)
        if deed in ERRORS:
            raise ERRORS[deed]()
        return {
            "": instead,
            "same": request,
            "copy": request.replace(url=request.url.replace(told, "x"), dont_filter=True),
            "page": HtmlResponse(request.url, body=b"early"),
            "other": HtmlResponse(request.url, body=b"early", request=request.replace(url=request.url + "/else")),
            "nonsense": "nonsense",
        }[deed]

    async def process_request(self, request):
        return await self.deed("request", request, None)

    async def process_response(self, request, response):
        return await self.deed("response", request, response)

    async def process_exception(self, request, exception):
        return await self.deed("exception", request, None)


class SpiderTricks:
    def process_spider_input(self, response):
        if "/input/" in response.url:
            raise ValueError("a bug")

    async def process_spider_output(self, response, result):
        async for one in result:
            yield one
            if "/output/" in response.url:
                raise ValueError("a bug")


def handler(path, error):
    def handle(request, **rest):
        if f"/{path}/" in request.url:
            raise error

    return handle
"""
SPIDER = """
from scrapy import signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from tricks import handler

DEEDS = ["", "late", "ignore", "bug", "close", "timeout", "os", "unsupported", "unconfigured", "same", "copy", "page"]
DEEDS += ["other", "nonsense", "latebug", "latepage", "latecopy", "latesame"]


class Leaks(ShopSpider):
    async def start(self):
        for path, signal, error in (
            ("headers", signals.headers_received, StopDownload(fail=True)),
            ("heads", signals.headers_received, StopDownload(fail=False)),
            ("bytes", signals.bytes_received, StopDownload(fail=True)),
            ("byte", signals.bytes_received, StopDownload(fail=False)),
            ("reached", signals.request_reached_downloader, ValueError()),
            ("left", signals.request_left_downloader, ValueError()),
            ("received", signals.response_received, ValueError()),
            ("scheduled", signals.request_scheduled, IgnoreRequest()),
        ):
            self.crawler.signals.connect(handler(path, error), signal, weak=False)
        number = 0
        for deed in DEEDS:
            for hook in ("request", "response", "exception"):
                number += 1
                meta = {"download_maxsize": 3} if hook == "exception" else {}
                yield self.page(f"/{hook}-{deed}/{number}", meta=meta, priority=9)
        names = "headers heads bytes byte reached left received scheduled input output callback generator none"
        for name in (*names.split(), "errback"):
            yield self.page(f"/{name}/1", priority=9, callback=getattr(self, name, None))
        for name in ("error", "more"):
            yield self.page(f"/response-bug/{name}", priority=9, errback=getattr(self, name))
        yield Request("foo://nowhere/x", priority=9)
        for number in range(9):
            yield self.page(f"/slow/0.15/{number}")

    def callback(self, response):
        raise ValueError("a bug")

    def generator(self, response):
        yield {"path": "/generator"}
        raise ValueError("a bug")

    def none(self, response):
        pass

    def error(self, failure):
        raise ValueError("a bug")

    def more(self, failure):
        yield self.page("/more/1", priority=9)
"""


@pytest.mark.parametrize(("order", "concurrency"), [(100, 2), (746, 1), (746, 2), (941, 1), (990, 2)])
def test_whatever_a_hook_does(bed: Callable[..., Bed], order: int, concurrency: int) -> None:
    """Middlewares, handlers of signals, callbacks and errbacks that answer, raise or replace: no place is lost."""
    b = bed(1, latency=0.01)
    (b.shop.folder / "tricks.py").write_text(TRICKS)
    settings = {
        "DOWNLOADER_MIDDLEWARES": f'{{"tricks.Tricks": {order}}}',
        "SPIDER_MIDDLEWARES": '{"tricks.SpiderTricks": 500}',
        "LEASE_ITEM_ATTEMPTS": 1,
        "LEASE_PROXY_CONCURRENCY": concurrency,
        "RETRY_TIMES": 0,
        "LOG_LEVEL": "DEBUG",
    }
    node = b.run(SPIDER, settings=settings)
    assert node.stats["finish_reason"] == "finished"
    slow = [hit for hit in b.site.hits if hit.path.startswith("/slow/")]
    assert len(slow) == 9
    assert max(hit.in_flight for hit in slow) == concurrency
    assert max(hit.in_flight for hit in b.site.hits) == concurrency
    assert b.site.peers == b.exits()
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}
    assert node.stats["lease/proxy/leased/default"] == node.stats["lease/proxy/released/default"]


CANCELS = """
class Cancels(ShopSpider):
    async def start(self):
        yield self.page("/page/0")

    async def parse(self, response):
        engine = self.crawler.engine
        for number in range(3):
            try:
                await asyncio.wait_for(engine.download_async(self.page(f"/slow/0.8/{number}")), 0.3)
            except TimeoutError:
                pass
            await engine.download_async(self.page(f"/slow/0.05/{number}"))
        yield {"path": "/page/0"}
"""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_caller_that_waits_no_longer(bed: Callable[..., Bed], concurrency: int) -> None:
    """Its download is cut off with it: the proxy carries no more requests than it may."""
    b = bed(1)
    node = b.run(CANCELS, settings={"LEASE_PROXY_CONCURRENCY": concurrency})
    assert len(items_of(b.shop)) == 1
    assert max(hit.in_flight for hit in b.site.hits) <= concurrency
    assert b.site.peers == b.exits()
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}
    assert "Traceback" not in node.log


QUEUED = """
class Queued(ShopSpider):
    custom_settings = {**ShopSpider.custom_settings, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}

    async def start(self):
        yield self.page("/page/0")

    async def parse(self, response):
        engine = self.crawler.engine
        first = asyncio.ensure_future(engine.download_async(self.page("/slow/0.8/first")))
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(engine.download_async(self.page("/slow/0.05/second")))
        await asyncio.sleep(0.2)
        second.cancel()
        await first
        await asyncio.sleep(0.5)
        await engine.download_async(self.page("/slow/0.05/third"))
        yield {"path": "/page/0"}
"""


def test_a_caller_that_waits_no_longer_in_a_slots_queue(bed: Callable[..., Bed]) -> None:
    """What nobody waits for any more is not sent when its turn comes: it has no proxy, and would go directly."""
    b = bed(2)
    node = b.run(QUEUED)
    assert b.site.paths() == ["/page/0", "/slow/0.05/third", "/slow/0.8/first"]
    assert DIRECT not in b.site.peers
    assert b.left() == {"leased": 0, "free": 2, "resting": 0, "known": 2}
    assert "Traceback" not in node.log


TWICE = """
class Twice(ShopSpider):
    async def start(self):
        yield self.page("/page/0")

    async def parse(self, response):
        engine, request = self.crawler.engine, self.page("/slow/0.1/same")
        both = engine.download_async(request), engine.download_async(request)
        await asyncio.gather(*both, return_exceptions=True)
        later = [engine.download_async(self.page(f"/slow/0.3/{number}")) for number in range(4)]
        await asyncio.gather(*later)
        yield {"path": "/page/0"}
"""


def test_one_request_twice_at_once(bed: Callable[..., Bed]) -> None:
    """Scrapy fails one of them; both places on the proxy are free again."""
    b = bed(1)
    b.run(TWICE, settings={"LEASE_PROXY_CONCURRENCY": 2})
    assert len(items_of(b.shop)) == 1
    assert max(hit.in_flight for hit in b.site.hits if "/0.3/" in hit.path) == 2
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}


CUTS = """
import asyncio


class Cuts:
    is_done = False

    def process_request(self, request):
        if request.url.endswith("/2") and not self.is_done:
            self.is_done = True
            asyncio.get_running_loop().call_later(0.05, asyncio.current_task().cancel)
"""


@pytest.mark.parametrize(
    "settings",
    [{"LEASE_PROXY_POOL": '{"media": false, "*": "default"}'}, {"LEASE_PROXY_ENABLED": "False"}],
    ids=["direct media", "no proxies"],
)
def test_a_page_that_nobody_waits_for(bed: Callable[..., Bed], settings: dict[str, Any]) -> None:
    """A page whose task is cancelled in the queue of its slot goes back: it is fetched under its next lease only."""
    b = bed(1)
    (b.shop.folder / "cuts.py").write_text(CUTS)
    slow = {"DOWNLOAD_DELAY": "0.5", "RANDOMIZE_DOWNLOAD_DELAY": "False", "CONCURRENT_REQUESTS_PER_DOMAIN": "1"}
    node = b.crawl(pages=4, settings={"DOWNLOADER_MIDDLEWARES": '{"cuts.Cuts": 800}', **slow, **settings})
    until(lambda: len(items_of(b.shop)) == 4, 30, "all pages")
    # Scrapy never learns that the task has ended, and would not end either.
    node.kill()
    assert sorted(b.site.paths()) == [f"/page/{number}" for number in range(4)]
    assert (DIRECT in b.site.peers) == ("LEASE_PROXY_ENABLED" in settings)


AGAIN = """
class Again(ShopSpider):
    async def start(self):
        yield self.page("/page/0")

    async def parse(self, response):
        other = await self.crawler.engine.download_async(response.request)
        yield {"path": other.url.removeprefix(self.base), "status": other.status}
"""


def test_a_page_that_its_callback_asks_for_again(bed: Callable[..., Bed]) -> None:
    """With download_async it is what no scheduler gave, also where it is the same object: it goes as that goes."""
    b = bed(1)
    b.run(AGAIN, settings={"LEASE_PROXY_POOL": '{"media": false, "*": "default"}'})
    assert [item["status"] for item in items_of(b.shop)] == [200]
    assert b.site.peers == {DIRECT, *b.exits()}
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}


ASIDE = """
class Aside:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_request(self, request):
        if request.url.endswith("/page/0") and not request.meta.get("is_aside"):
            request.meta["is_aside"] = True
            await self.crawler.engine.download_async(request)
"""


def test_a_page_that_a_middleware_asks_for_on_its_way(bed: Callable[..., Bed]) -> None:
    """With download_async, by the same object: Scrapy fails one of them, and both places are free again."""
    b = bed(1)
    (b.shop.folder / "aside.py").write_text(ASIDE)
    settings = {"DOWNLOADER_MIDDLEWARES": '{"aside.Aside": 800}', "LEASE_PROXY_CONCURRENCY": "2"}
    slow = [f"/slow/0.3/{number}" for number in range(4)]
    node = b.crawl(paths=" ".join(["/page/0", *slow]), settings={**settings, "LEASE_ITEM_ATTEMPTS": "1"})
    until(lambda: sum(path in b.site.paths() for path in slow) == 4, 20, "the slow pages")
    node.terminate()
    node.wait(20)
    assert max(hit.in_flight for hit in b.site.hits if "/slow/" in hit.path) == 2
    assert b.left() == {"leased": 0, "free": 1, "resting": 0, "known": 1}
