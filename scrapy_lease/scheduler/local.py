"""``LEASE_QUEUE = "local"``: each host discovers for itself with Scrapy's queues, and leases what it is about to fetch.

Own queue -> look-ahead -> (leased by name, in batches) -> window -> engine. What is leased is in the store with its
request, as in the shared backlog: so what a host that died or closed held is ready for all, and whoever lives fetches
it, whether it came across it or not. Everything else (window, gate, outcomes, settling) is that of
:class:`~scrapy_lease.scheduler.core.LeaseScheduler`.

Only a page that leads to no other item is fetched once over all hosts. A page that leads on is settled as such: every
other host that comes to it fetches it too, without a lease, takes its requests and drops its items. What a page leads
to that is no item belongs to its item: it is fetched with it, and again with it.

An item that this host came across is asked for until it is over, also when it was leased here and then failed, was
handed back or lost; and nobody leaves while anything is pending or leased. So what a dead host discovered, all others
have discovered or will.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import Sequence

from scrapy import Request, signals
from scrapy.crawler import Crawler

from scrapy_lease.backlog.lanes import Ask, Outgoing
from scrapy_lease.leases.items import Hold, Look, Settled
from scrapy_lease.meta import is_enforced
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.ahead import Ahead, Candidate, own_order
from scrapy_lease.scheduler.core import LeaseScheduler
from scrapy_lease.scheduler.found import Found, Source
from scrapy_lease.scheduler.intake import Arrival, Identity
from scrapy_lease.scheduler.looks import Looks
from scrapy_lease.scheduler.own_queue import HostQueue, Known, OwnQueue
from scrapy_lease.scheduler.start import Start
from scrapy_lease.scheduler.unasked import Unasked
from scrapy_lease.scheduler.under_way import new_hold
from scrapy_lease.store.scripts import Answer, Claim, Entry, Grant, Standing

logger = logging.getLogger(__name__)

#: Seconds between calls for items that are all another's, or wait.
REST = 0.05
#: In the meta of a start request that is fetched once a run: the how-manieth of its kind it is.
OCCURRENCE = "_lease_start"


class LocalScheduler(LeaseScheduler):
    """See the module's docstring."""

    can_leave_out = True
    fate = "they are this node's own, and in its JOBDIR, if it has one"

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        super().__init__(crawler, runtime)
        self._crawler = crawler
        self._skips = runtime.settings.on_contended == "skip"
        #: Are there items that are fetched without a lease?
        self._leaves_out = runtime.settings.rollout < 1
        self._sorting: asyncio.Handle | None = None
        self._came = 0
        self._asked: list[Ask] = []
        #: Was nothing asked for in the last turn, or in vain, so that the next one has time?
        self._rests = False
        self._reason = ""
        #: How the run stood when an answer came last.
        self._stood: Standing | None = None
        self._tries.on_look_failed = self._looks.failed

    # what the engine calls

    def has_pending_requests(self) -> bool:
        return bool(len(self._intake)) or super().has_pending_requests()

    def enqueue_request(self, request: Request) -> bool:
        """Take *request* in; what it is shows in the next turn of the loop, once its outcome is told. Never raises."""
        page = self._tracker.current()
        self._intake.add(request, self._tries.hold_of(page), self.start.occurrence_of(request), page)
        self._ending.busy()
        if self._sorting is None:
            self._sorting = asyncio.get_running_loop().call_soon(self._sort)
        return True

    # what the backlog asks and tells

    def outgoing(self, limit: int) -> list[Outgoing]:
        return self._unsafe.outgoing(limit)

    def asking(self, limit: int) -> list[Ask]:
        self._rests = False
        asks = super().asking(limit)
        if asks or self._unsafe.is_alone():
            return asks
        if self._is_draining or self._ending.is_closing or (self._backlog.standing and self._backlog.standing.paused):
            return []
        self._ahead.fill()
        asks = self._ahead.ask(*self._tries.window.wanted(), limit)
        self._asked = [ask for ask in asks if not self._passes(ask)] if self._leaves_out else asks
        # With a window that is full nothing is asked for either: the engine will make room.
        self._rests = not asks and not len(self._tries.window)
        if len(self._asked) < len(asks):
            # No answer will tell that there is room again for those that need no lease.
            self._backlog.wake()
        return self._asked

    def claimed(self, asks: Sequence[Ask], claims: Sequence[Claim]) -> None:
        self._asked = []
        if isinstance(asks[0], Found):
            super().claimed(asks, claims)
            return
        if self._ending.is_closing:
            # What was asked for is in the queue again, and what was granted goes back with the session.
            return
        is_open, moves = self._is_open(), False
        for candidate, claim in zip(asks, claims, strict=True):
            assert isinstance(candidate, Candidate)
            # Only what was asked for before is asked for again in its own time.
            moves |= not candidate.times
            moves |= self._answered(candidate, claim, is_open)
        self._rests = not moves
        if moves and self._ahead.has_new and len(self._tries.window) <= self._low():
            self._backlog.refill()
        if moves:
            self._ending.wake_engine()

    def wanted(self) -> tuple[int, dict[str, int]]:
        """Lease what others left, as far as the window has room for more than what is asked for by name."""
        standing = self._backlog.standing
        free, rooms = super().wanted()
        if standing is not None and not standing.ready and standing.due != 0:
            return 0, {}
        return max(0, free - len(self._asked)), rooms

    def granted(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            self._ahead.drop(grant.digest)
        super().granted(grants)

    def settled(self, settled: Settled, reply: str) -> None:
        hold, verb = settled.hold, settled.verb
        if verb == "done" and settled.args[0] == "leads":
            self._looks.has_seen(hold.digest)
        super().settled(settled, reply)
        if reply == "-" or (verb in ("failed", "back") and reply != "!"):
            self._ask_again(hold, settled.args[0] / 1000 if reply != "-" else None)

    def lost(self, holds: Sequence[Hold]) -> None:
        super().lost(holds)
        for hold in holds:
            self._ask_again(hold, None)

    def stands(self, standing: Standing) -> None:
        self._narrator.stands(standing)
        self._runtime.stats.put("items/taken_over", self._backlog.reclaimed)
        is_empty = not len(self._intake) and not len(self._queue) and not len(self._ahead)
        is_idle = not len(self._ledger) and not self._tries.loose and self._backlog.is_clear
        others = standing.ready + standing.delayed + (0 if self._skips else standing.leased)
        has_more = bool(self._ahead.has_new or len(self._queue)) and not self._rests
        self._is_starving = not has_more and not standing.ready
        self._ending.drained(is_empty and is_idle and not others)
        self._leave_if_drained()
        self._finish_start_soon()
        soonest = self._ahead.soonest()
        waits = [wait for wait in (soonest, standing.due / 1000 if standing.due >= 0 else None) if wait is not None]
        if waits:
            self._backlog.wake_in(max(REST, min(waits)) if self._rests else min(waits))

    # inside

    def _make_queue(self, crawler: Crawler) -> HostQueue:
        return OwnQueue.from_crawler(crawler)

    def _make_source(self, crawler: Crawler) -> Source:
        self._queue = self._make_queue(crawler)
        self._ahead = Ahead(self._queue, self._consider, self._window_size, self._order)
        self._looks = Looks(self._runtime, self._ledger, self._codec, self._intake, self._ahead)
        return Unasked(
            self._ahead, lambda: self._backlog.asked, self._passes, self._taken,
            lambda hold: self._ask_again(hold, None),
        )  # fmt: skip

    def _make_start(self, crawler: Crawler, runtime: Runtime) -> Start:
        # Scrapy asks start() for more when there is nothing else to do: no host need be held back.
        return Start(
            runtime.session, runtime.scripts, crawler.request_fingerprinter, "each", sys.maxsize,
            lambda: (0, len(self._intake)),
        )  # fmt: skip

    async def _open(self) -> None:
        assert self._crawler.spider is not None
        self._looks.seen = await self._queue.open(self._crawler.spider)
        await super()._open()

    async def _close(self, reason: str) -> None:
        self._reason = reason
        await super()._close(reason)

    async def _part(self) -> None:
        """Before the store is asked: what was not fetched goes back to JOBDIR.

        Others may fetch it meanwhile, which shows when it is asked for.
        """
        try:
            self._sort()
            if self._queue.is_persistent:
                self._put_all_back()
            await self._queue.close(self._reason, self._looks.seen)
        except Exception:
            logger.exception("The queue of this node could not be closed; what it holds is handed back all the same")
        await super()._part()

    def _put_all_back(self) -> None:
        for request, hold in self._giving_back.let_go():
            item = (hold.digest, hold.mark) if hold is not None else (b"", "none")
            self._queue.put_again(request, Known(*item, request.priority))
            if isinstance(hold, Look):
                self._looks.has_not_seen(hold.digest)
        for candidate in self._ahead:
            self._queue.put_again(candidate.request, candidate.known)

    def _order(self, digest: bytes) -> int:
        session = self._runtime.session
        if session.live > 1:
            return own_order(session.sid, digest)
        # Alone, a host keeps the order of its queue.
        self._came += 1
        return self._came - sys.maxsize

    def _sort(self) -> None:
        """Tell continuations of an item from new requests; these go into the queue."""
        if self._sorting is not None:
            self._sorting.cancel()
            self._sorting = None
        self._intake.sort_out(self._accept)
        if self._rests and self._ahead.has_new:
            self._backlog.nudge()
            return
        self._is_starving = False
        if self._tries.moving <= self._low():
            self._backlog.refill()

    def _accept(self, arrival: Arrival, identity: Identity) -> bool:
        request, parent, occurrence, _ = arrival
        self._intake.check(request)
        if identity.mark == "none":
            if parent is not None:
                self._tries.keep(request, parent)
            else:
                self._queue.put_again(request)
            return True
        if parent is not None:
            parent.leads = True
        if occurrence and identity.mark == "run":
            request.meta[OCCURRENCE] = occurrence
        if not self._queue.put(request, Known(identity.digest, identity.mark, request.priority)):
            self._crawler.signals.send_catch_log(signals.request_dropped, request=request, spider=self._crawler.spider)
        return True

    def _consider(self, request: Request, known: Known | None) -> Candidate | None:
        arrival = Arrival(request, None, request.meta.pop(OCCURRENCE, 0), None)
        identity = Identity(known.digest or secrets.token_bytes(16), known.mark) if known is not None else None
        times = known.times if known is not None else 0
        return self._intake.made(arrival, lambda _, identity: self._candidate(request, identity, times), identity)

    def _candidate(self, request: Request, identity: Identity, times: int) -> Candidate | None:
        if identity.mark == "none":
            self._tries.keep(request, None)
        elif identity.digest in self._ahead or self._ledger.has(identity.digest):
            self._runtime.stats.count("items/duplicate")
        else:
            return Candidate(request, self._intake.entry(request, identity), times)
        return None

    def _is_open(self) -> bool:
        """Is anything granted now, as far as this very turn tells? Else everything is contended."""
        before, self._stood = self._stood, self._backlog.standing
        stood = self._stood
        return stood is not None and stood is not before and not stood.grace and not stood.paused

    def _answered(self, candidate: Candidate, claim: Claim, is_open: bool) -> bool:
        """Take in an answer; False: the item is to be asked for again."""
        stats, entry, request = self._runtime.stats, candidate.entry, candidate.request
        if claim.answer is Answer.CONTENDED and not candidate.times:
            stats.count("items/contended")
        is_skipped = self._skips and is_open and claim.answer is Answer.CONTENDED
        if claim.answer in (Answer.CONTENDED, Answer.WAITING) and not is_skipped:
            self._ahead.put_aside(candidate, claim.wait / 1000 if claim.wait else None)
            return False
        is_here = self._ahead.drop(entry.digest)
        if claim.answer is Answer.GRANTED:
            if not self._unsafe.was_granted(entry.digest, claim):
                self._tries.granted_to(self._hold(entry, claim), request)
        elif claim.answer is Answer.LEADS and is_here and (look := self._looks.first(candidate)) is not None:
            self._tries.look_into(look, request)
        elif is_here and not is_skipped:
            stats.count("items/duplicate")
        return True

    def _hold(self, entry: Entry, claim: Claim) -> Hold:
        return new_hold(entry, claim.fence, self._runtime.session.epoch, claim.attempts, claim.deaths)

    def _passes(self, ask: Ask) -> bool:
        """Put the candidate of an item outside of LEASE_ROLLOUT into the window; False: it is to be leased."""
        if not self._is_shadow(ask.entry.digest):
            return False
        candidate = self._ahead.drop(ask.entry.digest)
        if candidate is not None:
            self._tries.keep(candidate.request, None)
            self._ending.wake_engine()
        return True

    def _is_shadow(self, digest: bytes) -> bool:
        """Is this item fetched without a lease, because LEASE_ROLLOUT leaves it out? Then it is counted."""
        if is_enforced(digest, self._runtime.settings.rollout):
            return False
        self._runtime.stats.count("items/shadow")
        return True

    def _taken(self, candidate: Candidate) -> bool:
        """Fetch *candidate* without having asked for it: the store is away. True: the engine has its request."""
        return False

    def _ask_again(self, hold: Hold, wait: float | None) -> None:
        """Another may end this item now; whether it led on shows only to who asks for it by name."""
        if hold.mark != "none" and not self._ending.is_closing and not self._ledger.has(hold.digest):
            self._looks.ask_again(hold, wait)
