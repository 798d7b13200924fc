"""The item processor: Scrapy's, or the one that ITEM_PROCESSOR names, with the last look at an item before it.

It drops the items of a page whose lease is gone, as the spider middlewares do: between them and the pipelines Scrapy
lets other callbacks run, and one that blocks may cost the session. What passes gets its fence, where LEASE_FENCE_FIELD
says so. It tells the tracker how each item left the pipelines; signals would tell too, at three times the cost.
"""

from __future__ import annotations

import logging
from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.pipelines import ItemPipelineManager
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object

from scrapy_lease.meta import read_record
from scrapy_lease.outcomes import Tracker

logger = logging.getLogger(__name__)


class _Guarded:
    """Before an item processor in the order of methods; `guarded` makes the class."""

    fence_field: str | None
    #: Does the processor still have the methods that return a Deferred, and no others?
    is_old: bool
    _tracker: Tracker
    _spider_of: Any
    _without_field: set[type]

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        make = getattr(super(), "from_crawler", None)
        self: Self = make(crawler) if make is not None else cls()
        self._tracker, self._spider_of, self._without_field = Tracker.of(crawler), crawler, set()
        return self

    async def process_item_async(self, item: Any) -> Any:
        tracker = self._tracker
        if not tracker.is_certain():
            await tracker.certain()
        if tracker.is_refused():
            raise DropItem("the lease of its page is gone", log_level="INFO")
        if self.fence_field is not None:
            self._stamp(item, self.fence_field)
        try:
            if self.is_old:
                item = await maybe_deferred_to_future(super().process_item(item, self._spider_of.spider))  # type: ignore[misc]
            else:
                item = await super().process_item_async(item)  # type: ignore[misc]
        except DropItem:
            tracker.item_settled()
            raise
        except Exception as error:
            tracker.item_failed(error)
            raise
        tracker.item_settled()
        return item

    def _stamp(self, item: Any, field: str) -> None:
        request = self._tracker.current()
        record = read_record(request.meta) if request is not None else None
        if record is None:
            return
        # With it comes each library of item classes that is installed, pydantic's old one too.
        from itemadapter import ItemAdapter

        try:
            ItemAdapter(item)[field] = record["fence"]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if type(item) not in self._without_field:
                self._without_field.add(type(item))
                logger.warning(
                    "LEASE_FENCE_FIELD=%r: items of %s cannot receive the fence (%s); give them this field",
                    field, type(item).__qualname__, error,
                )  # fmt: skip


class _Old:
    """What Scrapy asks of a processor, of one that only has the methods of before Scrapy 2.14."""

    _spider_of: Any

    async def open_spider_async(self) -> None:
        await maybe_deferred_to_future(super().open_spider(self._spider_of.spider))  # type: ignore[misc]

    async def close_spider_async(self) -> None:
        await maybe_deferred_to_future(super().close_spider(self._spider_of.spider))  # type: ignore[misc]


def guarded(original: Any, fence_field: str | None) -> type:
    """Return an item processor class that guards *original*, a processor class or its path.

    :param fence_field: name of the item field that receives the fence, None for none.
    """
    cls = load_object(original)
    has_new = hasattr(cls, "process_item_async")
    bases = (_Guarded, cls) if has_new else (_Guarded, _Old, cls)
    return type(
        f"Guarded{cls.__name__}", bases, {"fence_field": fence_field, "is_old": not has_new or _is_overridden(cls)}
    )


def _is_overridden(cls: type) -> bool:
    """Has *cls* its own way of the old kind, where Scrapy's manager has one of the new kind?"""
    return (
        issubclass(cls, ItemPipelineManager)
        and cls.process_item is not ItemPipelineManager.process_item
        and cls.process_item_async is ItemPipelineManager.process_item_async
    )
