"""Downloader middleware of rate limits, where requests have to find permits on their way, or go back."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from scrapy_lease.rates.limiter import Limiter


class RateMiddleware:
    """Inside of what gives a request its proxy, since permits may be for that.

    Not there where the scheduler knows of all that a request costs: what Scrapy does for one more middleware is more
    than all that a permit costs.
    """

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        limiter = Limiter.of(crawler)
        if not limiter.is_met_on_the_way:
            raise NotConfigured
        return cls(limiter)

    def process_request(self, request: Request) -> Request | Awaitable[Request | None] | None:
        # Not a coroutine function: most requests need not wait.
        return self._limiter.enters(request)
