"""Downloader middlewares of rate limits: requests find permits on their way, or go back; sites ask for pauses."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

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


class PauseMiddleware:
    """Innermost but for the guard: an answer that asks for a pause reaches no cache, retry or spider."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Limiter.of(crawler))

    def process_response(self, request: Request, response: Response) -> Response | Request:
        return self._limiter.answered(request, response)
