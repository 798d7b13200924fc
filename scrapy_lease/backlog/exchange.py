"""What one turn of the backlog says to the store, and hears: pushed, settled, claimed and leased in one pipeline.

Each verb has a lane of its own, so a call that got no answer is repeated as the same call. What was acknowledged within
the last seconds is remembered, for a server that comes back without it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

from scrapy_lease.backlog.lanes import Ask, Outgoing, Owner
from scrapy_lease.leases.items import Ledger, Settled
from scrapy_lease.leases.lanes import Lane
from scrapy_lease.leases.session import Session
from scrapy_lease.store.scripts import Answer, Claim, Entry, Grant, Scripts, Settlement, Standing

#: Most entries and settlements of one call: some milliseconds of the server's time.
BATCH = 300
#: Seconds of acknowledged writes that a server which syncs its file every second may have lost when it comes back.
TAIL = 3.0


class Exchange:
    """See the module's docstring.

    :ivar standing: how the run stood when a lease call was answered last.
    :ivar turn_time: seconds that a turn takes, averaged over the last few.
    :ivar is_leasing: is a call under way that fills the window?
    :ivar server_id: of the server that answered a lease call last.
    """

    def __init__(self, scripts: Scripts, session: Session, ledger: Ledger, owner: Owner) -> None:
        self.standing: Standing | None = None
        self.turn_time = 0.0
        self.is_leasing = False
        self.server_id = ""
        self._scripts = scripts
        self._ledger = ledger
        self._owner = owner
        self._push: Lane[list[Outgoing], str] = Lane("push", session, self._send_push)
        self._settle: Lane[list[Settled], str] = Lane("settle", session, self._send_settle)
        self._claim: Lane[list[Ask], list[Claim]] = Lane("claim", session, self._send_claim)
        self._lease: Lane[tuple[int, dict[str, int]], tuple[Standing, list[Grant]]] = Lane(
            "lease", session, self._send_lease
        )
        self._recent: deque[tuple[float, list[Entry], list[Settled]]] = deque()
        self._answered = 0.0

    def __repr__(self) -> str:
        return f"<Exchange{'' if self.is_clear else ' under way'}>"

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

    async def run(self, *, lease: bool = False) -> bool:
        """Push, settle, claim and lease in one pipeline; True: something came of it."""
        begun: list[Coroutine[Any, Any, Any] | None] = [
            self._push.begin(lambda: self._owner.outgoing(BATCH) or None),
            self._settle.begin(lambda: self._ledger.take_outbox(BATCH) or None),
        ]
        if lease:
            begun.append(self._claim.begin(lambda: self._owner.asking(BATCH) or None))
            begun.append(self._lease.begin(self._owner.wanted))
        self.is_leasing = lease
        begin = time.monotonic()
        # A task for each lane that has nothing to say would cost more than all that the others say.
        replies = iter(await asyncio.gather(*filter(None, begun), return_exceptions=True))
        pushed, settled, *granting = [None if each is None else next(replies) for each in begun]
        self.turn_time += (time.monotonic() - begin - self.turn_time) / 4
        self.is_leasing = False
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

    async def repeat(self) -> None:
        """Make the push and the settlement that got no answer once more."""
        pushed = await self._push.run(lambda: None)
        if pushed is not None:
            self._pushed(*pushed)
        settled = await self._settle.run(lambda: None)
        if settled is not None:
            self._settled(*settled)

    async def settle_all(self) -> None:
        """Settle what is over until nothing is left; what was pushed is answered then, too."""
        while not self.is_clear:
            await self.repeat()
            settled = await self._settle.run(lambda: self._ledger.take_outbox(BATCH) or None)
            if settled is not None:
                self._settled(*settled)

    def forget(self) -> None:
        """The session is another one: what was under way is void, and what was claimed is contended."""
        asks = self._claim.forget()
        for lane in (self._push, self._settle, self._lease):
            lane.forget()
        if asks is not None:
            self._owner.claimed(asks, [Claim(Answer.CONTENDED)] * len(asks))

    def lately(self) -> tuple[list[Entry], list[Settled]]:
        """Return what was acknowledged in the last seconds before the server was heard of last."""
        recent = [part for part in self._recent if part[0] > self._answered - TAIL]
        entries = [entry for _, entries, _ in recent for entry in entries]
        return entries, [settled for _, _, batch in recent for settled in batch]

    def _remember(self, entries: list[Entry], settled: list[Settled]) -> None:
        self._recent.append((time.monotonic(), entries, settled))

    def _forget_old(self) -> None:
        """The server is known to be the one it was: what it acknowledged long ago is in its file."""
        self._answered, self.server_id = time.monotonic(), self._scripts.server_id
        while self._recent and self._answered - self._recent[0][0] > TAIL:
            self._recent.popleft()

    async def _send_push(self, sid: str, n: int, batch: list[Outgoing]) -> str:
        return await self._scripts.push(sid, n, [outgoing.entry for outgoing in batch])

    async def _send_settle(self, sid: str, n: int, batch: list[Settled]) -> str:
        return await self._scripts.settle(sid, n, [_settlement(settled) for settled in batch])

    async def _send_claim(self, sid: str, n: int, asks: list[Ask]) -> list[Claim]:
        return await self._scripts.claim(sid, n, [ask.entry for ask in asks])

    async def _send_lease(self, sid: str, n: int, ask: tuple[int, dict[str, int]]) -> tuple[Standing, list[Grant]]:
        want, rooms = ask
        return await self._scripts.lease(sid, n, want=want, rooms=rooms)


def _settlement(settled: Settled) -> Settlement:
    return Settlement(settled.hold.digest, settled.hold.fence, settled.verb, settled.args)
