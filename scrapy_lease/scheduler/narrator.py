"""What the log says of a crawl at INFO and above: who joins what, what waits, what died, how it ended."""

from __future__ import annotations

import logging

from scrapy_lease.leases.items import Settled
from scrapy_lease.payload import describe
from scrapy_lease.runtime import Runtime
from scrapy_lease.store.messages import Standing

logger = logging.getLogger(__name__)


class Narrator:
    """Tells each thing once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_standing_still = False

    def opened(self) -> None:
        """The session is open and begins to work."""
        session = self._runtime.session
        logger.info(
            "Session %s of node %s joins run %d of job %s in the store %s; live sessions: %d",
            session.sid, session.node, session.run, self._runtime.scope.name, self._runtime.shown, session.live,
        )  # fmt: skip

    def taken_over(self, sid: str, moved: int) -> None:
        """What a session that is over held is back in the backlog."""
        if moved and sid == self._runtime.session.sid:
            logger.info("Gave back %d items that this session still held as it closed", moved)
        elif moved:
            logger.info("Took back %d items of session %s, which is over", moved, sid)

    def died(self, settled: Settled) -> None:
        """An item went to the dead letters."""
        args = settled.args
        reason = args[0] if settled.verb == "dead" else args[2]
        logger.warning(
            "An item went to the dead letters (%s): %s; 'scrapy-lease items dead' shows it, 'items retry' feeds it",
            reason, describe(settled.hold.payload)["url"],
        )  # fmt: skip

    def stands(self, standing: Standing) -> None:
        """The run stands so."""
        stands_still = standing.delayed > 0 and standing.ready == 0 and standing.leased == 0
        if stands_still and not self._is_standing_still:
            logger.info(
                "Nothing is ready: %d failed items wait to be tried again, the next for %.0f s (LEASE_ITEM_BACKOFF)",
                standing.delayed, standing.due / 1000,
            )  # fmt: skip
        self._is_standing_still = stands_still

    def closed(self) -> None:
        """The crawl has ended here."""
        stats = self._runtime.stats
        counted = (stats.get(f"items/{name}") for name in ("leased", "done", "rejected", "failed", "dead", "duplicate"))
        logger.info(
            "Items leased by this session: %d; done: %d, rejected: %d, faults: %d, dead: %d; known before: %d",
            *counted,
        )
        if stats.get("queue/popped") and stats.get("items/duplicate"):
            logger.info(
                "What is known from this run or an earlier one is not fetched again: a new LEASE_RUN is a pass of its "
                "own, and 'scrapy-lease items forget' forgets what is done"
            )
