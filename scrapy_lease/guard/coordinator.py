"""Item leases under a scheduler that the user chose.

That scheduler keeps the requests. What it gives the engine comes to the guard in the downloader path, where concurrent
requests are leased by name in one call. A leased request and all that continues it (redirects, retries, the page asked
for again) stay with this node under its lease, as everywhere else; what is contended waits outside of the downloader.
So all but the way in is that of :class:`~scrapy_lease.scheduler.local.LocalScheduler`: window, gate, outcomes,
settling, pages that lead on, leftovers of others, closing.

What it cannot do: save what that scheduler loses. A node that is killed takes with it what it had taken out and not
asked for yet, some milliseconds' worth, and requests that are no items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Self
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider

from scrapy_lease.backlog.lanes import Ask
from scrapy_lease.guard.claimant import Claimant
from scrapy_lease.guard.foreign import Foreign, known_of
from scrapy_lease.guard.rooms import Rooms
from scrapy_lease.leases.items import Hold
from scrapy_lease.meta import drop_record
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.ahead import Candidate
from scrapy_lease.scheduler.core import LeaseScheduler
from scrapy_lease.scheduler.intake import Arrival, Identity
from scrapy_lease.scheduler.local import OCCURRENCE, LocalScheduler
from scrapy_lease.store.scripts import Answer, Claim, Entry, Grant, Standing

#: Seconds between looks whether the crawl is closing, for those that wait in the downloader.
LOOK = 0.1


class Guard(LocalScheduler):
    """See the module's docstring; use :meth:`of`. Towards the engine it stands behind the user's scheduler."""

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        super().__init__(crawler, runtime)
        self._rooms = Rooms(self._slots, self._has_room)
        self._slots.on_room = self._rooms.admit
        self._marks_first = runtime.settings.on_holder_death == "park"
        self._is_accepted = True
        self._looking: asyncio.Task[None] | None = None
        crawler.signals.connect(self._idle, signals.spider_idle)

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Return the guard of *crawler*, made on first use."""
        guard = _guards.get(crawler)
        if guard is None:
            guard = _guards[crawler] = cls.from_crawler(crawler)
        return guard  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<Guard {self._runtime.scope.name}: {self._ahead}, {self._tries}>"

    # what the hooks call

    async def attach(self) -> None:
        """Begin to beat and to make turns, and to see what passes the scheduler."""
        await self._open()
        self._looking = asyncio.ensure_future(self._look())

    async def detach(self) -> None:
        """Give what is aside back to the scheduler and what is leased to the store, and end the session."""
        if self._looking is None:
            return
        self._looking.cancel()
        await self._close("")
        _guards.pop(self._crawler, None)

    async def admits(self, request: Request) -> bool:
        """May *request*, on its way into the downloader, go on? Waits for the answer and for its download slot.

        Not asked for: what no scheduler gave (media, robots.txt), and what the guard itself gave.
        """
        if not self._tracker.is_handed_out(request) or self._tries.has(request):
            return True
        drop_record(request.meta)
        claimant = self._consider(request, known_of(request))
        if claimant is None:
            return False
        assert isinstance(claimant, Claimant)
        if claimant.is_waiting:
            self._ahead.put(claimant)
            self._backlog.wake()
        return await claimant.goes_on and await self._rooms.enter(request) and not self._tries.is_stale(request)

    # what the engine calls of the scheduler

    def enqueue_request(self, request: Request) -> bool:
        """Take off what belongs to an item of this node; all else is the scheduler's."""
        ended = self._tracker.continued(request)
        if ended is not None and self._tries.has(ended):
            # Its outcome, which comes in this turn of the loop, claims it.
            self._intake.add(request, None, 0)
            return True
        if ended is request:
            # It was let go: it is aside, or dropped.
            return True
        self._ending.busy()
        page = self._tracker.current()
        self._intake.add(request, self._tries.hold_of(page), self.start.occurrence_of(request), page)
        self._is_accepted = True
        self._intake.sort_out(self._accept)
        return self._is_accepted

    def next_request(self) -> Request | None:
        """Return what the guard has for the engine, else what the scheduler has."""
        request = self._tries.next()
        if request is not None:
            return request
        request = self._foreign.take_out()
        if request is None:
            return None
        if self._tries.has(request):
            # A callback that yields its own request, or one twice: the engine knows requests by identity.
            request = copy(request)
        self._ending.busy()
        self._tracker.track(request)
        return request

    # what the backlog asks

    def asking(self, limit: int) -> list[Ask]:
        asks = LeaseScheduler.asking(self, limit)
        if asks or self._unsafe.is_alone():
            return asks
        standing = self._backlog.standing
        if standing is not None and (standing.paused or standing.grace):
            # Unasked they wait in the downloader, so that the engine takes no more out of the scheduler.
            return []
        if self._is_draining or self._ending.is_closing or self._runtime.is_leaving():
            return []
        return self._ahead.ask(limit, {}, limit)

    def granted(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            candidate = self._ahead.drop(grant.digest)
            if isinstance(candidate, Claimant):
                candidate.let(False)
        super().granted(grants)

    def stands(self, standing: Standing) -> None:
        super().stands(standing)
        if self._tries.is_idle:
            # Other nodes may have put something into the scheduler, and an idle engine asks it every 5 s only.
            self._ending.wake_engine()

    # inside

    def _make_queue(self, crawler: Crawler) -> Foreign:
        self._foreign = Foreign(crawler, self.enqueue_request, self.next_request)
        return self._foreign

    def _has_room(self, slot: str) -> bool:
        """May a slot that can send take what waits in the downloader?

        Not before what continues an item, if the engine can take that out of the window now. And nothing while the
        gate is shut: behind it requests without a lease would pile up here, and the engine would take ever more.
        """
        is_reserved = slot in self._tries.window and not self._crawler.engine.needs_backout()
        return self._runtime.gate.is_open and not is_reserved

    def _idle(self) -> None:
        if not self._ending.is_finished:
            raise DontCloseSpider

    async def _look(self) -> None:
        """Let those go that wait in the downloader when the crawl closes; waiting for room is no want of progress."""
        while True:
            await asyncio.sleep(LOOK)
            if self._runtime.is_leaving():
                self._let_go(self._ahead)
                self._rooms.let_go()
            elif self._unsafe.is_alone():
                # Who was not to be had before the store went waits for it, and not in the downloader.
                self._let_go(candidate for candidate in self._ahead if candidate.times)
            self._rooms.admit()
            for request in self._rooms:
                if (hold := self._tries.hold_of(request)) is not None:
                    hold.progress = time.monotonic()

    @staticmethod
    def _let_go(candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            if isinstance(candidate, Claimant):
                candidate.let(False)

    def _taken(self, candidate: Candidate) -> bool:
        if not isinstance(candidate, Claimant) or not candidate.is_waiting:
            return False
        candidate.let(True)
        return True

    def _accept(self, arrival: Arrival, identity: Identity) -> bool:
        """Put a request into the scheduler; what continues the page that led to it never comes here."""
        request, parent, occurrence, page = arrival
        if parent is not None:
            parent.leads = True
        if request is not page:
            drop_record(request.meta)
        if occurrence and identity.mark == "run":
            request.meta[OCCURRENCE] = occurrence
        self._is_accepted = self._foreign.put(request)
        return True

    def _candidate(self, request: Request, identity: Identity, times: int) -> Candidate | None:
        if identity.mark == "none" or self._is_shadow(identity.digest):
            claimant = Claimant(request, Entry(identity.digest, "", 0, b"", "none"))
            self._tries.entered(request, None)
            claimant.let(True)
            return claimant
        if identity.digest in self._ahead or self._ledger.has(identity.digest):
            self._runtime.stats.count("items/duplicate")
            return None
        return Claimant(request, self._intake.entry(request, identity), times)

    def _answered(self, candidate: Candidate, claim: Claim, is_open: bool) -> bool:
        if not isinstance(candidate, Claimant) or not candidate.is_waiting:
            return super()._answered(candidate, claim, is_open)
        hold: Hold | None = None
        if claim.answer is Answer.GRANTED and not self._marks_first:
            hold = self._hold(candidate.entry, claim)
        elif claim.answer is Answer.LEADS:
            hold = self._looks.first(candidate)
        if hold is None:
            candidate.let(False)
            return super()._answered(candidate, claim, is_open)
        self._ahead.drop(hold.digest)
        self._tries.entered(candidate.request, hold)
        candidate.let(True)
        return True


_guards: WeakKeyDictionary[Crawler, Guard] = WeakKeyDictionary()
