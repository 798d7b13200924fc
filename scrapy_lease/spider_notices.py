"""What of a spider is never called under Scrapy 2.19 and leases, so that it would do nothing without a word."""

from __future__ import annotations

from collections.abc import Iterator

from scrapy import Spider

_LIBRARIES = ("scrapy.", "scrapy_redis.", "scrapy_lease.")
_THEIR_MIXIN = "scrapy_redis.spiders.RedisMixin"
_OUR_MIXIN = "scrapy_lease.feeds.spiders.RedisMixin"
#: Methods of scrapy-redis's spiders that people override.
_THEIR_METHODS = (
    "setup_redis", "next_requests", "schedule_next_requests", "spider_idle", "pop_list_queue", "pop_priority_queue",
)  # fmt: skip


def spider_notices(spider: Spider, *, offers_feeds: bool) -> Iterator[str]:
    """Yield what an operator should know of *spider*, one sentence each.

    :param offers_feeds: ``scrapy_lease.RedisSpider`` works in this crawl.
    """
    own = [cls for cls in type(spider).__mro__ if cls is not object and not _name_of(cls).startswith(_LIBRARIES)]
    bases = [_name_of(cls) for cls in type(spider).__mro__]
    # A spider for Scrapy 2.12 and later has both; the class further down says what is meant.
    first = next((cls for cls in own if "start" in vars(cls) or "start_requests" in vars(cls)), None)
    if first is not None and "start" not in vars(first):
        yield (
            f"spider {spider.name!r} defines start_requests() in {_name_of(first)}, which Scrapy never calls: nothing "
            "of it is requested. Write 'async def start(self):' in its place"
        )
    if _THEIR_MIXIN in bases and offers_feeds:
        yield (
            f"spider {spider.name!r} is one of scrapy_redis.spiders: it reads its feed only when the crawl is idle, "
            "and what a node that dies had just read is lost. Derive it from scrapy_lease.RedisSpider"
        )
    elif _OUR_MIXIN in bases:
        unused = sorted({name for cls in own for name in _THEIR_METHODS if name in vars(cls)})
        if unused:
            yield (
                f"spider {spider.name!r} overrides {', '.join(unused)} of scrapy-redis, which scrapy_lease.RedisSpider "
                "never calls; make_request_from_data() says what is made of an entry"
            )


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
