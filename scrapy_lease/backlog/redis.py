"""The crash-safe backlog in Redis that all hosts share, as one node works on it.

One background task makes *turns*: each pushes what was discovered, settles what is over and leases what the window
lacks, in one pipeline. Nothing else waits for the store. A call that got no answer is kept and repeated as the same
call, so a turn may fail at any point. Two rules give the order:

- an item is settled only in a turn after the pushes of everything it led to were answered (the ledger sees to it);
- after a loss, what was under way is finished under the old session, whose records still name it, before a new one is
  opened and given back what nobody took.
"""

from __future__ import annotations

import asyncio
import logging
import random

from scrapy_lease.backlog.exchange import Exchange
from scrapy_lease.backlog.lanes import Ask, Outgoing, Owner
from scrapy_lease.backlog.recovery import Recovery
from scrapy_lease.exceptions import GenerationChanged, SessionLost, StoreRefused, StoreUnavailable
from scrapy_lease.leases.items import Ledger
from scrapy_lease.leases.session import Session
from scrapy_lease.store.scripts import Scripts, Standing

logger = logging.getLogger(__name__)

#: Seconds for which a push or settlement may wait for company.
LINGER = 0.1
#: Seconds before a turn that failed is made again, at least.
RETRY = 0.1
#: Seconds between turns while nothing happens here; whoever waits for a takeover calls at least once a second.
IDLE = 1.0


class RedisBacklog:
    """See the module's docstring.

    :param deaths: sessions that may die with an item before it is dead.
    :param policy: ``refetch`` or ``park``: what becomes of items that a dead session may have sent.
    """

    def __init__(
        self, scripts: Scripts, session: Session, ledger: Ledger, owner: Owner, *, deaths: int, policy: str
    ) -> None:
        self.reclaimed = 0
        self._scripts = scripts
        self._session = session
        self._owner = owner
        self._deaths = deaths
        self._policy = policy
        self._exchange = Exchange(scripts, session, ledger, owner)
        self._recovery = Recovery(scripts, session, ledger, owner, self._exchange)
        self._wake = asyncio.Event()
        self._nudge: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._quiet = 0.0

    @property
    def standing(self) -> Standing | None:
        """How the run stood when the store was heard last; None before that."""
        return self._exchange.standing

    @property
    def turn_time(self) -> float:
        """Seconds that a turn takes, averaged over the last few."""
        return self._exchange.turn_time

    @property
    def is_clear(self) -> bool:
        """Is nothing of this process on its way to the store?"""
        return self._exchange.is_clear

    @property
    def unanswered(self) -> list[Outgoing]:
        """Requests whose push was sent and has no answer: the backlog may have them."""
        return self._exchange.unanswered

    @property
    def asked(self) -> list[Ask]:
        """Items whose claim was sent and has no answer: they may be leased to this session."""
        return self._exchange.asked

    def start(self) -> None:
        """Begin to make turns; the session is open."""
        self._recovery.start()
        self._task = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """Make a turn now (after the one under way)."""
        self._wake.set()

    def refill(self) -> None:
        """Make a turn now, unless one is under way that fills the window."""
        if not self._exchange.is_leasing:
            self._wake.set()

    def nudge(self) -> None:
        """Make a turn soon: within :data:`LINGER`."""
        if self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(LINGER, self._nudged)

    def wake_in(self, seconds: float) -> None:
        """Make a turn in so many seconds, :data:`IDLE` at most; it takes the place of an earlier one of this kind."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(min(seconds, IDLE), self.wake)

    async def stop(self) -> None:
        """Make no more turns by itself; :meth:`flush` still does."""
        self._stopping = True
        self.wake()
        if self._nudge is not None:
            self._nudge.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def flush(self) -> bool:
        """Make one turn without leasing; True: nothing is left to be sent. Store errors pass through."""
        await self._exchange.run()
        return self.is_clear

    async def _run(self) -> None:
        failures = 0
        while True:
            if failures:
                # A crawl that goes on without the store wakes often, which brings the store back no sooner.
                await asyncio.sleep(RETRY)
            await self._sleep(self._pause(failures))
            if self._is_stopping():
                break
            try:
                await self._turn()
                failures = 0
            except StoreUnavailable:
                failures += 1
            except StoreRefused as error:
                self._owner.refused(error)
                failures += 1
            except Exception:
                logger.exception("A turn of the backlog failed; it is made again")
                failures += 1

    def _pause(self, failures: int) -> float:
        if failures:
            self._wake.clear()
            return min(0.1 * 2.0**failures, 1.0) * random.uniform(0.75, 1.25)
        return self._quiet

    async def _sleep(self, seconds: float) -> None:
        # The engine takes what was granted in the next turns of the loop; only then is it known what is wanted.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _is_stopping(self) -> bool:
        return self._stopping

    def _nudged(self) -> None:
        self._nudge = None
        self.wake()

    async def _turn(self) -> None:
        if self._nudge is not None:
            # This turn takes along what it would be for.
            self._nudge.cancel()
            self._nudge = None
        try:
            await self._recovery.run()
            busy = await self._exchange.run(lease=True)
        except GenerationChanged:
            self._recovery.is_to_report = True
            self.wake()
            return
        except SessionLost:
            self._session.lose()
            self.wake()
            return
        standing = self.standing
        if standing is not None:
            if standing.expired and standing.expired != self._session.sid:
                await self.reclaim(standing.expired)
            self._owner.stands(standing)
        self._quiet = LINGER if busy else min(IDLE, max(self._quiet * 2, LINGER))

    async def reclaim(self, sid: str) -> None:
        """Take what the session *sid*, which is over, still holds back into the backlog."""
        total, left = 0, 1
        while left > 0:
            moved, left = await self._scripts.reclaim(sid, deaths=self._deaths, policy=self._policy)
            total += moved
        self.reclaimed += total
        self._owner.reclaimed(sid, total)
        self.wake()
