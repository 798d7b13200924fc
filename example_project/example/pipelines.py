"""Stores products. A page that was fetched twice is stored once, and the later holder of its lease wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from example.items import Product
from example.middlewares import node_of
from example.products import ProductTable
from scrapy_lease import lease_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

THREADS = 4


class StorePipeline:
    """Writes each Product to the database at SHOP_DATABASE_URL, in threads: the reactor never waits for it.

    An item without a lease (scrapy-lease turned off) has fence 0.
    """

    def __init__(self, table: ProductTable, node: str) -> None:
        self.table = table
        self.node = node
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(ProductTable(crawler.settings["SHOP_DATABASE_URL"], pool_size=THREADS), node_of(crawler))

    async def open_spider(self) -> None:
        await self._in_thread(self.table.create)

    async def close_spider(self) -> None:
        await self._in_thread(self.table.close)
        self._threads.shutdown()

    async def process_item(self, item: Any) -> Any:
        if not isinstance(item, Product):
            return item
        # Asked for before the first await: the lease is known only to the code that handles its response.
        lease = lease_of(item)
        row = {**asdict(item), "fence": lease.fence if lease else 0, "node": self.node}
        await self._in_thread(self.table.save, row)
        return item

    async def _in_thread(self, function: Callable[..., None], *args: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
