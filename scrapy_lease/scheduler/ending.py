"""When a crawl ends by itself, and with which reason.

==========================  =================================================================================
``finished``                the run is drained: nothing is pending or leased and no session is producing
``lease_all_done``          likewise, and nothing was fetched because everything was done already
``lease_drained``           an operator asked this node to leave
``lease_store_unavailable``  the store did not answer for LEASE_STORE_DOWN_TIMEOUT seconds
``lease_store_refused``     the store answers, but refuses what the crawl needs
==========================  =================================================================================
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider

from scrapy_lease.runtime import Runtime

logger = logging.getLogger(__name__)


class Ending:
    """See the module's docstring.

    :param idle: seconds to stay after the run is drained, -1: for ever.
    :param start_was_over: tells whether ``start()`` had been read to its end before this session asked.
    """

    def __init__(self, crawler: Crawler, runtime: Runtime, idle: float, start_was_over: Callable[[], bool]) -> None:
        self._crawler = crawler
        self._runtime = runtime
        self._idle = idle
        self._start_was_over = start_was_over
        self._drained_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_finished = False
        self.is_closing = False
        crawler.signals.connect(self._spider_idle, signals.spider_idle)

    def __repr__(self) -> str:
        return f"<Ending: {'finished' if self.is_finished else 'running'}>"

    def drained(self, is_drained: bool) -> None:
        """Note whether the run is drained and nothing is left here."""
        if not is_drained:
            self._drained_at = None
            self.is_finished = False
            return
        now = time.monotonic()
        if self._drained_at is None:
            self._drained_at = now
        if not self.is_finished and 0 <= self._idle <= now - self._drained_at:
            self.is_finished = True
            self.wake_engine()

    def busy(self) -> None:
        """A request has arrived."""
        self._drained_at = None
        self.is_finished = False

    def wake_engine(self) -> None:
        """Let the engine ask for requests (or see that it is idle) now, not at its 5 s heartbeat.

        Scrapy has no public call for this.
        """
        slot = self._crawler.engine._slot
        if slot is not None and slot.closing is None:
            slot.nextcall.schedule()

    def close(self, reason: str) -> None:
        """Close the spider with *reason*."""
        if not self.is_closing:
            self.is_closing = True
            self._task = asyncio.ensure_future(self._crawler.engine.close_spider_async(reason=reason))

    def check_store(self) -> None:
        """Close when the store has been away for too long."""
        limit = self._runtime.settings.store_down_timeout
        since = self._runtime.availability.down_since
        if limit and since is not None and time.monotonic() - since > limit:
            logger.error("The store did not answer for %g s (LEASE_STORE_DOWN_TIMEOUT): closing", limit)
            self.close("lease_store_unavailable")

    def refused(self, error: Exception) -> None:
        """Close because the store refuses what the crawl needs."""
        if not self.is_closing:
            logger.error("%s", error)
            self.close("lease_store_refused")

    def _spider_idle(self) -> None:
        if self.is_finished and self._was_all_done():
            logger.info(
                "Everything in job %s was done already: nothing was fetched. To fetch again, set LEASE_RUN to a new "
                "name, or LEASE_DONE_TTL, or forget the marks with 'scrapy-lease items forget'",
                self._runtime.scope.name,
            )
            raise CloseSpider("lease_all_done")

    def _was_all_done(self) -> bool:
        """Had this session nothing to fetch because all was done before? Latecomers of a live run cannot say so."""
        stats = self._runtime.stats
        if stats.get("queue/popped") or stats.get("items/contended"):
            return False
        return bool(stats.get("items/duplicate")) or (self._runtime.was_alone and self._start_was_over())
