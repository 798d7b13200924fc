"""Downloader middlewares: the outermost sees the way of each request begin, the innermost guards it."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_lease.exceptions import LeaseLost
from scrapy_lease.outcomes import Tracker


class TrackMiddleware:
    """Outermost (lowest number): lets the tracker see how the downloader's part of a request ends."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Tracker.of(crawler))

    def process_request(self, request: Request) -> None:
        self._tracker.chain_started(request)


class GuardMiddleware:
    """Innermost (highest number): what the gate refuses goes back.

    A request whose lease is gone before it is sent, while it is under way or when its response comes (`LeaseLost`)
    is answered with the request itself. No other middleware, no cache and no retry sees that; the scheduler gets the
    request back. For `engine.download_async`, which cannot give anything back, `LeaseLost` stays an exception.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Tracker.of(crawler))

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        if isinstance(exception, LeaseLost) and self._tracker.is_handed_out(request):
            return request
        return None
