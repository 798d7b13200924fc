"""The scheduler: backlog -> window -> engine.

What the engine calls never raises and never waits: :meth:`LeaseScheduler.enqueue_request` appends to a list,
:meth:`LeaseScheduler.next_request` takes from the window what its download slot can send at once. Everything that
speaks to the store is done by the turns of :class:`~scrapy_lease.backlog.redis.RedisBacklog`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from math import ceil
from typing import ClassVar, Self

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from scrapy_lease.backlog.lanes import Ask, Outgoing
from scrapy_lease.backlog.redis import RedisBacklog
from scrapy_lease.exceptions import SettingsError, StoreError, StoreRefused
from scrapy_lease.leases.items import Hold, Ledger, Patience, Settled
from scrapy_lease.leases.session import Beat
from scrapy_lease.meta import ItemKeys
from scrapy_lease.outcomes import Tracker
from scrapy_lease.payload import Codec
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.discovered import Discovered
from scrapy_lease.scheduler.ending import Ending
from scrapy_lease.scheduler.found import Source
from scrapy_lease.scheduler.giving_back import GivingBack
from scrapy_lease.scheduler.goods import attach_goods
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.scheduler.narrator import Narrator
from scrapy_lease.scheduler.parting import Parting
from scrapy_lease.scheduler.slots import Slots
from scrapy_lease.scheduler.start import Start
from scrapy_lease.scheduler.tries import Tries
from scrapy_lease.scheduler.unsafe import Unsafe
from scrapy_lease.store.scripts import Claim, Grant, Standing

logger = logging.getLogger(__name__)

#: Seconds of a turn from which on the store is far away.
FAR = 0.01


class LeaseScheduler(BaseScheduler):
    """See the module's docstring."""

    #: Can it fetch items without a lease, as LEASE_ROLLOUT says?
    can_leave_out: ClassVar = False
    #: What becomes of requests of which the store was not told when the crawl ends.
    fate: ClassVar = "the pages that led to them are not done, and whoever takes those over finds them again"

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._tracker = Tracker.of(crawler)
        self._tracker.done_when = settings.done_when
        spider = crawler.spider
        assert spider is not None
        codec = self._codec = Codec(spider)
        self._ledger = Ledger(Patience(settings.item_attempts, settings.item_backoff), self._settlement_waits)
        self._slots = Slots(crawler)
        self._tries = Tries(runtime, self._ledger, codec, self._slots, self._tracker)
        self._giving_back = GivingBack(self._tries, self._ledger, codec)
        keys = ItemKeys(spider, settings.item_key, crawler.request_fingerprinter)
        self._intake = Intake(
            self._tries, self._ledger, codec, keys, self._slots.key_of, runtime.stats, ceil(settings.done_ttl)
        )
        self._tries.intake = self._intake
        self.start = self._make_start(crawler, runtime)
        self._ending = Ending(crawler, runtime, settings.queue_idle, lambda: self.start.was_over)
        self._backlog: RedisBacklog
        self._window_size = runtime.settings.window
        self._source = self._make_source(crawler)
        self._unsafe = self._make_unsafe(self._source)
        self._is_starving = True
        self._is_draining = False
        self._narrator = Narrator(runtime)
        self._waiting_rooms = attach_goods(crawler, runtime, self._tries, self._ending.wake_engine)
        self._finishing: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        runtime = Runtime.of(crawler)
        if not runtime.is_gated:
            raise SettingsError(
                f"{cls.__module__}.{cls.__qualname__} is in use, but scrapy_lease.extension.LeaseExtension is not "
                'among the EXTENSIONS; set ADDONS = {"scrapy_lease.Addon": 500}, which puts every part in its place'
            )
        if runtime.settings.rollout < 1 and not cls.can_leave_out:
            logger.warning(
                "LEASE_ROLLOUT = %g: the shared backlog leases every item, whatever the share; to lease only a share "
                "of them, set LEASE_QUEUE = 'local', or keep another SCHEDULER", runtime.settings.rollout,
            )  # fmt: skip
        return cls(crawler, runtime)

    def __repr__(self) -> str:
        return f"<LeaseScheduler {self._runtime.scope.name}: {self._tries}>"

    # what the engine calls

    def open(self, spider: Spider) -> Deferred[None]:
        """Begin to beat and to make turns; the session is open since the components were built."""
        return deferred_from_coro(self._open())

    def close(self, reason: str) -> Deferred[None]:
        """Hand everything back and end the session, as far as the store answers in time."""
        return deferred_from_coro(self._close(reason))

    def has_pending_requests(self) -> bool:
        return not self._ending.is_finished

    def enqueue_request(self, request: Request) -> bool:
        """Take *request* in; what it is (new, duplicate, a continuation) shows in a later turn. Never raises."""
        page = self._tracker.current()
        parent = self._tries.hold_of(page)
        self._intake.add(request, parent, self.start.occurrence_of(request), page)
        self._ending.busy()
        if self._is_starving and not len(self._tries.window):
            self._backlog.wake()
        else:
            self._backlog.nudge()
        return True

    def next_request(self) -> Request | None:
        request = self._tries.next()
        if not self._is_starving and self._tries.moving <= self._low():
            self._backlog.refill()
        return request

    # what the backlog asks and tells

    def outgoing(self, limit: int) -> list[Outgoing]:
        if self._unsafe.is_alone():
            return []
        entries = self._unsafe.outgoing(limit)
        entries += self._intake.outgoing(limit - len(entries))
        if len(self._intake):
            self._backlog.wake()
        return entries

    def asking(self, limit: int) -> list[Ask]:
        return self._unsafe.asking(limit)

    def claimed(self, asks: Sequence[Ask], claims: Sequence[Claim]) -> None:
        self._unsafe.claimed(asks, claims)

    def wanted(self) -> tuple[int, dict[str, int]]:
        if self._is_draining or self._ending.is_closing:
            return 0, {}
        return self._tries.window.wanted()

    def pushed(self, outgoing: Outgoing, reply: str) -> None:
        self._runtime.stats.count("queue/pushed" if reply == "+" else "items/duplicate")
        if self._unsafe.is_on:
            self._source.pushed(outgoing.entry, is_new=reply == "+")
        if outgoing.parent is not None:
            self._ledger.child_safe(outgoing.parent)

    def granted(self, grants: Sequence[Grant]) -> None:
        if self._unsafe.is_on:
            self._source.granted(grants)
        self._tries.granted(self._unsafe.granted(grants))
        if len(self._tries.window) <= self._low():
            self._backlog.refill()
        self._ending.wake_engine()

    def settled(self, settled: Settled, reply: str) -> None:
        stats, verb = self._runtime.stats, settled.verb
        if verb == "sent":
            self._sent_marked(settled.hold, reply)
        elif reply == "-":
            stats.count("items/stale")
        elif verb == "back":
            stats.count("queue/requeued")
        elif verb != "dead":
            stats.count(f"items/{verb}")
        if reply == "!":
            stats.count("items/dead")
            self._narrator.died(settled)

    def regained(self, holds: Sequence[Hold]) -> None:
        self._tries.regained(holds)
        self._ending.wake_engine()

    def lost(self, holds: Sequence[Hold]) -> None:
        self._tries.lost(holds)

    def stands(self, standing: Standing) -> None:
        self._is_starving = standing.ready == 0
        self._narrator.stands(standing)
        self._runtime.stats.put("items/taken_over", self._backlog.reclaimed)
        is_empty = not self._sizes()[1] and not len(self._ledger) and not self._tries.loose and self._backlog.is_clear
        self._ending.drained(standing.drained and is_empty)
        self._leave_if_drained()
        self._finish_start_soon()
        if standing.due >= 0 and not standing.ready:
            self._backlog.wake_in(standing.due / 1000)

    def refused(self, error: Exception) -> None:
        self._ending.refused(error)

    def reclaimed(self, sid: str, moved: int) -> None:
        self._narrator.taken_over(sid, moved)

    # inside

    def _make_start(self, crawler: Crawler, runtime: Runtime) -> Start:
        settings = runtime.settings
        return Start(
            runtime.session, runtime.scripts, crawler.request_fingerprinter, settings.start, settings.start_ahead,
            self._sizes,
        )  # fmt: skip

    def _make_source(self, crawler: Crawler) -> Source:
        """Make what this node fetches from while the store is away."""
        return Discovered(
            self._intake, self._ledger, self._runtime.stats, lambda: self._backlog.unanswered,
            lambda: self._sizes()[0] // self._runtime.session.live,
        )  # fmt: skip

    def _make_unsafe(self, source: Source) -> Unsafe:
        return Unsafe(
            self._runtime, self._ledger, self._tries, source,
            wanted=lambda: LeaseScheduler.wanted(self), standing=lambda: self._backlog.standing,
            wake=lambda: self._backlog.wake(), engine=self._ending.wake_engine,
            fate=self.fate,
        )  # fmt: skip

    async def _open(self) -> None:
        runtime, settings = self._runtime, self._runtime.settings
        self._backlog = RedisBacklog(
            runtime.scripts, runtime.session, self._ledger, self, deaths=settings.item_deaths,
            policy=settings.on_holder_death,
        )  # fmt: skip
        runtime.on_beat = self._beaten
        runtime.on_store = self._store_changed
        runtime.start()
        self._narrator.opened()
        self._backlog.start()
        self._unsafe.start()
        self._checks = asyncio.ensure_future(self._check())

    async def _close(self, reason: str) -> None:
        self._ending.is_closing = True
        self._checks.cancel()
        # The outcome of the last response may come one turn of the loop after the engine asks to close.
        await asyncio.sleep(0)
        await self._part()
        self._narrator.closed()
        await self._runtime.stop()

    async def _part(self) -> None:
        runtime = self._runtime
        parting = Parting(runtime, self._backlog, self._unsafe, self._intake, self._tries, self._giving_back)
        await parting.run(self.start.finish)

    def _leave_if_drained(self) -> None:
        if self._is_draining and not len(self._ledger) and self._backlog.is_clear:
            self._ending.close("lease_drained")

    def _finish_start_soon(self) -> None:
        if self.start.has_ended and self._finishing is None:
            self._finishing = asyncio.ensure_future(self._finish_start())

    async def _check(self) -> None:
        """Once a second: what only time brings about."""
        while True:
            await asyncio.sleep(1.0)
            self._runtime.stats.flush()
            self._ending.check_store()
            for room in self._waiting_rooms:
                self._giving_back.waiting(room.is_hopeless)
            for hold in self._ledger.overdue(time.monotonic() - self._runtime.settings.max_hold):
                self._tries.give_up(hold, "max_hold", "no progress within LEASE_MAX_HOLD")

    async def _finish_start(self) -> None:
        is_safe = not self._sizes()[1] and self._unsafe.is_clear
        if is_safe and not self._tries.loose and self._backlog.is_clear:
            try:
                await self.start.finish()
                self._backlog.wake()
            except StoreRefused as error:
                self.refused(error)
            except StoreError:
                logger.debug("The end of start() is told to the store in a later turn")
        self._finishing = None

    def _beaten(self, beat: Beat | None) -> None:
        if beat is None:
            self._backlog.wake()
            return
        if beat.draining and not self._is_draining:
            logger.info("This node is asked to leave (scrapy-lease drain): it ends what it has under way")
            self._is_draining = True
        if beat.draining or beat.paused:
            self._giving_back.window()
        if len(self._tries.window):
            self._ending.wake_engine()

    def _store_changed(self, is_up: bool) -> None:
        if is_up:
            self._ending.wake_engine()

    def _low(self) -> int:
        """Return the number of requests held ready at which more are leased: the further the store, the earlier."""
        return max(1, self._window_size * (6 if self._backlog.turn_time > FAR else 3) // 8)

    def _settlement_waits(self) -> None:
        if self._tries.is_idle:
            self._backlog.wake()
        else:
            self._backlog.nudge()

    def _sent_marked(self, hold: Hold, reply: str) -> None:
        if reply == "+":
            self._tries.prepare(hold)
            self._ending.wake_engine()
        else:
            self._ledger.drop(hold)

    def _sizes(self) -> tuple[int, int]:
        standing = self._backlog.standing
        here = len(self._intake) + len(self._source) + self._unsafe.waiting
        return (standing.ready + standing.delayed if standing else 0), here
