"""The item pipeline before all others: what waited for its turn while its lease was lost goes no further."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from scrapy_lease.outcomes import Tracker


class GuardPipeline:
    """Outermost (lowest number): drops the items of a page whose lease is gone, as the spider middlewares do.

    Between them and the pipelines Scrapy lets other callbacks run, and one that blocks may cost the session.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Tracker.of(crawler))

    def process_item(self, item: Any) -> Any | Awaitable[Any]:
        # Not a coroutine function: the wait is rare, and a coroutine for each item is not free.
        if self._tracker.is_certain():
            return self._passed(item)
        return self._certain(item)

    async def _certain(self, item: Any) -> Any:
        await self._tracker.certain()
        return self._passed(item)

    def _passed(self, item: Any) -> Any:
        if self._tracker.is_refused():
            raise DropItem("the lease of its page is gone", log_level="INFO")
        return item
