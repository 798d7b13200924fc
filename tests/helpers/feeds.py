"""Spiders that read a feed of the shop's pages, and how a test feeds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from tests.helpers.fleet import Fleet, Node
from tests.helpers.spiders import crawl

#: Key of the feed of :data:`FED`.
FEED = "shop:start_urls"

FED = """
class Fed(scrapy_lease.RedisSpider):
    name = "shop"
    custom_settings = {"ITEM_PIPELINES": {ItemLog: 100}}

    def parse(self, response):
        given = {key: value for key, value in response.meta.items() if key.startswith("my")}
        yield {
            "path": response.url.removeprefix(self.base), "given": given, "method": response.request.method,
            "meta": sorted(response.meta),
        }
"""


def crawl_feed(
    shop: Fleet, name: str, source: str = FED, *, idle: float | None = 2, settings: Mapping[str, Any] = {}, **given: Any
) -> Node:
    """Start the spider of *source* as node *name*; it ends after *idle* seconds without work."""
    more = {} if idle is None else {"max_idle_time": idle}
    return crawl(shop, name, source, settings={"LOG_LEVEL": "INFO", **settings}, **more, **given)


def feed(client: redis.Redis, kind: str, *entries: str, key: str = FEED) -> None:
    """Feed *entries* as a user does."""
    if kind == "list":
        client.lpush(key, *entries)
    elif kind == "set":
        client.sadd(key, *entries)
    else:
        client.zadd(key, {entry: number for number, entry in enumerate(entries)})


def urls(shop: Fleet) -> list[str]:
    """The addresses of all products."""
    return [shop.base + path for path in shop.expected]


def left_behind(client: redis.Redis, key: str = FEED) -> list[bytes]:
    """The keys of the feed and beside it that there are."""
    return sorted(client.keys(f"*{key}*"))
