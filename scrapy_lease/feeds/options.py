"""What a spider and the settings of scrapy-redis say about a feed, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from scrapy import Spider
from scrapy.settings import BaseSettings

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.feeds.server import feed_url

KEY = "%(name)s:start_urls"
ENCODING = "utf-8"
BATCH = 16
#: Most entries of one call: some milliseconds of the server's time.
MOST = 1000


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """Which feed is read, and how.

    :param url: of its server, None: the lease store.
    :param kind: ``list``, ``set`` or ``zset``.
    :param batch: entries taken at a time.
    :param encoding: of the entries.
    :param max_idle: seconds without work after which the crawl ends; 0: never.
    """

    key: str
    url: str | None
    kind: str
    batch: int
    encoding: str
    max_idle: float

    @classmethod
    def of(cls, spider: Spider, settings: BaseSettings) -> Self:
        """Return the options of *spider*: its attributes win over the settings.

        :raises SettingsError: naming what is wrong.
        """
        given = _Given(spider, settings)
        return cls(
            key=_key(spider, *given.first("redis_key", "REDIS_START_URLS_KEY", default=KEY)),
            url=feed_url(settings),
            kind=_kind(settings),
            batch=_batch(given),
            encoding=_encoding(*given.first("redis_encoding", "REDIS_ENCODING", default=ENCODING)),
            max_idle=_number(*given.first("max_idle_time", "MAX_IDLE_TIME_BEFORE_CLOSE", default=0)),
        )


class _Given:
    """The first of several names that has a value, with the name for messages."""

    def __init__(self, spider: Spider, settings: BaseSettings) -> None:
        self._spider = spider
        self._settings = settings

    def first(self, attribute: str, *names: str, default: Any) -> tuple[str, Any]:
        value = getattr(self._spider, attribute, None)
        if value is not None:
            return f"spider attribute {attribute}", value
        for name in names:
            if self._settings.get(name) is not None:
                return name, self._settings[name]
        return "default", default


def _key(spider: Spider, source: str, pattern: Any) -> str:
    try:
        key: str = str(pattern) % {"name": spider.name}
    except (KeyError, TypeError, ValueError):
        key = ""
    if not key.strip():
        raise SettingsError(
            f"{source} = {pattern!r} is no key of a feed: write a name, in which %(name)s is the spider's"
        )
    return key


def _kind(settings: BaseSettings) -> str:
    if settings.getbool("REDIS_START_URLS_AS_SET"):
        return "set"
    return "zset" if settings.getbool("REDIS_START_URLS_AS_ZSET") else "list"


def _batch(given: _Given) -> int:
    source, value = given.first("redis_batch_size", "REDIS_START_URLS_BATCH_SIZE", "CONCURRENT_REQUESTS", default=BATCH)
    # CONCURRENT_REQUESTS = 0 means no limit, which is no size.
    return min(MOST, int(_number(source, value)) or BATCH)


def _encoding(source: str, name: Any) -> str:
    try:
        "x".encode(name)
        return str(name)
    except (LookupError, TypeError):
        raise SettingsError(f"{source} = {name!r} is no text encoding of Python; utf-8 is one") from None


def _number(source: str, value: Any) -> float:
    try:
        number = float(value)
        if 0 <= number < float("inf"):
            return number
    except (TypeError, ValueError):
        pass
    raise SettingsError(f"{source} = {value!r} is not allowed; allowed: a number from 0")
