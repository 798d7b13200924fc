"""What the spiders of the tests share, and how a test starts them and reads what they left behind.

A source given to :func:`crawl` is the text of one spider class; :class:`ShopSpider` and the names above it are there.
"""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import redis
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease import lease_of
from scrapy_lease.meta import digest_of
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace, Scope
from scrapy_lease.store.reading import ItemRecord, read_records
from scrapy_lease.store.scripts import Entry, Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.fleet import Fleet, Node

PRELUDE = """
from __future__ import annotations

import asyncio, os, time
from pathlib import Path

import scrapy_lease
from scrapy import FormRequest, Request
from scrapy.exceptions import CloseSpider, DropItem
from scrapy.http import JsonRequest

from tests.helpers.spiders import ItemLog, ShopSpider
"""

#: Each host discovers for itself; and a spider whose pages lead on, list by list.
LOCAL = {"LEASE_QUEUE": "local"}
LISTS = """
class Lists(ShopSpider):
    per_page = "10"

    async def start(self):
        yield self.page(f"/lists?page=1&per_page={self.per_page}", callback=self.parse_list)

    def parse_list(self, response):
        yield from response.follow_all(css="a.product")
        yield from response.follow_all(css="a.next", callback=self.parse_list)
"""

#: A test makes this file when the nodes of a crawl may begin.
#: A callback that asks for its page again, with get_retry_request, or by yielding its own request.
AGAIN = """
from scrapy.downloadermiddlewares.retry import get_retry_request

class Again(ShopSpider):
    seen = 0

    async def start(self):
        yield self.page("/product/1")
        yield self.page("/product/2", callback=self.parse_own, meta={"lease_item": "own"})

    def parse(self, response):
        self.seen += 1
        if self.seen < 3:
            yield get_retry_request(response.request, spider=self, reason="again", max_retry_times=5)
        else:
            yield {"path": "/product/1"}

    def parse_own(self, response, turn=0):
        if turn == 2:
            yield {"path": "/product/2"}
        elif turn:
            yield response.request.replace(dont_filter=True, cb_kwargs={"turn": turn + 1})
        else:
            response.request.cb_kwargs["turn"] = turn + 1
            yield response.request
"""
ALL_ARE_HERE = "all-are-here"


class ItemLog:
    """A pipeline that appends each item, with its lease and the node, to items.jsonl in the current folder."""

    def __init__(self, node: str) -> None:
        self.node = node

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings["LEASE_NODE"])

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        lease = lease_of(item)
        record = {**item, "node": self.node, "mono": time.monotonic(), "lease": lease._asdict() if lease else None}
        file = os.open("items.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, json.dumps(record).encode() + b"\n")
        finally:
            os.close(file)
        return item


class ShopSpider(Spider):
    """Makes requests to the shop at *base*; each page is one item, its path."""

    name = "shop"
    base = ""
    custom_settings: ClassVar = {"ITEM_PIPELINES": {ItemLog: 100}}

    def page(self, path: str, **options: Any) -> Request:
        return Request(self.base + path, **options)

    async def all_are_here(self) -> None:
        """Wait until the test says that all nodes are there."""
        while not Path(ALL_ARE_HERE).exists():
            await asyncio.sleep(0.02)

    def parse(self, response: Response) -> Any:
        return {"path": response.url.removeprefix(self.base)}


def crawl(shop: Fleet, name: str, source: str, *, settings: Mapping[str, Any] = {}, **arguments: Any) -> Node:
    """Start the spider of *source* as node *name*; the shop's log names the node of each hit."""
    return shop.run(name, PRELUDE + textwrap.dedent(source), settings={"USER_AGENT": name, **settings}, **arguments)


def items_of(shop: Fleet) -> list[dict[str, Any]]:
    """What reached the pipelines, in order."""
    path = shop.folder / "items.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def paths_of(records: list[Any]) -> list[str]:
    """The sorted paths of hits or items."""
    return sorted(record["path"] if isinstance(record, dict) else record.path for record in records)


def scope_of(run: str = "", job: str = "shop", namespace: str = "scrapybot") -> Scope:
    """The keys of a job of :func:`crawl`."""
    return Namespace(namespace).scope(job, run)


def dead_letters(client: redis.Redis, scope: Scope | None = None) -> list[dict[str, Any]]:
    """The dead letters of a scope: reason, trace, attempts, deaths."""
    packed = client.hvals((scope or scope_of()).key("dead"))
    names = ("reason", "trace", "attempts", "deaths")
    return [dict(zip(names, msgspec.msgpack.decode(value)[:4], strict=True)) for value in packed]


def records_of(client: redis.Redis, scope: Scope | None = None) -> list[ItemRecord]:
    """What is pending, delayed or leased."""
    scope = scope or scope_of()
    held = {key.decode(): client.hgetall(key) for key in client.scan_iter(scope.held("*"))}
    delayed = client.zrange(scope.key("delayed"), 0, -1)
    return list(read_records(client.hgetall(scope.key("state")), held, delayed).values())


def push(url: str, *payloads: bytes) -> None:
    """Put requests into the backlog from outside, as `scrapy-lease push` does."""

    async def run() -> None:
        channel = Channel(url, url, 5.0, StoreStats(), None)
        try:
            await Scripts(channel, scope_of()).push("", 0, entries)
        finally:
            await channel.close()

    entries = [
        Entry(digest_of(f"pushed {number}"), "127.0.0.1", 0, payload, "auto") for number, payload in enumerate(payloads)
    ]
    asyncio.run(run())


def seeds(default: int) -> range:
    """How many random moments a test tries: SCRAPY_LEASE_TEST_SEEDS, else *default*."""
    return range(int(os.environ.get("SCRAPY_LEASE_TEST_SEEDS", default)))


def is_long() -> bool:
    """Are the tests to take the sizes of the specification and not the short ones?"""
    return "SCRAPY_LEASE_TEST_SEEDS" in os.environ
