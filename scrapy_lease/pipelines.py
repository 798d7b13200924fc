"""The item pipeline before all others: the last look at an item before the user's own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Self

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from scrapy_lease.meta import read_record
from scrapy_lease.outcomes import Tracker
from scrapy_lease.runtime import Runtime

logger = logging.getLogger(__name__)


class GuardPipeline:
    """Outermost (lowest number): drops the items of a page whose lease is gone, as the spider middlewares do.

    Between them and the pipelines Scrapy lets other callbacks run, and one that blocks may cost the session. What
    passes gets its fence, where LEASE_FENCE_FIELD says so.

    :param fence_field: name of the item field that receives the fence, None for none.
    """

    def __init__(self, tracker: Tracker, fence_field: str | None) -> None:
        self._tracker = tracker
        self._fence_field = fence_field
        self._without_field: set[type] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Tracker.of(crawler), Runtime.of(crawler).settings.fence_field)

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
        if self._fence_field is not None:
            self._stamp(item, self._fence_field)
        return item

    def _stamp(self, item: Any, field: str) -> None:
        request = self._tracker.current()
        record = read_record(request.meta) if request is not None else None
        if record is None:
            return
        try:
            ItemAdapter(item)[field] = record["fence"]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if type(item) not in self._without_field:
                self._without_field.add(type(item))
                logger.warning(
                    "LEASE_FENCE_FIELD=%r: items of %s cannot receive the fence (%s); give them this field",
                    field, type(item).__qualname__, error,
                )  # fmt: skip
