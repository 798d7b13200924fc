"""Spider middleware around ``start()``: who reads it, and how fast."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Self, cast

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_lease.guard.coordinator import Guard
from scrapy_lease.scheduler import LeaseScheduler
from scrapy_lease.scheduler.start import Start


class StartMiddleware:
    """Outermost (lowest number): sees what the engine gets of ``start()``."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        turn = self._turn()
        if not await turn.is_mine():
            turn.ended()
            return
        try:
            async for output in start:
                if isinstance(output, Request):
                    turn.yielded(output)
                await turn.pace()
                yield output
        except Exception:
            # Scrapy reports it; another session would only meet it again.
            turn.ended()
            raise
        turn.ended()

    def _turn(self) -> Start:
        scheduler = self._crawler.engine.scheduler
        # To isinstance any two schedulers are alike.
        if LeaseScheduler in type(scheduler).__mro__:
            return cast(LeaseScheduler, scheduler).start
        return Guard.of(self._crawler).start
