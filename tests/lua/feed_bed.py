"""A feed on a real server, and the scripts of who reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from scrapy_lease.store.client import Channel
from scrapy_lease.store.feed_scripts import FeedScripts, Taken
from scrapy_lease.store.keys import FeedKeys
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server

KINDS = ("list", "set", "zset")


class FeedBed:
    """A feed of one kind, into which and from which entries move."""

    def __init__(self, server: Server, kind: str, name: str = "shop:start_urls", url: str = "") -> None:
        self.client = server.client()
        self.keys = FeedKeys(name, "test", "store")
        self.kind = kind
        self._runner = asyncio.Runner()
        self._channel = Channel(url or server.url, "the test's server", 10, StoreStats())
        self._scripts = FeedScripts(self._channel, self.keys, kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._runner.run(self._channel.close())
        self._runner.close()

    def feed(self, *entries: bytes, score: float = 0) -> None:
        """Feed entries as users do: lpush, sadd or zadd."""
        if self.kind == "list":
            self.client.lpush(self.keys.name, *entries)
        elif self.kind == "set":
            self.client.sadd(self.keys.name, *entries)
        else:
            self.client.zadd(self.keys.name, dict.fromkeys(entries, score))

    def left(self) -> list[bytes]:
        """What is in the feed, in order where it has one."""
        if self.kind == "list":
            return list(self.client.lrange(self.keys.name, 0, -1))
        if self.kind == "set":
            return sorted(self.client.smembers(self.keys.name))
        return list(self.client.zrange(self.keys.name, 0, -1, desc=True))

    def take(self, sid: str = "a", want: int = 10) -> Taken:
        return self._runner.run(self._scripts.take(sid, want))

    def taken_by(self, sid: str = "a") -> Mapping[str, bytes]:
        return self._runner.run(self._scripts.taken_by(sid))

    def settle(self, sid: str, *verbs: tuple[str, str]) -> int:
        return self._runner.run(self._scripts.settle(sid, verbs))

    def failed(self) -> list[Any]:
        """What was put aside."""
        return list(self.client.lrange(self.keys.failed, 0, -1))
