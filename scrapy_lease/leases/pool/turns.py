"""The one task in which a pool speaks to the store: it reports, settles, takes and reclaims.

A call that got no answer is repeated as the same call, so a turn may fail at any point. Two rules give the order:

- what a session holds is reported before it takes anything: at first, when the server is another process, and when the
  session is another one, with the lost one as previous;
- a settlement without an answer is repeated before a report of the same session, which must not name what it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from scrapy_lease.exceptions import GenerationChanged, OtherDays, SessionLost, StoreUnavailable
from scrapy_lease.leases.lanes import Lane
from scrapy_lease.leases.pool.accounts import Terms
from scrapy_lease.leases.pool.options import PoolOptions, PoolStore, Taken
from scrapy_lease.leases.pool.shelf import Lease, Word
from scrapy_lease.leases.pool.wants import Asks
from scrapy_lease.leases.session import Session, boot_time

logger = logging.getLogger(__name__)

#: Most words of one call: some milliseconds of the server's time.
BATCH = 300
#: Seconds for which a word may wait for company.
LINGER = 0.05
#: Seconds before a turn that failed is made again: at least, at most.
RETRY, LONGEST_RETRY = 0.1, 1.0
#: Seconds between turns, at most and at least: what lies idle too long is given back so much late.
STEP, SHORTEST = 0.5, 0.02
#: Seconds that giving back may take when a pool stops; what is left comes back with the end of the session.
STOP = 2.0


class Owner(Protocol):
    """Who uses the turns: the pool."""

    def held(self) -> list[Lease]:
        """Return what is leased to this process."""

    def pause(self) -> float:
        """Return the seconds after which a turn is due, if nothing happens before."""

    def tidy(self) -> None:
        """A turn begins: what has become due?"""

    def asks(self) -> Asks | None:
        """Return what to ask for; empty: nothing any more; None: no call is needed now."""

    def took(self, asks: Asks, taken: Taken, asked: float) -> None:
        """A take was answered that was sent at clock time *asked* (s)."""

    def terms(self, asks: Asks) -> Terms | None:
        """Return how accounts may be used now, None: they are none."""

    def other_days(self, wall: int) -> None:
        """Nothing was taken: the server's clock is at *wall* ms, which is not among the days of the terms."""

    def answered(self, word: Word, reply: str) -> None:
        """A word was answered: one character, as in ``pool_settle.lua``."""

    def lost(self, lease: Lease) -> None:
        """The lease is over: the store says so."""

    def reported(self) -> None:
        """The store and this process agree on what is leased."""


