"""Where Scrapy calls the guard; one hook is one call of :class:`~scrapy_lease.guard.coordinator.Guard`."""

from __future__ import annotations

import logging
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_lease.exceptions import LeaseError
from scrapy_lease.guard.coordinator import Guard

logger = logging.getLogger(__name__)


class ClaimMiddleware:
    """Downloader middleware next to the outermost: no scheduled request passes that has no lease and needs one.

    What does not pass is answered with itself: so it leaves the downloader without an errback, a retry or a redirect,
    and the engine offers it to the scheduler, where the guard takes it off.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Guard.of(crawler))

    async def process_request(self, request: Request) -> Request | None:
        return None if await self._guard.admits(request) else request


class OpenPipeline:
    """Opens and closes the guard, where Scrapy waits for it and the scheduler is open."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Guard.of(crawler))

    async def open_spider(self) -> None:
        try:
            await self._guard.attach()
        except LeaseError as error:
            logger.error("%s", error)
            raise

    async def close_spider(self) -> None:
        await self._guard.detach()
