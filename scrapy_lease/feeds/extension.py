"""Gives a spider that reads a feed its reader, or refuses to start, when all settings are known."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.misc import load_object

from scrapy_lease.exceptions import LeaseError, SettingsError
from scrapy_lease.feeds.options import FeedOptions
from scrapy_lease.feeds.reader import Reader
from scrapy_lease.feeds.sessions import Sessions
from scrapy_lease.refusal import told
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler import LeaseScheduler
from scrapy_lease.settings import redacted_url, takes_no_leases
from scrapy_lease.store.client import Channel
from scrapy_lease.store.feed_scripts import FeedScripts
from scrapy_lease.store.keys import FeedKeys
from scrapy_lease.store.server import Availability, StoreStats
from scrapy_lease.store.tools import Tools

logger = logging.getLogger(__name__)


class FeedExtension:
    """Put into EXTENSIONS by the spider itself, so that no setting is needed and none can take it out unnoticed."""

    def __init__(self, reader: Reader | None) -> None:
        self._reader = reader

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if takes_no_leases(crawler):
            return cls(None)
        try:
            options = _checked(crawler)
        except LeaseError as error:
            raise told(error, crawler, logger) from None
        reader = reader_of(crawler, options, Runtime.of(crawler))
        crawler.signals.connect(reader.close, signals.spider_closed)
        if Runtime.of(crawler).opened_alone:
            # Awaited before start() is read.
            crawler.signals.connect(reader.begin_again, signals.engine_started)
        return cls(reader)

    def __repr__(self) -> str:
        return f"<FeedExtension with {self._reader}>"


def reader_of(crawler: Crawler, options: FeedOptions, runtime: Runtime) -> Reader:
    """Make the reader of the crawl's spider and hand it over."""
    spider: Any = crawler.spider
    namespace = runtime.scope.namespace

    def connect(store: str) -> FeedScripts:
        keys = FeedKeys(options.key, namespace.name, store)
        return FeedScripts(_channel(options, runtime), keys, options.kind)

    sessions = Sessions(Tools(runtime.connect(), namespace), runtime.scope)
    reader = Reader(
        runtime.session, sessions, connect, spider.make_request_from_data, batch=options.batch,
        max_idle=options.max_idle,
    )  # fmt: skip
    runtime.leavers.append(reader.leave)
    spider.feed_reader = reader
    logger.info(
        "The feed is the %s %r in %s; %d entries are taken at a time",
        options.kind, options.key, runtime.shown if options.url is None else redacted_url(options.url), options.batch,
    )  # fmt: skip
    return reader


def _channel(options: FeedOptions, runtime: Runtime) -> Channel:
    if options.url is None or options.url == runtime.settings.redis_url:
        # What goes and comes back is then told of the store, and need not be told twice.
        return runtime.connect()
    shown = redacted_url(options.url)
    stats = StoreStats()
    return Channel(
        options.url, shown, runtime.settings.store_timeout, stats, FeedAvailability(shown, stats), setting="REDIS_URL"
    )


@dataclass(slots=True)
class FeedAvailability(Availability):
    """Whether the server of the feed answers, said once each time."""

    def down(self, reason: str) -> None:
        self.stats.errors += 1
        if self.down_since is None:
            self.down_since = time.monotonic()
            logger.warning(
                "The feed's server %s went away (%s): nothing is read from it until it is back", self.shown, reason
            )

    def up(self) -> None:
        if self.down_since is not None:
            logger.info("The feed's server %s is back after %.1f s", self.shown, time.monotonic() - self.down_since)
            self.down_since = None


def _checked(crawler: Crawler) -> FeedOptions:
    """Return the options of the feed; raise SettingsError where what is taken from it could be lost."""
    spider = crawler.spider
    assert spider is not None
    chosen = crawler.settings["SCHEDULER"]
    # Scrapy's schedulers count as subclasses of each other when they have the same methods.
    if LeaseScheduler not in load_object(chosen).__mro__:
        raise SettingsError(
            f"SCHEDULER = {chosen!r}: spider {spider.name!r} is a scrapy_lease.RedisSpider, and what it takes from its "
            "feed could be lost without the shared backlog; set ADDONS = {'scrapy_lease.Addon': 500}, take SCHEDULER, "
            "LEASE_ENABLED and LEASE_ITEMS_ENABLED out of the settings, or derive it from "
            "scrapy_redis.spiders.RedisSpider"
        )
    queue: str = Runtime.of(crawler).settings.queue
    if queue != "redis":
        raise SettingsError(
            f"LEASE_QUEUE = {queue!r}: spider {spider.name!r} is a scrapy_lease.RedisSpider, and what it takes from "
            'its feed is safe in the shared backlog only; set LEASE_QUEUE = "redis"'
        )
    return FeedOptions.of(spider, crawler.settings)
