"""The guard before an item processor, of whichever kind that is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.pipelines import ItemPipelineManager
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import build_from_crawler
from twisted.internet.defer import Deferred

from scrapy_lease.pipelines import guarded


class Of214:
    """Has what Scrapy asks of a processor since 2.14."""

    async def open_spider_async(self) -> None: ...

    async def close_spider_async(self) -> None: ...

    async def process_item_async(self, item: Any) -> Any:
        return {**item, "by": "new"}


class Older:
    """Has the methods of before."""

    def open_spider(self, spider: Spider) -> Deferred[None]:
        self.opened = spider.name
        return deferred_from_coro(asyncio.sleep(0))

    def close_spider(self, spider: Spider) -> Deferred[None]:
        self.opened = ""
        return deferred_from_coro(asyncio.sleep(0))

    def process_item(self, item: Any, spider: Spider) -> Deferred[Any]:
        async def process() -> Any:
            await asyncio.sleep(0)
            return {**item, "by": f"old, of {spider.name}"}

        return deferred_from_coro(process())


class Overridden(ItemPipelineManager):
    """Has its own way of the old kind, which Scrapy prefers."""

    def process_item(self, item: Any, spider: Spider) -> Deferred[Any]:
        async def process() -> Any:
            return {**item, "by": "overridden"}

        return deferred_from_coro(process())


def crawler() -> Crawler:
    made = Crawler(Spider)
    made.spider = Spider("shop")
    return made


@pytest.mark.parametrize(
    ("original", "by"),
    [(Of214, "new"), (Older, "old, of shop"), (Overridden, "overridden")],
)
def test_every_kind_of_processor_goes_on_as_before(original: type, by: str) -> None:
    """The guard changes nothing of what a processor of the user's own does to an item that may pass."""

    async def process() -> Any:
        processor = build_from_crawler(guarded(original, None), crawler())
        assert isinstance(processor, original)
        await processor.open_spider_async()
        item = await processor.process_item_async({"n": 1})
        await processor.close_spider_async()
        return item

    assert asyncio.run(process()) == {"n": 1, "by": by}
