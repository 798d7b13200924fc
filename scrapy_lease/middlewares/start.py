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
                if turn.is_awaited and self._has_scheduled(output):
                    continue
                yield output
        except Exception:
            # Scrapy reports it; another session would only meet it again.
            turn.ended()
            raise
        turn.ended()

    def _has_scheduled(self, output: Any) -> bool:
        """Schedule a request at once: the engine takes one in each turn of the loop, and a busy node has few turns.

        So a node that yields for others too would fetch all by itself.
        """
        engine = self._crawler.engine
        if not isinstance(output, Request) or engine.spider is None or not engine.running:
            return False
        engine.crawl(output)
        return True

    def _turn(self) -> Start:
        scheduler = self._crawler.engine.scheduler
        # To isinstance any two schedulers are alike.
        if LeaseScheduler in type(scheduler).__mro__:
            return cast(LeaseScheduler, scheduler).start
        return Guard.of(self._crawler).start
