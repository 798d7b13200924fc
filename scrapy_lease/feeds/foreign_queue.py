"""The queue in which scrapy-redis keeps the requests of a spider, read and never changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

from scrapy.settings import Settings

from scrapy_lease.exceptions import LeaseError
from scrapy_lease.store.client import Channel

#: Requests of one call.
BATCH = 300
QUEUE_KEY = "%(spider)s:requests"
_LAST_IN_FIRST_OUT = ("LifoQueue", "SpiderStack")


@dataclass
class ForeignQueue:
    """Where the queue is, and in which order it is read.

    :param is_stack: a list is read from its head, where the newest is.
    """

    channel: Channel
    key: str
    is_stack: bool

    @classmethod
    def of(cls, channel: Channel, settings: Settings, spider: str, key: str | None) -> Self:
        """Return the queue of *spider*, under *key* or as the settings of scrapy-redis name it."""
        pattern = key or settings.get("SCHEDULER_QUEUE_KEY") or QUEUE_KEY
        queue_class = settings.get("SCHEDULER_QUEUE_CLASS") or ""
        name = queue_class if isinstance(queue_class, str) else queue_class.__name__
        return cls(channel, pattern % {"spider": spider}, name.endswith(_LAST_IN_FIRST_OUT))

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Walk the stored requests, what scrapy-redis would take first at the beginning.

        :raises LeaseError: there is no such queue.
        """
        kind = (await self.channel.command("TYPE", self.key)).decode()
        if kind not in ("zset", "list"):
            found = "there is nothing" if kind == "none" else f"it is a {kind}"
            raise LeaseError(f"no scrapy-redis queue under {self.key!r} in {self.channel.shown}: {found}")
        first = 0
        while members := await self._page(kind, first):
            first += len(members)
            yield members

    async def _page(self, kind: str, first: int) -> list[bytes]:
        if kind == "zset":
            page: list[bytes] = await self.channel.command("ZRANGE", self.key, first, first + BATCH - 1)
        elif self.is_stack:
            page = await self.channel.command("LRANGE", self.key, first, first + BATCH - 1)
        else:
            page = (await self.channel.command("LRANGE", self.key, -first - BATCH, -first - 1))[::-1]
        return page
