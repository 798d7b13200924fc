"""02: a standing worker. It has no start pages and never finishes; it waits for what it is given.

    scrapy crawl s02_fed                       # on as many hosts as there are
    scrapy-lease push s02_fed http://127.0.0.1:8000/product/1 http://127.0.0.1:8000/product/2

New: ``LEASE_QUEUE_IDLE = -1``, which keeps the crawl open when nothing is left to do.
"""

from __future__ import annotations

from typing import ClassVar

from scrapy import Spider
from scrapy.http import TextResponse

from example.items import Product, product_from


class FedSpider(Spider):
    """Product pages, as they are pushed -> products."""

    name = "s02_fed"
    custom_settings: ClassVar = {"LEASE_QUEUE_IDLE": -1}

    def parse(self, response: TextResponse) -> Product:
        return product_from(response)