class Turns:
    """See the module's docstring."""

    def __init__(self, options: PoolOptions, store: PoolStore, session: Session, owner: Owner) -> None:
        #: Of the session that the records of the leases name; nothing is handed out under another.
        self.epoch = 0
        self.outbox: list[Word] = []
        #: Awaited before a report to a new server: what may not be known there is registered first.
        self.before_report: Callable[[], Awaitable[None]] = _nothing
        self._options = options
        self._store = store
        self._session = session
        self._owner = owner
        verb = f"pool/{options.name}"
        self._settle: Lane[list[Word], str] = Lane(f"{verb}/settle", session, self._send_settle)
        self._take: Lane[Asks, Taken] = Lane(f"{verb}/take", session, self._send_take)
        self._report: Lane[list[Lease], list[int]] = Lane(f"{verb}/report", session, self._send_report)
        #: The session that the records name, and the one for which the lanes count.
        self._holder = ""
        self._counting = 0
        self._generation = 0
        self._asked = 0.0
        self._wake = asyncio.Event()
        self._nudge: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._complaint = ""

    @property
    def is_clear(self) -> bool:
        """Is nothing on its way to the store?"""
        return self._settle.is_free and self._take.is_free and not self.outbox

    def start(self) -> None:
        """Begin to make turns; the session is open."""
        self._task = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """Make a turn now (after the one under way)."""
        self._wake.set()

    def nudge(self) -> None:
        """Make a turn soon: within :data:`LINGER`."""
        if self._nudge is None and self._task is not None:
            self._nudge = asyncio.get_running_loop().call_later(LINGER, self._nudged)

    async def stop(self) -> None:
        """Make a last turn, which tells what is left to tell, and no more."""
        self._is_stopping = True
        if self._nudge is not None:
            self._nudge.cancel()
        self.wake()
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP):
                # One that is cancelled in the middle of a call keeps the call, to be repeated.
                await asyncio.wait([self._task], timeout=STOP / 2)
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
                await self._tell_the_rest()

    def _nudged(self) -> None:
        self._nudge = None
        self.wake()

    async def _run(self) -> None:
        failures = 0
        while not self._is_stopping:
            try:
                await self._turn()
                failures = 0
            except StoreUnavailable:
                failures += 1
            except Exception as error:
                self._complain(error)
                failures += 1
            await self._sleep(failures)

    def _complain(self, error: Exception) -> None:
        """Log each fault once, not with every turn."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.error("A turn of the pool %s failed; it is made again", self._options.name, exc_info=error)

    async def _sleep(self, failures: int) -> None:
        if failures and not self._is_stopping:
            await asyncio.sleep(min(RETRY * 2.0 ** (failures - 1), LONGEST_RETRY) * random.uniform(0.75, 1.25))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(SHORTEST, min(STEP, self._owner.pause()))):
                await self._wake.wait()
        self._wake.clear()

    async def _turn(self) -> None:
        session = self._session
        if session.is_lost or session.is_closed or not session.sid:
            return
        self._owner.tidy()
        try:
            if self._holder != session.sid:
                self._start_anew()
                await self._tell_held()
            elif self._generation != session.generation:
                await self._repeat_settle()
                await self.before_report()
                await self._tell_held()
            await self._exchange()
        except GenerationChanged:
            self._generation = 0
            self.wake()
        except OtherDays as error:
            self._owner.other_days(error.wall)
        except SessionLost:
            # Of a session that another has replaced in the meantime it says nothing.
            if self._holder == session.sid or self._counting == session.epoch:
                session.lose()

    async def _exchange(self) -> None:
        """Settle and take in one pipeline, in this order: what was given back can be taken."""
        lanes: list[Awaitable[Any]] = [self._settle.run(self._batch), self._take.run(self._owner.asks)]
        settled, taken = await asyncio.gather(*lanes, return_exceptions=True)
        if isinstance(settled, tuple):
            self._settled(*settled)
        if isinstance(taken, tuple):
            asks, answer = taken
            self._owner.took(asks, answer, self._asked)
            expired = answer.standing.expired
            if expired and expired != self._session.sid:
                await self._reclaim(expired)
        for result in (settled, taken):
            if isinstance(result, BaseException):
                raise result
        if self.outbox:
            self.nudge()

    async def _reclaim(self, sid: str) -> None:
        """End some leases of a session that is over; the next turn sees what others it can have, and goes on."""
        ended, _ = await self._store.reclaim(sid, grace=int(self._options.grace * 1000))
        if ended:
            self.wake()

    def _batch(self) -> list[Word] | None:
        batch, self.outbox = self.outbox[:BATCH], self.outbox[BATCH:]
        return batch or None

    def _settled(self, batch: list[Word], replies: str) -> None:
        for word, reply in zip(batch, replies, strict=True):
            self._owner.answered(word, reply)

    # what is held

    def _start_anew(self) -> None:
        """The session is another one: what was under way is void, and what was to be said is still to be said."""
        if self._counting != self._session.epoch:
            self._counting = self._session.epoch
            self.outbox[:0] = self._settle.forget() or []
            self._take.forget()
            self._report.forget()

    async def _repeat_settle(self) -> None:
        if (settled := await self._settle.run(lambda: None)) is not None:
            self._settled(*settled)

    async def _tell_held(self) -> None:
        """Say what this process holds, and what it is about to end; afterwards the store agrees."""
        epoch, sid, generation = self._session.epoch, self._session.sid, self._session.generation
        told = await self._report.run(self._all_held)
        assert told is not None
        for lease, fence in zip(*told, strict=True):
            if fence:
                lease.fence = fence
            else:
                self.outbox = [word for word in self.outbox if word.lease is not lease]
                self._owner.lost(lease)
        self._holder, self.epoch, self._generation = sid, epoch, generation
        self._owner.reported()

    def _all_held(self) -> list[Lease]:
        held = self._owner.held()
        return [*held, *{id(word.lease): word.lease for word in self.outbox if word.lease not in held}.values()]

    async def _tell_the_rest(self) -> None:
        while self._holder == self._session.sid and not self._session.is_closed:
            try:
                await self._exchange()
                if self.is_clear:
                    return
            except (SessionLost, GenerationChanged):
                return
            except StoreUnavailable:
                await asyncio.sleep(RETRY)

    # what the lanes send

    async def _send_settle(self, sid: str, n: int, words: list[Word]) -> str:
        self._check(sid)
        return await self._store.settle(sid, n, words)

    async def _send_take(self, sid: str, n: int, asks: Asks) -> Taken:
        self._check(sid)
        self._asked = boot_time()
        options = self._options
        return await self._store.take(
            sid, n, asks.sites, margin=int(options.margin * 1000), grace=int(options.grace * 1000),
            ties=asks.ties, ttl=int(options.sticky_ttl * 1000), answered=asks.answered,
            owned=options.is_owned, terms=self._owner.terms(asks),
        )  # fmt: skip

    async def _send_report(self, sid: str, n: int, leases: list[Lease]) -> list[int]:
        previous = self._holder if self._holder != sid else ""
        holds = [(lease.id, lease.fence) for lease in leases]
        purses = [lease.purse for lease in leases]
        told = [purse.told() if purse is not None else None for purse in purses] if any(purses) else ()
        return await self._store.report(sid, n, holds, previous=previous, told=told)

    def _check(self, sid: str) -> None:
        """Between the beginning of a turn and its calls another session may have been opened: it reports first."""
        if sid != self._holder:
            raise SessionLost(f"session {self._holder} is over")


async def _nothing() -> None:
    """Nothing is to be done."""
