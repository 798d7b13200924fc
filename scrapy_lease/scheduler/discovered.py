"""What a node of the shared backlog discovers while the store is away: what it can fetch, and what has to wait.

=======================================================  =======================================================
a request that                                           waits here until
=======================================================  =======================================================
was found meanwhile, or whose push has no answer         the window has room for it; the best priority goes first
this process pushed or leased before, or believes so     the store is back: there it is safe, and somebody has it
=======================================================  =======================================================

The pages that led to any of them are not done before the store has answered for it.
"""

from __future__ import annotations

from collections.abc import Callable

from scrapy_lease.backlog.lanes import Outgoing
from scrapy_lease.leases.items import Ledger
from scrapy_lease.leases.window import Window
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.scheduler.unsafe import Found
from scrapy_lease.stats import Stats

#: Requests that are looked at in one turn.
LOOK = 300
#: Items that a process remembers at least; twice as many at most.
REMEMBERED = 500_000


class Discovered:
    """See the module's docstring.

    :param unanswered: gives the requests whose push was sent and has no answer.
    """

    def __init__(self, intake: Intake, ledger: Ledger, stats: Stats, unanswered: Callable[[], list[Outgoing]]) -> None:
        self._intake = intake
        self._ledger = ledger
        self._stats = stats
        self._unanswered = unanswered
        self._waiting: Window[Outgoing] = Window(0)
        self._later: list[Outgoing] = []
        #: Items met since the store went; those of them that may be in the backlog.
        self._met: set[bytes] = set()
        self._sent: set[bytes] = set()
        self._known = _Recent()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def __repr__(self) -> str:
        return f"<Discovered: {len(self._waiting)} to be fetched, {len(self._later)} for later>"

    def know(self, digest: bytes) -> None:
        """Remember an item that the store has, or had."""
        self._known.add(digest)

    def unleased(self, free: int, rooms: dict[str, int]) -> list[Found]:
        """Take up to *free* of what can be fetched, of each download slot in *rooms* no more than that."""
        self._gather()
        left, found = dict(rooms), []
        while len(found) < free:
            outgoing = self._waiting.take(lambda slot: left.get(slot, 1) > 0)
            if outgoing is None:
                break
            slot = outgoing.entry.slot
            left[slot] = left.get(slot, max(1, int(free * 0.75))) - 1
            found.append(Found(outgoing.entry, None, outgoing.parent))
        return found

    def kept(self) -> list[Outgoing]:
        """Take everything that was not fetched and is to be pushed: the store is back, or the crawl ends."""
        kept = [outgoing for outgoing in self._waiting.clear() if outgoing.entry.digest not in self._sent]
        kept += self._later
        self._later = []
        self._met.clear()
        self._sent.clear()
        return kept

    def _gather(self) -> None:
        if not self._met:
            for outgoing in self._unanswered():
                # Its own push answers for it to the page that led to it.
                self._sent.add(outgoing.entry.digest)
                self._sort(Outgoing(outgoing.entry, None), is_known=False)
        for outgoing in self._intake.outgoing(LOOK):
            self._sort(outgoing, is_known=outgoing.entry.digest in self._known)

    def _sort(self, outgoing: Outgoing, is_known: bool) -> None:
        entry = outgoing.entry
        if entry.digest in self._met or self._ledger.has(entry.digest):
            self._stats.count("items/duplicate")
            if outgoing.parent is not None:
                self._ledger.child_safe(outgoing.parent)
            return
        self._met.add(entry.digest)
        if is_known:
            self._later.append(outgoing)
        else:
            self._waiting.put(entry.slot, entry.priority, outgoing)


class _Recent:
    """Digests seen lately, by their first 8 bytes. What is forgotten, or taken for another, costs no item."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._old: set[int] = set()

    def __contains__(self, digest: bytes) -> bool:
        short = int.from_bytes(digest[:8], "big")
        return short in self._new or short in self._old

    def add(self, digest: bytes) -> None:
        self._new.add(int.from_bytes(digest[:8], "big"))
        if len(self._new) >= REMEMBERED:
            self._old, self._new = self._new, set()
