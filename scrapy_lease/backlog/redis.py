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
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

from scrapy_lease.backlog.lanes import Ask, Outgoing, Owner
from scrapy_lease.exceptions import GenerationChanged, SessionLost, StoreRefused, StoreUnavailable
from scrapy_lease.leases.items import Hold, Ledger, Settled
from scrapy_lease.leases.lanes import Lane
from scrapy_lease.leases.session import Session
from scrapy_lease.store.emptied import EMPTIED, was_emptied
from scrapy_lease.store.scripts import Answer, Claim, Entry, Grant, Scripts, Settlement, Standing

logger = logging.getLogger(__name__)

#: Most entries and settlements of one call: some milliseconds of the server's time.
BATCH = 300
#: Seconds for which a push or settlement may wait for company.
LINGER = 0.1
#: Seconds before a turn that failed is made again, at least.
RETRY = 0.1
#: Seconds between turns while nothing happens here; whoever waits for a takeover calls at least once a second.
IDLE = 1.0
#: Seconds of acknowledged writes that a server which syncs its file every second may have lost when it comes back.
TAIL = 3.0


class RedisBacklog:
    """See the module's docstring.

    :param deaths: sessions that may die with an item before it is dead.
    :param policy: ``refetch`` or ``park``: what becomes of items that a dead session may have sent.
    """

    def __init__(
        self, scripts: Scripts, session: Session, ledger: Ledger, owner: Owner, *, deaths: int, policy: str
    ) -> None:
        self.standing: Standing | None = None
        #: Seconds that a turn takes, averaged over the last few.
        self.turn_time = 0.0
        self.reclaimed = 0
        self._scripts = scripts
        self._session = session
        self._ledger = ledger
        self._owner = owner
        self._deaths = deaths
        self._policy = policy
        self._push: Lane[list[Outgoing], str] = Lane("push", session, self._send_push)
        self._settle: Lane[list[Settled], str] = Lane("settle", session, self._send_settle)
        self._claim: Lane[list[Ask], list[Claim]] = Lane("claim", session, self._send_claim)
        self._lease: Lane[tuple[int, dict[str, int]], tuple[Standing, list[Grant]]] = Lane(
            "lease", session, self._send_lease
        )
        self._report: Lane[list[Hold], list[int]] = Lane("report", session, self._send_report)
        #: The session that the records of our holds name.
        self._holder = session.sid
        #: What was acknowledged lately, for a server that comes back without its last writes.
        self._recent: deque[tuple[float, list[Entry], list[Settled]]] = deque()
        self._answered = 0.0
        self._server_id = ""
        self._is_to_report = False
        self._wake = asyncio.Event()
        self._nudge: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._quiet = 0.0
        self._is_leasing = False

    @property
    def is_clear(self) -> bool:
        """Is nothing of this process on its way to the store?"""
        return self._push.is_free and self._settle.is_free and not self._ledger.outbox

    @property
    def unanswered(self) -> list[Outgoing]:
        """Requests whose push was sent and has no answer: the backlog may have them."""
        return self._push.unanswered or []

    @property
    def asked(self) -> list[Ask]:
        """Items whose claim was sent and has no answer: they may be leased to this session."""
        return self._claim.unanswered or []

    def start(self) -> None:
        """Begin to make turns; the session is open."""
        self._holder = self._session.sid
        self._task = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """Make a turn now (after the one under way)."""
        self._wake.set()

    def refill(self) -> None:
        """Make a turn now, unless one is under way that fills the window."""
        if not self._is_leasing:
            self._wake.set()

    def nudge(self) -> None:
        """Make a turn soon: within :data:`LINGER`."""
        if self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(LINGER, self._nudged)

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
        await self._exchange()
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
            if self._session.is_lost or self._holder != self._session.sid:
                await self._recover()
            elif self._is_to_report:
                await self._report_all()
            busy = await self._exchange(lease=True)
        except GenerationChanged:
            self._is_to_report = True
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

    async def _exchange(self, *, lease: bool = False) -> bool:
        """Push, settle, claim and lease in one pipeline; True: something came of it."""
        begun: list[Coroutine[Any, Any, Any] | None] = [
            self._push.begin(lambda: self._owner.outgoing(BATCH) or None),
            self._settle.begin(lambda: self._ledger.take_outbox(BATCH) or None),
        ]
        if lease:
            begun.append(self._claim.begin(lambda: self._owner.asking(BATCH) or None))
            begun.append(self._lease.begin(self._owner.wanted))
        self._is_leasing = lease
        begin = time.monotonic()
        # A task for each lane that has nothing to say would cost more than all that the others say.
        replies = iter(await asyncio.gather(*filter(None, begun), return_exceptions=True))
        pushed, settled, *granting = [None if each is None else next(replies) for each in begun]
        self.turn_time += (time.monotonic() - begin - self.turn_time) / 4
        self._is_leasing = False
        if isinstance(pushed, tuple):
            self._pushed(*pushed)
        if isinstance(settled, tuple):
            self._settled(*settled)
        granted = self._granting(*granting) if lease else 0
        for result in (pushed, settled, *granting):
            if isinstance(result, BaseException):
                raise result
        return bool(pushed or settled or granted)

    def _granting(self, claimed: Any, leased: Any) -> int:
        """Take in the answers to a claim and a lease; return how many items came of them."""
        granted = 0
        # The later call first: an item that the claim was refused it may have been granted.
        if isinstance(leased, tuple):
            self._forget_old()
            _, (self.standing, grants) = leased
            granted += len(grants)
            if grants:
                self._owner.granted(grants)
        if isinstance(claimed, tuple):
            asks, claims = claimed
            entries = [ask.entry for ask, claim in zip(asks, claims, strict=True) if claim.answer is Answer.GRANTED]
            self._remember(entries, [])
            granted += len(entries)
            self._owner.claimed(asks, claims)
        return granted

    def _pushed(self, batch: list[Outgoing], replies: str) -> None:
        self._remember([outgoing.entry for outgoing in batch], [])
        for outgoing, reply in zip(batch, replies, strict=True):
            self._owner.pushed(outgoing, reply)

    def _settled(self, batch: list[Settled], replies: str) -> None:
        self._remember([], batch)
        for settled, reply in zip(batch, replies, strict=True):
            self._owner.settled(settled, reply)

    async def reclaim(self, sid: str) -> None:
        """Take what the session *sid*, which is over, still holds back into the backlog."""
        total, left = 0, 1
        while left > 0:
            moved, left = await self._scripts.reclaim(sid, deaths=self._deaths, policy=self._policy)
            total += moved
        self.reclaimed += total
        self._owner.reclaimed(sid, total)
        self.wake()

    # after a loss

    async def _recover(self) -> None:
        """Finish under the lost session what it had under way; open another and take back what nobody took."""
        if self._session.is_lost:
            if self._holder == self._session.sid:
                await self._finish_old()
            emptied = await was_emptied(self._scripts, self._session.sid, -self._session.confirmed_for)
            await self._session.open(self._scripts)
            asks = self._claim.forget()
            for lane in (self._push, self._settle, self._lease, self._report):
                lane.forget()
            if asks is not None:
                self._owner.claimed(asks, [Claim(Answer.CONTENDED)] * len(asks))
            logger.warning("Session %s was lost; this crawl goes on as %s", self._session.previous, self._session.sid)
            if emptied:
                logger.error(EMPTIED, self._scripts.channel.shown)
        await self._report_all()
        self._holder = self._session.sid

    async def _finish_old(self) -> None:
        while not (self._push.is_free and self._settle.is_free and not self._ledger.outbox):
            await self._answer_unanswered()
            settled = await self._settle.run(lambda: self._ledger.take_outbox(BATCH) or None)
            if settled is not None:
                self._settled(*settled)

    async def _answer_unanswered(self) -> None:
        pushed = await self._push.run(lambda: None)
        if pushed is not None:
            self._pushed(*pushed)
        settled = await self._settle.run(lambda: None)
        if settled is not None:
            self._settled(*settled)

    async def _report_all(self) -> None:
        """Say what this process holds; afterwards the store and the ledger agree.

        What is settled but not answered counts as held. After a restart of the server so does what it may have
        forgotten: requests are pushed again, and items whose end it does not know are held and settled once more.
        """
        changed = self._holder != self._session.sid
        if not changed:
            await self._answer_unanswered()
        over: list[Settled] = []
        if not changed or self._scripts.server_id != self._server_id:
            over = await self._push_again()
        settling = [*self._ledger.outbox, *over]
        known = [*self._ledger.leased, *(settled.hold for settled in settling)]
        reported = await self._report.run(lambda: [*known, *self._ledger.unleased(BATCH)])
        assert reported is not None
        fences = dict(zip(*reported, strict=True))
        own = [hold for hold in fences if not hold.fence]
        for hold, fence in fences.items():
            if fence and hold.fence:
                hold.fence, hold.epoch = fence, self._session.epoch
        self._ledger.outbox[:0] = [settled for settled in over if fences.get(settled.hold)]
        self._is_to_report = False
        if grants := [_grant(hold, fences[hold]) for hold in own if fences[hold]]:
            self._owner.granted(grants)
        held = [hold for hold in fences if hold not in own and not hold.is_settled]
        if changed:
            self._owner.regained([hold for hold in held if fences[hold]])
        self._owner.lost([hold for hold in held if not fences[hold]])

    async def _push_again(self) -> list[Settled]:
        """Push what the server may have forgotten; return the items that ended in that time."""
        recent = [part for part in self._recent if part[0] > self._answered - TAIL]
        over = [s for _, _, settled in recent for s in settled if s.verb in ("done", "rejected", "dead")]
        held = [*self._ledger.leased, *(settled.hold for settled in self._ledger.outbox)]
        again = [Entry(hold.digest, hold.slot, 0, hold.payload, hold.mark) for hold in held]
        again += [entry for _, entries, _ in recent for entry in entries]
        for first in range(0, len(again), BATCH):
            await self._scripts.push("", 0, again[first : first + BATCH])
        return over

    def _remember(self, entries: list[Entry], settled: list[Settled]) -> None:
        self._recent.append((time.monotonic(), entries, settled))

    def _forget_old(self) -> None:
        """The server is known to be the one it was: what it acknowledged long ago is in its file."""
        self._answered, self._server_id = time.monotonic(), self._scripts.server_id
        while self._recent and self._answered - self._recent[0][0] > TAIL:
            self._recent.popleft()

    # what the lanes send

    async def _send_push(self, sid: str, n: int, batch: list[Outgoing]) -> str:
        return await self._scripts.push(sid, n, [outgoing.entry for outgoing in batch])

    async def _send_settle(self, sid: str, n: int, batch: list[Settled]) -> str:
        return await self._scripts.settle(sid, n, [_settlement(settled) for settled in batch])

    async def _send_claim(self, sid: str, n: int, asks: list[Ask]) -> list[Claim]:
        return await self._scripts.claim(sid, n, [ask.entry for ask in asks])

    async def _send_lease(self, sid: str, n: int, ask: tuple[int, dict[str, int]]) -> tuple[Standing, list[Grant]]:
        want, rooms = ask
        return await self._scripts.lease(sid, n, want=want, rooms=rooms)

    async def _send_report(self, sid: str, n: int, holds: list[Hold]) -> list[int]:
        previous = self._holder if self._holder != sid else ""
        return await self._scripts.report(sid, n, [(hold.digest, hold.fence) for hold in holds], previous=previous)


def _grant(hold: Hold, fence: int) -> Grant:
    return Grant(hold.digest, fence, hold.attempts, hold.deaths, hold.slot, hold.mark, hold.payload)


def _settlement(settled: Settled) -> Settlement:
    return Settlement(settled.hold.digest, settled.hold.fence, settled.verb, settled.args)
