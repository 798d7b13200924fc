"""07: leased accounts. However many nodes there are, each account is used by one of them at a time.

    scrapy crawl s07_members -a base=http://127.0.0.1:8000                              # on as many hosts as there are
    scrapy-lease accounts list                                                          # who goes as whom
    scrapy-lease accounts cool ann                                                      # nobody does, for a while

New: ``LEASE_ACCOUNTS``, with a handler that logs in by the shop's form. Each account logs in once, and its cookies go
with it from node to node. The shop bans "mallory": that account goes to the cold pool, and its pages to the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from scrapy import Request, Spider
from scrapy.http import TextResponse

from example.items import Product, product_from

MEMBERS = ("ann", "ben", "cleo", "dan", "eve", "mallory")


class MembersSpider(Spider):
    """The first ``pages`` products at the price of members."""

    name = "s07_members"
    custom_settings: ClassVar = {
        "LEASE_ACCOUNTS": [{"id": name, "username": name, "password": "secret"} for name in MEMBERS],
        "LEASE_ACCOUNT_HANDLER": "example.members.ShopLogin",
        "LEASE_ACCOUNT_QUOTA": 1000,
        "LEASE_POLICY": "example.members.MembersOnly",
        "LEASE_VERDICTS": {403: "ban"},
    }

    def __init__(self, base: str = "http://127.0.0.1:8000", pages: str = "100", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base.rstrip("/")
        self.pages = int(pages)

    async def start(self) -> AsyncIterator[Request]:
        for number in range(1, self.pages + 1):
            yield Request(f"{self.base}/members/{number}")

    def parse(self, response: TextResponse) -> Iterator[Product]:
        yield product_from(response)
