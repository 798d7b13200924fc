"""Pages that led on to other items when another host fetched them.

Each is fetched here too, once and without a lease, for what it leads to: its requests count, its items do not. Where
that fails it is tried again, as often as an item is.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from scrapy_lease.exceptions import PayloadError
from scrapy_lease.leases.items import Hold, Ledger, Look
from scrapy_lease.payload import Codec
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.ahead import Ahead, Candidate
from scrapy_lease.scheduler.intake import Identity, Intake

logger = logging.getLogger(__name__)


class Looks:
    """See the module's docstring.

    :ivar seen: digests (their first 8 bytes) of pages that led on and were fetched here.
    """

    def __init__(self, runtime: Runtime, ledger: Ledger, codec: Codec, intake: Intake, ahead: Ahead) -> None:
        self.seen: set[int] = set()
        self._runtime = runtime
        self._ledger = ledger
        self._codec = codec
        self._intake = intake
        self._ahead = ahead

    def __repr__(self) -> str:
        return f"<Looks: {len(self.seen)} pages that led on>"

    def has_seen(self, digest: bytes) -> None:
        """The page of an item was fetched here, and led on."""
        self.seen.add(_short(digest))

    def has_not_seen(self, digest: bytes) -> None:
        """It was not fetched after all."""
        self.seen.discard(_short(digest))

    def first(self, candidate: Candidate) -> Look | None:
        """Return what this host holds to look at a page that led on; None: it has fetched it."""
        entry = candidate.entry
        if _short(entry.digest) in self.seen:
            return None
        self.has_seen(entry.digest)
        epoch = self._runtime.session.epoch
        return Look(entry.digest, 0, epoch, entry.slot, entry.mark, entry.payload, candidate.attempts)

    def failed(self, look: Look) -> None:
        """Where the page of another leads to must be seen, as often as an item is tried."""
        candidate = self._candidate_of(look)
        allowed, failures = self._runtime.settings.item_attempts, look.attempts + 1
        if candidate is None or failures >= allowed:
            logger.error(
                "A page that led on when another host fetched it failed here %d times (LEASE_ITEM_ATTEMPTS): what it "
                "leads to is left to others: %s: %s", failures, candidate.request if candidate else look, look.reason,
            )  # fmt: skip
            return
        self.has_not_seen(look.digest)
        candidate.attempts = failures
        self._ahead.add(candidate, self._ledger.patience.delay(failures))

    def ask_again(self, hold: Hold, wait: float | None) -> None:
        """Ask for an item by name again, after *wait* s: whether it led on shows only to who does."""
        candidate = self._candidate_of(hold)
        if candidate is not None:
            self._ahead.add(candidate, wait)

    def _candidate_of(self, hold: Hold) -> Candidate | None:
        with suppress(PayloadError):
            request = self._codec.decode(hold.payload)
            return Candidate(request, self._intake.entry(request, Identity(hold.digest, hold.mark)), times=1)
        return None


def _short(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")
