"""A spider of which something is never called is told so, once and clearly; others are left in peace."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Spider
from scrapy.spiders import CrawlSpider
from scrapy_redis.spiders import RedisCrawlSpider as TheirCrawlSpider
from scrapy_redis.spiders import RedisSpider as TheirSpider

from scrapy_lease import RedisCrawlSpider, RedisSpider
from scrapy_lease.spider_notices import spider_notices


def old(self: Any) -> Any:
    return []


async def new(self: Any) -> Any:
    yield None


def notices(*bases: type, offers_feeds: bool = True, **methods: Any) -> list[str]:
    """The notices of a spider of these bases with these methods."""
    cls: Any = type("Made", bases, {"name": "made", "__module__": "project.spiders", **methods})
    return list(spider_notices(cls(), offers_feeds=offers_feeds))


@pytest.mark.parametrize("base", [Spider, CrawlSpider, RedisSpider, RedisCrawlSpider])
def test_start_requests_is_told_once(base: type) -> None:
    """Whatever the spider derives from: the method, where it is, and what to write."""
    (notice,) = notices(base, start_requests=old)
    assert "'made' defines start_requests() in project.spiders.Made" in notice
    assert "async def start(self)" in notice


@pytest.mark.parametrize("base", [Spider, CrawlSpider, RedisSpider, RedisCrawlSpider])
@pytest.mark.parametrize("methods", [{}, {"start": new}, {"start": new, "start_requests": old}])
def test_nothing_is_told_of_what_is_called(base: type, methods: dict[str, Any]) -> None:
    """Without the method, and with start() beside it, which is how spiders serve old and new versions."""
    assert notices(base, **methods) == []


def test_the_class_further_down_decides() -> None:
    """start_requests() above a start() that replaces it is no matter; above one that it was to replace, it is."""
    above: Any = type("Above", (Spider,), {"start_requests": old})
    assert notices(above, start=new) == []
    assert len(notices(above)) == 1
    modern: Any = type("Modern", (Spider,), {"start": new})
    assert len(notices(modern, start_requests=old)) == 1


@pytest.mark.parametrize("base", [TheirSpider, TheirCrawlSpider])
def test_a_spider_of_scrapy_redis_is_told_of_ours(base: type) -> None:
    """It works, but what it pops is not safe; where ours cannot be used it is the right one."""
    (notice,) = notices(base)
    assert "scrapy_lease.RedisSpider" in notice
    assert notices(base, offers_feeds=False) == []
    assert len(notices(base, offers_feeds=False, start_requests=old)) == 1


def test_overrides_that_are_not_called() -> None:
    """Methods of scrapy-redis's spiders that ours do not have, in one notice; those that they have are fine."""
    (notice,) = notices(RedisSpider, next_requests=old, spider_idle=old, make_request_from_data=old)
    assert "overrides next_requests, spider_idle of scrapy-redis" in notice
    assert notices(Spider, next_requests=old) == []
