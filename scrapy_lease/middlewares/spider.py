"""Spider middlewares: the two ends of the chain through which a response and its output pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.outcomes import Tracker


class OuterMiddleware:
    """Outermost (lowest number): sees a scrape begin and what comes out; lets nothing of a lost lease out."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Tracker.of(crawler))

    def process_spider_input(self, response: Response) -> None:
        self._tracker.scrape_started(response)

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        tracker = self._tracker
        admits = tracker.admitting()
        try:
            async for output in result:
                if not tracker.is_certain():
                    await tracker.certain()
                if admits(output):
                    yield output
        except asyncio.CancelledError as error:
            # Scrapy would wait for this output for ever, unless somebody did cancel the task.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._tracker.raised(error)
            raise RuntimeError("the callback raised asyncio.CancelledError: catch it there") from error
        self._tracker.exhausted()

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        self._tracker.unhandled(exception)


class InnerMiddleware:
    """Innermost (highest number): sees whether a response reaches its callback, and what the callback raises.

    The output is counted at the outer end, after the other middlewares: here it needs no hook.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Tracker.of(crawler))

    def process_spider_input(self, response: Response) -> None:
        self._tracker.accepted()

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        self._tracker.raised(exception)
