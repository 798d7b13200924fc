"""Schedulers that a user might choose, and how a test chooses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scrapy.core.scheduler import Scheduler

from tests.helpers.fleet import Fleet, Node
from tests.helpers.spiders import ALL_ARE_HERE, crawl

SCRAPY_REDIS = "scrapy_redis.scheduler.Scheduler"


class PlainScheduler(Scheduler):
    """Scrapy's own under another name: in memory, or in JOBDIR."""


PLAIN = f"{PlainScheduler.__module__}.{PlainScheduler.__qualname__}"


def plain(**settings: Any) -> dict[str, Any]:
    """The settings of a node whose scheduler is in its memory."""
    return {"SCHEDULER": PLAIN, **settings}


def scrapy_redis(url: str, **settings: Any) -> dict[str, Any]:
    """The settings of a node whose scheduler is scrapy-redis's, on the server at *url*."""
    return {
        "SCHEDULER": SCRAPY_REDIS,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": "True",
        "REDIS_URL": url,
        **settings,
    }


def together(
    shop: Fleet, number: int, source: str, settings: Callable[[], Mapping[str, Any]], **arguments: Any
) -> list[Node]:
    """Start so many nodes of the spider in *source*, whose start() awaits ``all_are_here``."""
    nodes = [crawl(shop, f"n{node}", source, settings=settings(), **arguments) for node in range(number)]
    for node in nodes:
        node.wait_for("Crawled 0 pages", 30)
    (shop.folder / ALL_ARE_HERE).touch()
    return nodes
