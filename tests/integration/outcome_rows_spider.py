"""Rows of the outcome table that callbacks and pipelines decide."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import CloseSpider, DropItem, IgnoreRequest

from scrapy_lease.outcomes import complete_request
from tests.integration.outcome_crawls import Rows, RowSpider, Yields, hooks, options, path_of, raiser

ROWS = Rows()


def process_item(function: Any) -> dict[str, Any]:
    return {"ITEM_PIPELINES": {hooks(process_item=lambda self, item: function(item)): 300}}


@ROWS.row({"/page": ["done +2"], "/child": ["done +1"]})
class CallbackItemsAndChildren(RowSpider):
    """Callback ok, items, children: done."""

    def parse(self, response: Any) -> Any:
        yield {"n": 1}
        yield response.follow("/child", self.child)
        yield {"n": 2}

    def child(self, response: Any) -> Any:
        return [{"n": 3}]


@ROWS.row({"/page": ["done +2"]})
class CallbackAsync(RowSpider):
    """An async callback that returns a list: done."""

    async def parse(self, response: Any) -> Any:
        await asyncio.sleep(0)
        return [{"n": 1}, {"n": 2}]


@ROWS.row({"/page": ["done +2"]})
class CallbackAsyncGenerator(RowSpider):
    """An async generator: done."""

    async def parse(self, response: Any) -> Any:
        yield {"n": 1}
        await asyncio.sleep(0)
        yield {"n": 2}


@ROWS.row({"/page": ["done"]})
class CallbackReturnsNone(RowSpider):
    """A callback that returns None: done."""


@ROWS.row({"/page": ["done +1"]})
class CallbackYieldsNone(RowSpider):
    """None is no item and is not counted: done."""

    def parse(self, response: Any) -> Any:
        yield None
        yield {"n": 1}


@ROWS.row({"/page": ["done +2"]})
class ItemDropped(Yields):
    """DropItem is an accepted end: done."""

    extra = process_item(raiser(DropItem))


@ROWS.row({"/page": ["failed pipeline +2"]})
class PipelineRaises(Yields):
    """A pipeline raises: failed."""

    extra = process_item(raiser(ValueError))


@ROWS.row({"/page": ["failed pipeline +2"], "/after": ["failed pipeline +2"]})
class PipelineRaisesCloseSpider(Yields):
    """CloseSpider in a pipeline does not close the spider: failed."""

    paths = ("/page", "/after")
    extra = process_item(raiser(CloseSpider)) | {"CONCURRENT_REQUESTS": 1}


@ROWS.row({"/page": ["failed pipeline +2"]})
class PipelineRaisesCancelledError(Yields):
    """A CancelledError in a pipeline sends no item signal: failed."""

    extra = process_item(raiser(asyncio.CancelledError))


@ROWS.row({"/page": ["failed callback +1"]})
class CallbackRaisesAfterItem(RowSpider):
    """A generator raises after an item, which settles after the error: failed."""

    def parse(self, response: Any) -> Any:
        yield {"n": 1}
        raise ValueError("on purpose")


@ROWS.row({"/page": ["failed callback"]})
class CallbackRaises(RowSpider):
    """A plain function raises, `process_spider_output` is never called: failed."""

    parse = raiser(ValueError)


@ROWS.row({"/page": ["failed callback"]})
class CallbackRaisesIgnoreRequest(RowSpider):
    """IgnoreRequest in a callback is an exception like any other: failed."""

    parse = raiser(IgnoreRequest)


@ROWS.row({"/page": ["failed callback"]})
class CallbackAsyncRaises(RowSpider):
    """An async callback raises: failed."""

    async def parse(self, response: Any) -> Any:
        raise ValueError("on purpose")


@ROWS.row({"/page": ["failed callback +1"]})
class CallbackAsyncGeneratorRaises(RowSpider):
    """An async generator raises after an item: failed."""

    async def parse(self, response: Any) -> Any:
        yield {"n": 1}
        raise ValueError("on purpose")


@ROWS.row({"/page": ["failed callback +1"]})
class CallbackRaisesCancelledError(RowSpider):
    """A CancelledError in a generator, which would hang Scrapy for ever: failed, and the crawl ends."""

    async def parse(self, response: Any) -> Any:
        yield {"n": 1}
        raise asyncio.CancelledError


@ROWS.row({"/page": ["failed callback"]})
class CallbackAsyncRaisesCancelledError(RowSpider):
    """A CancelledError in an async callback, after which Scrapy itself never ends: failed."""

    hangs = True

    async def parse(self, response: Any) -> Any:
        raise asyncio.CancelledError


@ROWS.row({"/page": ["back closed +1"]})
class CloseSpiderInGenerator(RowSpider):
    """CloseSpider in a generator: handed back."""

    def parse(self, response: Any) -> Any:
        yield {"n": 1}
        raise CloseSpider("enough")


@ROWS.row({"/page": ["back closed"]})
class CloseSpiderInFunction(RowSpider):
    """CloseSpider in a plain function, no output hook is called: handed back."""

    parse = raiser(CloseSpider)


@ROWS.row({"/page": ["back closed"]})
class CloseSpiderInAsync(RowSpider):
    """CloseSpider in an async callback: handed back."""

    async def parse(self, response: Any) -> Any:
        raise CloseSpider("enough")


@ROWS.row({"/page": ["back closed"]})
class CloseSpiderInAsyncGenerator(RowSpider):
    """CloseSpider in an async generator: handed back."""

    async def parse(self, response: Any) -> Any:
        raise CloseSpider("enough")
        yield


@ROWS.row({"/page": ["done", "done"]}, ["/page None", "/page /page"])
class CallbackRetries(RowSpider):
    """get_retry_request in a callback: enqueue_request has the parent as current before its outcome."""

    def parse(self, response: Any) -> Any:
        if not response.meta.get("retry_times"):
            yield get_retry_request(response.request, spider=self, reason="again")
        else:
            for path, parent in self.record.parents:
                self.record.note(path, parent)


@ROWS.row({"/page": ["done", "done"]}, ["/page"])
class CallbackYieldsItsOwnRequest(RowSpider):
    """The same request object yielded by its callback: one outcome for each time it was handed out."""

    async def parse(self, response: Any) -> Any:
        if "again" not in response.meta:
            self.record.note(self.current())
            response.meta["again"] = response.request.dont_filter = True
            yield response.request
            await asyncio.sleep(0.1)


@ROWS.row({"/page": ["done"]}, ["start None", "item None"])
class StartYieldsItem(RowSpider):
    """An item from start() belongs to no request."""

    async def start(self) -> Any:
        self.record.note("start", self.current())
        yield self.request("/page")
        yield {"spider": self}

    extra = process_item(lambda item: item["spider"].record.note("item", item["spider"].current()))


@ROWS.row({"/page": ["done +2"]})
class DoneWhenResponse(Yields):
    """done_when="response": what pipelines do does not matter."""

    extra = process_item(raiser(ValueError)) | {"DONE_WHEN": "response"}


@ROWS.row({"/page": ["failed callback"]})
class DoneWhenResponseCallbackRaises(RowSpider):
    """done_when="response": the callback must not raise."""

    parse = raiser(ValueError)
    extra = options(DONE_WHEN="response")


@ROWS.row({"/page": ["done +1"], "/not": ["failed manual +1"], "/late": ["failed manual"]}, ["late False"])
class DoneWhenManual(RowSpider):
    """done_when="manual": done only when completed before the scrape ended."""

    paths = ("/page", "/not", "/late")
    extra = options(DONE_WHEN="manual")

    async def parse(self, response: Any) -> Any:
        if response.url.endswith("/late"):
            self.late = response.request
            return
        if response.url.endswith("/page"):
            assert self.tracker.complete(response.request)
        yield {"n": 1}

    def closed(self, reason: str) -> None:
        self.record.note("late", self.tracker.complete(self.late))


@ROWS.row({"/page": ["done"]}, ["/elsewhere True"])
class DoneWhenManualAnotherRequest(RowSpider):
    """done_when="manual": a response that shows another request completes the one that was handed out."""

    extra = options(
        DONE_WHEN="manual",
        DOWNLOADER_MIDDLEWARES={
            hooks(
                process_response=lambda self, request, response: response.replace(
                    request=request.replace(url=request.url[:-4] + "elsewhere")
                )
            ): 10
        },
    )

    def parse(self, response: Any) -> Any:
        self.record.note(path_of(response.request), complete_request(response.request))


@ROWS.row({"/page": ["back stale"], "/child": []}, ["callback"])
class StaleOutput(Yields):
    """Output of a lost lease reaches neither pipelines nor scheduler: handed back."""

    extra = process_item(lambda item: item["spider"].record.note("item"))

    def parse(self, response: Any) -> Any:
        self.record.note("callback")
        self.stale = True
        yield {"spider": self}
        yield self.request("/child")


class UncertainOutput(Yields):
    """Makes the lease uncertain while the callback runs, until the tracker asks for certainty."""

    certain = True
    turns_stale: bool

    async def certainty(self, request: Any) -> None:
        self.record.note("waits", self.current())
        await asyncio.sleep(0.01)
        self.certain = True
        self.stale = self.turns_stale

    def parse(self, response: Any) -> Any:
        self.tracker.is_certain = lambda: self.certain
        self.tracker.certainty = self.certainty
        self.certain = False
        yield {"n": 1}
        yield {"n": 2}


@ROWS.row({"/page": ["done +2"]}, ["waits /page"])
class UncertainThenConfirmed(UncertainOutput):
    """Output waits while the lease is uncertain, and leaves once it is confirmed."""

    turns_stale = False


@ROWS.row({"/page": ["back stale"]}, ["waits /page"])
class UncertainThenStale(UncertainOutput):
    """Output waits while the lease is uncertain, and is dropped once it is lost."""

    turns_stale = True
