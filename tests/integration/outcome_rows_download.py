"""Rows of the outcome table that are decided on the downloader side."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from scrapy import Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse

from scrapy_lease.exceptions import LeaseLost
from tests.integration.outcome_crawls import Rows, RowSpider, hooks, options, path_of, raiser
from tests.integration.outcome_rows_middleware import Errback, ErrbackRaises

ROWS = Rows()


def downloader_middleware(**methods: Any) -> dict[str, Any]:
    """Settings with a middleware between the ones of Scrapy (as near to the engine as any of them)."""
    return {"DOWNLOADER_MIDDLEWARES": {hooks(**methods): 10}}


def page(request: Request) -> HtmlResponse:
    return HtmlResponse(request.url, body=b"<html></html>", request=request)


RESET = ["continues /reset", "failed target"]


@ROWS.row({"/reset": RESET})
class DownloadError(RowSpider):
    """A download error after all retries: failed."""

    paths = ("/reset",)


@ROWS.row({"/reset": RESET, "/child": ["done"]}, ["errback None"])
class DownloadErrorWithErrback(Errback):
    """The same whatever an errback yields; its output is processed but is nobody's."""

    paths = ("/reset",)


@ROWS.row({"/reset": RESET})
class DownloadErrorErrbackRaises(ErrbackRaises):
    """The same when the errback raises."""

    paths = ("/reset",)


@ROWS.row({"/private": ["rejected ignored"], "/page": ["done"]})
class Robots(RowSpider):
    """robots.txt forbids a page: rejected; robots.txt itself has no outcome."""

    paths = ("/private", "/page")
    extra = options(ROBOTSTXT_OBEY=True)


@ROWS.row({"/page": ["rejected ignored"]})
class RequestIgnored(RowSpider):
    """IgnoreRequest in process_request: rejected."""

    extra = downloader_middleware(process_request=raiser(IgnoreRequest))


@ROWS.row({"/page": ["rejected ignored"], "/child": ["rejected ignored"]}, ["errback None"])
class RequestIgnoredWithErrback(Errback):
    """The same whatever an errback yields."""

    extra = downloader_middleware(process_request=raiser(IgnoreRequest))


@ROWS.row({"/page": ["failed middleware"]})
class RequestRaises(RowSpider):
    """Another exception in process_request: failed."""

    extra = downloader_middleware(process_request=raiser(ValueError))


@ROWS.row({"/page": ["failed middleware"], "/child": ["failed middleware"]}, ["errback None"])
class RequestRaisesWithErrback(Errback):
    """The same whatever an errback yields."""

    extra = downloader_middleware(process_request=raiser(ValueError))


@ROWS.row({"/gzip": ["failed middleware"]})
class BadGzip(RowSpider):
    """A body that cannot be decompressed, neither process_response nor process_exception tell: failed."""

    paths = ("/gzip",)


@ROWS.row({"/redirect": ["continues /redirect"] * 2 + ["rejected ignored"]})
class MaxRedirects(RowSpider):
    """Too many redirects end in IgnoreRequest: rejected."""

    paths = ("/redirect",)
    extra = options(REDIRECT_MAX_TIMES=2)


@ROWS.row({"/page": ["rejected ignored"]})
class ResponseIgnored(RowSpider):
    """IgnoreRequest in another middleware's process_response: rejected."""

    extra = downloader_middleware(process_response=raiser(IgnoreRequest))


@ROWS.row({"/page": ["failed middleware"]})
class ResponseRaises(RowSpider):
    """Another exception there: failed."""

    extra = downloader_middleware(process_response=raiser(ValueError))


@ROWS.row({"/reset": RESET})
class ExceptionRaises(RowSpider):
    """Another middleware's process_exception raises: failed."""

    paths = ("/reset",)
    extra = downloader_middleware(process_exception=raiser(ValueError))


@ROWS.row({"/reset": ["continues /reset", "rejected ignored"]})
class ExceptionIgnores(RowSpider):
    """Another middleware's process_exception raises IgnoreRequest: rejected."""

    paths = ("/reset",)
    extra = downloader_middleware(process_exception=raiser(IgnoreRequest))


