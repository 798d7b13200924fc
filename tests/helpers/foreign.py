"""Schedulers that a user might choose, and how a test chooses them."""

from __future__ import annotations

from typing import Any

from scrapy.core.scheduler import Scheduler

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
