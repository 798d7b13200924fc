"""Rows of the outcome table that spider middlewares decide: HttpError, its errbacks, and those of others."""

from __future__ import annotations

from typing import Any

from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.logformatter import LogFormatter

from tests.integration.outcome_crawls import Rows, RowSpider, Yields, hooks, options, raiser

ROWS = Rows()


async def raise_after_first(self: Any, response: Any, result: Any) -> Any:
    async for output in result:
        yield output
        raise ValueError("on purpose")


async def first_only(self: Any, response: Any, result: Any) -> Any:
    async for output in result:
        if output == {"n": 1}:
            yield output


def recover(self: Any, response: Any, exception: Exception) -> Any:
    return [{"recovered": 1}, {"recovered": 2}]


def spider_middleware(**methods: Any) -> dict[str, Any]:
    return {"SPIDER_MIDDLEWARES": {hooks(**methods): 500}}


@ROWS.row({"/page": ["failed middleware +1"]})
class MiddlewareOutputRaises(Yields):
    """Another spider middleware's process_spider_output raises: failed."""

    extra = spider_middleware(process_spider_output=raise_after_first)


@ROWS.row({"/page": ["back closed"]})
class MiddlewareOutputClosesSpider(Yields):
    """CloseSpider in another spider middleware's process_spider_output: handed back."""

    async def close(self: Any, response: Any, result: Any) -> Any:
        raise CloseSpider("enough")
        yield

    extra = spider_middleware(process_spider_output=close)


@ROWS.row({"/page": ["failed callback"]})
class MiddlewareExceptionClosesSpider(RowSpider):
    """CloseSpider in another's process_spider_exception, of which nothing tells: failed, lest it repeat."""

    parse = raiser(ValueError)
    extra = spider_middleware(process_spider_exception=raiser(CloseSpider))


class SilentFormatter(LogFormatter):
    spider_error = raiser(KeyError)


@ROWS.row({"/page": ["failed callback"]})
class ErrorNotReported(RowSpider):
    """A callback raises, and the log formatter too, so that no signal tells: failed, lest it repeat."""

    parse = raiser(ValueError)
    extra = options(LOG_FORMATTER=SilentFormatter)


@ROWS.row({"/page": ["done +3"]})
class MiddlewareRecoversGenerator(RowSpider):
    """Another middleware recovers from a generator's exception: done, once, after what it recovered."""

    extra = spider_middleware(process_spider_exception=recover)

    def parse(self, response: Any) -> Any:
        yield {"n": 1}
        raise ValueError("on purpose")


@ROWS.row({"/page": ["done +2"]})
class MiddlewareRecoversFunction(RowSpider):
    """Another middleware recovers from a function's exception: done."""

    parse = raiser(ValueError)
    extra = spider_middleware(process_spider_exception=recover)


async def add_none(self: Any, response: Any, result: Any) -> Any:
    async for output in result:
        yield output
    yield None


@ROWS.row({"/page": ["done +2"]})
class MiddlewareYieldsNone(Yields):
    """None that a spider middleware yields sends no item signal and is not counted: done."""

    # Further out than Scrapy's own middlewares, which filter None.
    extra = options(SPIDER_MIDDLEWARES={hooks(process_spider_output=add_none): 15})


@ROWS.row({"/page": ["done +1"]})
class MiddlewareFilters(Yields):
    """A spider middleware filters items: only those that pass are counted, done."""

    extra = spider_middleware(process_spider_output=first_only)


class Errback(RowSpider):
    """Requests with an errback that yields an item and a request."""

    async def start(self) -> Any:
        for path in self.paths:
            yield self.request(path, errback=self.handle)

    def handle(self, failure: Any) -> Any:
        self.record.note("errback", self.current())
        yield {"n": 1}
        yield self.request("/child")


class ErrbackRaises(Errback):
    def handle(self, failure: Any) -> Any:
        raise ValueError("on purpose")


STATUSES = ("/status/404", "/status/500")


@ROWS.row({"/status/404": ["rejected status"], "/status/500": ["continues /status/500", "failed target"]})
class StatusRefused(RowSpider):
    """HttpError refuses a status: rejected; a retry code after all retries: failed."""

    paths = STATUSES


@ROWS.row(
    {
        "/status/404": ["rejected status +1"],
        "/status/500": ["continues /status/500", "failed target +1"],
        "/child": ["done"],
    },
    ["errback /status/404", "errback /status/500"],
)
class StatusRefusedWithErrback(Errback):
    """The same whatever an errback yields; its output is the request's own."""

    paths = STATUSES


@ROWS.row({"/status/404": ["failed callback"], "/status/500": ["continues /status/500", "failed callback"]})
class StatusRefusedErrbackRaises(ErrbackRaises):
    """The errback of a refused status raises: failed."""

    paths = STATUSES


@ROWS.row({"/status/404": ["done"], "/status/500": ["continues /status/500", "done"]})
class StatusAskedFor(RowSpider):
    """A status that the spider asks for is its own affair: done."""

    paths = STATUSES
    handle_httpstatus_list = (
        404,
        500,
    )


@ROWS.row({"/page": ["failed middleware"]})
class InputRaises(RowSpider):
    """Another middleware's process_spider_input raises: failed."""

    extra = spider_middleware(process_spider_input=raiser(ValueError))


@ROWS.row({"/page": ["failed middleware +1"], "/child": ["failed middleware"]}, ["errback /page"])
class InputRaisesWithErrback(Errback):
    """The same, whatever an errback yields."""

    extra = spider_middleware(process_spider_input=raiser(ValueError))


@ROWS.row({"/page": ["failed callback"]})
class InputRaisesErrbackRaises(ErrbackRaises):
    """The same, and the errback raises."""

    extra = spider_middleware(process_spider_input=raiser(ValueError))


@ROWS.row({"/page": ["failed middleware +2"]})
class InputRaisesRecovered(RowSpider):
    """The same, and another middleware recovers: the response was refused all the same."""

    extra = spider_middleware(
        process_spider_input=raiser(ValueError),
        process_spider_exception=recover,
    )


@ROWS.row({"/page": ["rejected ignored"]})
class InputIgnores(RowSpider):
    """IgnoreRequest in another middleware's process_spider_input: rejected."""

    extra = spider_middleware(process_spider_input=raiser(IgnoreRequest))