@ROWS.row({"/redirect/page": ["continues /page"], "/page": ["done"]}, ["/redirect/page None", "/page None"])
class Redirect(RowSpider):
    """A redirect continues with the new request, which is nobody's child."""

    paths = ("/redirect/page",)

    def parse(self, response: Any) -> Any:
        for path, parent in self.record.parents:
            self.record.note(path, parent)


@ROWS.row({"/flaky": ["continues /flaky", "done"]})
class Retry(RowSpider):
    """A retry continues."""

    paths = ("/flaky",)


def other_request(self: Any, request: Request, **_: Any) -> Request | None:
    return Request(request.url + "/other") if path_of(request) in ("/page", "/reset") else None


@ROWS.row({"/page": ["continues /page/other"], "/page/other": ["done"]})
class RequestReplaced(RowSpider):
    """process_request returns a request of its own: continues."""

    extra = downloader_middleware(process_request=other_request)


@ROWS.row({"/page": ["continues /page/other"], "/page/other": ["done"]})
class ResponseReplaced(RowSpider):
    """process_response returns a request of its own: continues."""

    extra = downloader_middleware(
        process_response=lambda self, request, response: other_request(self, request) or response
    )


@ROWS.row({"/reset": ["continues /reset", "continues /reset/other"], "/reset/other": ["done"]})
class ExceptionReplaced(RowSpider):
    """process_exception returns a request of its own: continues."""

    paths = ("/reset",)
    extra = downloader_middleware(process_exception=other_request)


def same_request_once(self: Any, request: Request, response: Any) -> Any:
    if request.meta.setdefault("seen", 0):
        return response
    request.meta["seen"] = 1
    return request


@ROWS.row({"/page": ["continues itself", "done"]})
class SameRequestReturned(RowSpider):
    """A middleware returns the same request: continues with itself."""

    extra = downloader_middleware(process_response=same_request_once)

    async def start(self) -> Any:
        yield self.request("/page", dont_filter=True)


@ROWS.row({"/page": ["continues itself"]}, ["dropped"])
class SameRequestDropped(RowSpider):
    """The same, dropped by the scheduler as a duplicate: continues, and the scheduler knows the rest."""

    extra = downloader_middleware(process_response=same_request_once)

    async def start(self) -> Any:
        self.crawler.signals.connect(self.dropped, signals.request_dropped)
        yield self.request("/page")

    def dropped(self) -> None:
        self.record.note("dropped")


@ROWS.row({"/page": ["done"]})
class EarlyResponse(RowSpider):
    """process_request returns a response, which neither reaches nor leaves the downloader: as normal."""

    extra = downloader_middleware(process_request=lambda self, request: page(request))


@ROWS.row({"/page": ["done", "done"]}, ["callback None", "callback ['cached']"])
class CacheHit(RowSpider):
    """An answer of the HTTP cache: as normal."""

    extra = options(HTTPCACHE_ENABLED=True, CONCURRENT_REQUESTS=1)

    def parse(self, response: Any) -> Any:
        self.record.note("callback", response.flags or None)
        if not response.flags:
            yield response.request.replace(dont_filter=True)


@ROWS.row({"/page": ["done +1"]}, ["/elsewhere /page"])
class ResponseOfAnotherRequest(RowSpider):
    """A middleware returns the response of another request, whose meta all later hooks show: as normal."""

    extra = downloader_middleware(
        process_response=lambda self, request, response: page(request.replace(url=request.url[:-4] + "elsewhere"))
    )

    def parse(self, response: Any) -> Any:
        self.record.note(path_of(response.request), self.current())
        yield {"n": 1}


@ROWS.row({"/a": ["done +1"], "/b": ["done +1"]}, ["/a", "/b"])
class ResponseShared(RowSpider):
    """One response object answers two requests at once: each has its own outcome."""

    paths = ("/a", "/b")
    shared: ClassVar[HtmlResponse] = HtmlResponse("http://127.0.0.1/shared", body=b"")
    extra = downloader_middleware(process_request=lambda self, request: ResponseShared.shared)

    async def parse(self, response: Any) -> Any:
        await asyncio.sleep(0.01)
        self.record.note(self.current())
        yield {"n": 1}


