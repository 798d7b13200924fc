"""After a loss: what this process holds and what the store knows of it are brought to agree again.

A session is lost when the store says so. Then what was under way is finished under it, whose records still name it,
before another is opened and given back what nobody took. A server that restarted may have lost its last writes instead:
it is told what this process holds, and again what it had acknowledged lately.
"""

from __future__ import annotations

import logging

from scrapy_lease.backlog.exchange import BATCH, Exchange
from scrapy_lease.backlog.lanes import Owner
from scrapy_lease.leases.items import Hold, Ledger, Settled
from scrapy_lease.leases.lanes import Lane
from scrapy_lease.leases.session import Session
from scrapy_lease.store.emptied import EMPTIED, was_emptied
from scrapy_lease.store.scripts import Entry, Grant, Scripts

logger = logging.getLogger(__name__)


class Recovery:
    """See the module's docstring.

    :ivar is_to_report: has the server restarted, and not heard what this process holds?
    """

    def __init__(self, scripts: Scripts, session: Session, ledger: Ledger, owner: Owner, exchange: Exchange) -> None:
        self.is_to_report = False
        self._scripts = scripts
        self._session = session
        self._ledger = ledger
        self._owner = owner
        self._exchange = exchange
        self._report: Lane[list[Hold], list[int]] = Lane("report", session, self._send_report)
        #: The session that the records of our holds name.
        self._holder = session.sid

    def __repr__(self) -> str:
        return f"<Recovery of {self._holder}>"

    def start(self) -> None:
        """The session is open."""
        self._holder = self._session.sid

    async def run(self) -> None:
        """Do what is to be done before the next turn, mostly nothing. Store errors pass through."""
        if self._session.is_lost or self._holder != self._session.sid:
            await self._recover()
        elif self.is_to_report:
            await self._report_all()

    async def _recover(self) -> None:
        """Finish under the lost session what it had under way; open another and take back what nobody took."""
        if self._session.is_lost:
            if self._holder == self._session.sid:
                await self._exchange.settle_all()
            emptied = await was_emptied(self._scripts, self._session.sid, -self._session.confirmed_for)
            await self._session.open(self._scripts)
            self._exchange.forget()
            self._report.forget()
            logger.warning("Session %s was lost; this crawl goes on as %s", self._session.previous, self._session.sid)
            if emptied:
                logger.error(EMPTIED, self._scripts.channel.shown)
        await self._report_all()
        self._holder = self._session.sid

    async def _report_all(self) -> None:
        """Say what this process holds; afterwards the store and the ledger agree.

        What is settled but not answered counts as held. After a restart of the server so does what it may have
        forgotten: requests are pushed again, and items whose end it does not know are held and settled once more.
        """
        changed = self._holder != self._session.sid
        if not changed:
            await self._exchange.repeat()
        over: list[Settled] = []
        if not changed or self._scripts.server_id != self._exchange.server_id:
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
        self.is_to_report = False
        if grants := [_grant(hold, fences[hold]) for hold in own if fences[hold]]:
            self._owner.granted(grants)
        held = [hold for hold in fences if hold not in own and not hold.is_settled]
        if changed:
            self._owner.regained([hold for hold in held if fences[hold]])
        self._owner.lost([hold for hold in held if not fences[hold]])

    async def _push_again(self) -> list[Settled]:
        """Push what the server may have forgotten; return the items that ended in that time."""
        entries, settled = self._exchange.lately()
        held = [*self._ledger.leased, *(settled.hold for settled in self._ledger.outbox)]
        again = [Entry(hold.digest, hold.slot, 0, hold.payload, hold.mark) for hold in held] + entries
        for first in range(0, len(again), BATCH):
            await self._scripts.push("", 0, again[first : first + BATCH])
        return [each for each in settled if each.verb in ("done", "rejected", "dead")]

    async def _send_report(self, sid: str, n: int, holds: list[Hold]) -> list[int]:
        previous = self._holder if self._holder != sid else ""
        return await self._scripts.report(sid, n, [(hold.digest, hold.fence) for hold in holds], previous=previous)


def _grant(hold: Hold, fence: int) -> Grant:
    return Grant(hold.digest, fence, hold.attempts, hold.deaths, hold.slot, hold.mark, hold.payload)
