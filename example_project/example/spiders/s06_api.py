"""06: a rate limit. However many nodes there are, together they ask an API no more often than it allows.

    scrapy crawl s06_api -a base=http://127.0.0.1:8000                                  # on as many hosts as there are
    scrapy crawl s06_api -a base=http://127.0.0.1:8000 -a lease_rate_limits='{"api": "5/second"}'
    scrapy-lease rates list                                                             # what of each window is spent

New: ``LEASE_RATE_LIMITS``. A request pays when it is sent; what waits for its permit slows no other site, and goes back
to the backlog when its node leaves. All pages are known at once, so that all nodes have something to ask for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from scrapy import Request, Spider
from scrapy.http import TextResponse

from example.items import Product


class ApiSpider(Spider):
    """Pages of the shop's API, ``pages`` of them with ``per_page`` products each -> products."""

    name = "s06_api"
    custom_settings: ClassVar = {"LEASE_RATE_LIMITS": {"api": ["20/second", "100000/day"]}}

    def __init__(
        self, base: str = "http://127.0.0.1:8000", pages: str = "100", per_page: str = "10", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.base = base.rstrip("/")
        self.pages = int(pages)
        self.per_page = int(per_page)

    async def start(self) -> AsyncIterator[Request]:
        for page in range(1, self.pages + 1):
            yield Request(f"{self.base}/api/products?page={page}&per_page={self.per_page}")

    def parse(self, response: TextResponse) -> Iterator[Product]:
        for product in response.json()["products"]:
            yield Product(product["sku"], product["name"], product["price"], f"{self.base}{product['url']}")