@ROWS.row({"/page": ["done"]})
class Offsite(RowSpider):
    """A request that is filtered when scheduled was never handed out: no outcome."""

    allowed_domains = ("127.0.0.1",)

    def parse(self, response: Any) -> Any:
        yield Request("http://offsite.example/")


@ROWS.row({"/page": ["done"]})
class Duplicate(RowSpider):
    """A duplicate was never handed out: no outcome."""

    def parse(self, response: Any) -> Any:
        yield self.request("/page")


@ROWS.row({"/x": ["failed target"]})
class UnsupportedScheme(RowSpider):
    """No handler for the scheme: failed."""

    paths = ("gopher://127.0.0.1/x",)


@ROWS.row({"/page": ["done"]}, ["downloaded /page"])
class DownloadInCallback(RowSpider):
    """engine.download_async in a callback, also of its own request, has no outcome of its own."""

    async def parse(self, response: Any) -> Any:
        await self.crawler.engine.download_async(self.request("/aside"))
        await self.crawler.engine.download_async(response.request)
        self.record.note("downloaded", self.current())


@ROWS.row({"/page": ["failed middleware"]})
class CancelledErrorInMiddleware(RowSpider):
    """A CancelledError in a downloader middleware, after which Scrapy itself never ends: failed."""

    hangs = True
    extra = downloader_middleware(process_request=raiser(asyncio.CancelledError))


def witness(self: Any, request: Request, **seen: Any) -> Any:
    if path_of(request) == "/page":
        request.meta["spider"].record.note(*(type(value).__name__ for value in seen.values()))
    return seen.get("response")


class Witnessed(RowSpider):
    """Notes what a middleware next to the guard sees."""

    extra = options(DOWNLOADER_MIDDLEWARES={hooks(process_response=witness, process_exception=witness): 940})

    async def start(self) -> Any:
        yield self.request("/page", dont_filter=True, meta={"spider": self})


@ROWS.row({"/page": ["continues itself", "done"]}, ["stale", "HtmlResponse"])
class StaleResponse(Witnessed):
    """A response to a request whose lease was lost: no other middleware sees it, the request goes back."""

    asked = 0

    @property
    def stale(self) -> bool:
        self.asked += 1
        if self.asked == 2:
            # The gate asks before it sends and when the response is there.
            self.record.note("stale")
        return self.asked == 2


@ROWS.row({"/page": ["done"]}, ["LeaseLost"])
class StaleResponseAside(RowSpider):
    """The same for engine.download_async, which would send such a request again at once: it is refused."""

    async def parse(self, response: Any) -> Any:
        self.stale = True
        try:
            await self.crawler.engine.download_async(response.request)
        except LeaseLost as error:
            self.record.note(type(error).__name__)


class LosesFirst(BaseDownloadHandler):
    """Raises LeaseLost for the first download of each URL."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self.lost: set[str] = set()

    async def download_request(self, request: Request) -> HtmlResponse:
        await asyncio.sleep(0)
        if request.url not in self.lost:
            self.lost.add(request.url)
            raise LeaseLost("the session is not confirmed")
        return page(request)


@ROWS.row({"/page": ["continues itself", "done"]}, ["HtmlResponse"])
class LeaseLostAtTheGate(Witnessed):
    """A download refused or cut off because the lease was lost: no other middleware sees it, it goes back."""

    extra = Witnessed.extra | {"DOWNLOAD_HANDLERS": {"http": LosesFirst}}


@ROWS.row({"/page": ["continues itself", "done"]}, ["LeaseLost"])
class LeaseLostAside(RowSpider):
    """The same for engine.download_async, which has no scheduler to go back to: it stays an exception."""

    extra = options(DOWNLOAD_HANDLERS={"http": LosesFirst})

    async def start(self) -> Any:
        yield self.request("/page", dont_filter=True)

    async def parse(self, response: Any) -> Any:
        try:
            await self.crawler.engine.download_async(self.request("/aside"))
        except LeaseLost as error:
            self.record.note(type(error).__name__)
