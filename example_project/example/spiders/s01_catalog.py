"""01: an ordinary spider. Run it on as many hosts as there are: together they fetch each page once.

    scrapy crawl s01_catalog -a base=http://127.0.0.1:8000

Nothing here knows of leases. ``ADDONS`` in settings.py is all there is: the pages wait in the shared backlog,
and those of a host that dies are taken over by the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import TextResponse

from example.items import Product, product_from


class CatalogSpider(Spider):
    """List pages, with pagination -> product pages -> products.

    ``base`` is the shop's address, ``per_page`` the number of products that a list page shows.
    """

    name = "s01_catalog"

    def __init__(self, base: str = "http://127.0.0.1:8000", per_page: str = "50", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base.rstrip("/")
        self.per_page = int(per_page)

    async def start(self) -> AsyncIterator[Request]:
        yield Request(f"{self.base}/lists?page=1&per_page={self.per_page}", priority=1)

    def parse(self, response: TextResponse) -> Iterator[Request]:
        yield from response.follow_all(css="a.product", callback=self.parse_product)
        # Lists go first: the more pages are known, the more nodes have something to do.
        yield from response.follow_all(css="a.next", priority=1)

    def parse_product(self, response: TextResponse) -> Product:
        return product_from(response)
