"""Downloader middleware of rate limits: a request finds its permits on its way, or goes back."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_lease.rates.limiter import Limiter


class RateMiddleware:
    """Inside of what gives a request its headers and its proxy, since permits are for those."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Limiter.of(crawler))

    def process_request(self, request: Request) -> Request | Awaitable[Request | None] | None:
        # Not a coroutine function: most requests need not wait.
        return self._limiter.enters(request)
