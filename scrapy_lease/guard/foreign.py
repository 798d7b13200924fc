"""The scheduler that the user chose: left as it is, but for what the guard must see pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.scheduler.own_queue import KNOWN, Known

logger = logging.getLogger(__name__)

#: In the meta of a request that was put back: whether it went past the duplicate filter before, too.
FILTERED = "_lease_filtered"
_LED = ("enqueue_request", "next_request")


class Foreign:
    """Leads the engine's calls of the scheduler through the guard, by attributes of that one object.

    Nothing in Scrapy's interfaces tells what the engine puts in and takes out: a redirect that a handler of
    ``request_scheduled`` refuses vanishes without a sign, and nobody but the scheduler can give the engine a request.

    :param enqueue: called in the place of ``enqueue_request``.
    :param following: called in the place of ``next_request``.
    """

    def __init__(
        self, crawler: Crawler, enqueue: Callable[[Request], bool], following: Callable[[], Request | None]
    ) -> None:
        self._crawler = crawler
        self._ours = dict(zip(_LED, (enqueue, following), strict=True))
        #: What the object had of its own before.
        self._own: dict[str, Any] = {}
        #: What the scheduler does with a request that the engine puts in, and what it gives the engine.
        self._put_in: Callable[[Request], bool]
        self.take_out: Callable[[], Request | None]

    def __len__(self) -> int:
        """Nothing waits here: the engine asks the scheduler itself."""
        return 0

    def __repr__(self) -> str:
        return f"<Foreign scheduler of {self._crawler}>"

    is_persistent = True

    async def open(self, spider: Spider) -> set[int]:
        """Begin to lead the calls; the scheduler is open.

        :returns: nothing: whether it outlives the process is not known, nor what the process before saw.
        :raises SettingsError: the object takes no attributes.
        """
        scheduler: Any = self._crawler.engine.scheduler
        self._put_in, self.take_out = scheduler.enqueue_request, scheduler.next_request
        try:
            self._own = {name: call for name, call in vars(scheduler).items() if name in _LED}
            for name, call in self._ours.items():
                setattr(scheduler, name, call)
        except (AttributeError, TypeError) as error:
            raise SettingsError(
                f"SCHEDULER: {type(scheduler).__qualname__} cannot be guarded, because its objects take no attributes "
                f"({error}); take __slots__ out of the class, or set LEASE_ENABLED = False"
            ) from error
        return set()

    async def close(self, reason: str, led: set[int]) -> None:
        """Lead the calls no longer."""
        scheduler = self._crawler.engine.scheduler
        for name in _LED:
            delattr(scheduler, name)
        for name, call in self._own.items():
            setattr(scheduler, name, call)

    def put(self, request: Request, known: Known | None = None) -> bool:
        """Give the scheduler a new request; False: it does not take it. What is known of it is found anew."""
        return self._put_in(request)

    def put_again(self, request: Request, known: Known | None = None) -> None:
        """Give a request back that was taken out, past the duplicate filter."""
        meta = {**request.meta, FILTERED: not request.dont_filter}
        if known is not None:
            # A scheduler may write JSON.
            meta[KNOWN] = [known.digest.hex(), *known[1:]]
        try:
            accepted = self.put(request.replace(dont_filter=True, meta=meta))
        except Exception:
            logger.exception("The scheduler does not take %s back", request)
        else:
            if not accepted:
                logger.error("The scheduler does not take %s back", request)

    def put_back(self, request: Request, known: Known) -> None:
        """Give a request back, behind the others."""
        self.put_again(request.replace(priority=known.priority - 1 - known.times), known)

    def take(self) -> None:
        """Nothing is taken out but by the engine."""


def known_of(request: Request) -> Known | None:
    """Undo what `Foreign.put_again` did to *request*; return what was known of it."""
    if request.meta.pop(FILTERED, False):
        request.dont_filter = False
    stored = request.meta.pop(KNOWN, None)
    if stored is None:
        return None
    digest, *more = stored
    known = Known(bytes.fromhex(digest), *more)
    request.priority = known.priority
    return known
