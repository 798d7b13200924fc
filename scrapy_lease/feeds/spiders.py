"""Spiders that read what ``lpush``, ``sadd`` or ``zadd`` feeds, as those of scrapy-redis do.

Attributes and settings are those of scrapy-redis; ``docs/migrate-scrapy-redis.md`` lists them, and what differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from scrapy import Request, Spider
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.spiders import CrawlSpider

from scrapy_lease.exceptions import LeaseError
from scrapy_lease.feeds.data import request_from_data
from scrapy_lease.feeds.options import ENCODING

EXTENSION = "scrapy_lease.feeds.extension.FeedExtension"


class RedisMixin(Spider):
    """What makes a spider read a feed; use it before the other bases: ``class S(RedisMixin, XMLFeedSpider)``.

    A spider that overrides `start` reads its feed where it iterates over ``super().start()``.
    """

    #: Key of the feed, in which ``%(name)s`` is the spider's; None: REDIS_START_URLS_KEY, ``%(name)s:start_urls``.
    redis_key: str | None = None
    #: Entries taken at a time; None: REDIS_START_URLS_BATCH_SIZE, CONCURRENT_REQUESTS.
    redis_batch_size: int | None = None
    #: Encoding of the entries; None: REDIS_ENCODING, utf-8.
    redis_encoding: str | None = None
    #: Seconds without work after which the crawl ends, 0: never; None: MAX_IDLE_TIME_BEFORE_CLOSE, 0.
    max_idle_time: float | None = None
    #: What reads the feed, in a crawl.
    feed_reader: Any = None

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """As in Scrapy; puts in what gives the spider its reader."""
        super().update_settings(settings)
        priority = max(settings.getpriority("EXTENSIONS") or 0, SETTINGS_PRIORITIES["spider"])
        settings.set("EXTENSIONS", {**settings.getdict("EXTENSIONS"), EXTENSION: 1}, priority)

    async def start(self) -> AsyncIterator[Any]:
        """Yield the requests of ``start_urls``, then those that are fed.

        :raises LeaseError: this is not a crawl.
        """
        if self.feed_reader is None:
            raise LeaseError(f"spider {self.name!r} reads its feed in a crawl only")
        async for output in super().start():
            yield output
        async for request in self.feed_reader.requests():
            yield request

    def make_request_from_data(self, data: bytes) -> Request | Iterable[Request] | None:
        """Return what is to be requested for an entry of the feed: a request, several, or None: nothing.

        An entry is a URL or a JSON object: ``url``, ``method``, ``meta``, and form data. An exception raised here puts
        the entry aside, in a list beside the feed. Who takes over from a session that died makes the requests of its
        entries again: the same ones in the same order are recognised.
        """
        return request_from_data(data, self.redis_encoding or self.settings.get("REDIS_ENCODING") or ENCODING)


class RedisSpider(RedisMixin):
    """A spider that reads a feed."""


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """A ``CrawlSpider`` that reads a feed; its rules apply to the pages that are fed."""
