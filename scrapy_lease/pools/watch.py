"""A look at requests that have a lease of one kind now, a few times a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from scrapy import Request

from scrapy_lease.pools.goods import Goods
from scrapy_lease.pools.trip import Trip

logger = logging.getLogger(__name__)


class Watch:
    """See the module's docstring.

    :param active: the requests, and their trips.
    :param wait_of: returns how long a request waits for what a pool has, in s.
    :ivar cut: ends the download of a request; set by whoever can.
    """

    def __init__(self, goods: Goods, active: Mapping[Request, Trip], wait_of: Callable[[str], float]) -> None:
        self.cut: Callable[[Request], None] = lambda request: None
        self._active = active
        self._goods = goods
        self._wait_of = wait_of
        self._is_warned = False

    def __repr__(self) -> str:
        return f"<Watch over {len(self._active)} requests>"

    def look(self) -> None:
        """End downloads whose lease is not this process's any more; say once that one is held and not used."""
        now = time.monotonic()
        for request, trip in list(self._active.items()):
            if not trip.may_go_on:
                self.cut(request)
            limit = self._wait_of(trip.pool)
            if not trip.is_sent and now - trip.since > limit and not self._is_warned:
                self._is_warned = True
                goods = self._goods
                logger.warning(
                    "%s has held %s of pool %s for more than %g s (%s) and was not sent: a downloader middleware with "
                    "a number above %d keeps it (give that one a lower number), or the delay of its download slot",
                    request, goods.one, trip.pool, limit, goods.wait, goods.number,
                )  # fmt: skip

    def is_under_way(self, pool: str, seconds: float) -> bool:
        """Is a request that is no probe under way through a pool for longer than so many seconds?"""
        before = time.monotonic() - seconds
        return any(
            trip.pool == pool and trip.since < before and trip.use is not None and not trip.use.is_probe
            for trip in self._active.values()
        )
