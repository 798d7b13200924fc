"""What a node of the shared backlog can fetch while the store is away, and what of it has to wait.

==================================================  ============================================================
a request that                                      is fetched, or waits here until
==================================================  ============================================================
was found meanwhile, or whose push has no answer    the window has room for it; the best priority goes first
this process pushed lately, as far as it may be     the window has room, and there is nothing of the former; the
pending still                                       last one pushed goes first
was found meanwhile, and this process believes to   the store is back: there it is safe, and somebody has it
have pushed or leased it before
==================================================  ============================================================

The pages that led to any of them are not done before the store has answered for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scrapy_lease.backlog.lanes import Outgoing
from scrapy_lease.leases.items import Ledger
from scrapy_lease.leases.window import Window
from scrapy_lease.scheduler.found import Found
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.stats import Stats
from scrapy_lease.store.messages import Answer, Entry, Grant

#: Requests that are looked at in one turn.
LOOK = 300
#: Requests that are kept after their push was accepted.
SPARE = 2000
#: Items that a process remembers at least; twice as many at most.
REMEMBERED = 500_000


class Discovered:
    """See the module's docstring.

    :param unanswered: gives the requests whose push was sent and has no answer.
    :param pending: tells how many of the requests that this process pushed last may still be pending.
    """

    def __init__(
        self,
        intake: Intake,
        ledger: Ledger,
        stats: Stats,
        unanswered: Callable[[], list[Outgoing]],
        pending: Callable[[], int],
    ) -> None:
        self._intake = intake
        self._ledger = ledger
        self._stats = stats
        self._unanswered = unanswered
        self._pending = pending
        self._waiting: Window[Outgoing] = Window(0)
        self._later: list[Outgoing] = []
        #: Items met since the store went; those of them that may be in the backlog.
        self._met: set[bytes] = set()
        self._sent: set[bytes] = set()
        self._known = _Recent()
        self._spare: dict[bytes, Entry] = {}
        self._is_away = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def __repr__(self) -> str:
        return f"<Discovered: {len(self)} waiting, {len(self._later)} of them for later, {len(self._spare)} to spare>"

    def pushed(self, entry: Entry, *, is_new: bool) -> None:
        """Remember an item that is in the store; *is_new*: it was not before."""
        if entry.mark != "none":
            self._known.add(entry.digest)
        if is_new:
            self._spare[entry.digest] = entry
            if len(self._spare) > SPARE:
                del self._spare[next(iter(self._spare))]

    def granted(self, grants: Sequence[Grant]) -> None:
        """Remember items that are leased here."""
        for grant in grants:
            self._spare.pop(grant.digest, None)
            if grant.mark != "none":
                self._known.add(grant.digest)

    def unleased(self, free: int, rooms: dict[str, int]) -> list[Found]:
        """Take up to *free* of what can be fetched, of each download slot in *rooms* no more than that."""
        if not self._is_away:
            self._is_away = True
            self._begin()
        for outgoing in self._intake.outgoing(LOOK):
            self._sort(outgoing, is_known=outgoing.entry.digest in self._known)
        left, found = dict(rooms), list[Found]()
        while len(found) < free:
            following = self._waiting.take(lambda slot: left.get(slot, 1) > 0) or self._next_spare(left)
            if following is None:
                break
            slot = following.entry.slot
            left[slot] = left.get(slot, max(1, int(free * 0.75))) - 1
            found.append(Found(following.entry, None, following.parent))
        return found

    def kept(self, everything: bool) -> list[Outgoing]:
        """Take what was not fetched and is to be pushed: the store is back, or the crawl ends.

        :param everything: also what the store had before it went.
        """
        kept = [outgoing for outgoing in self._waiting.clear() if outgoing.entry.digest not in self._sent]
        kept += self._later
        if everything:
            kept += [Outgoing(entry, None) for entry in self._spare.values()]
            self._spare.clear()
        self._later = []
        self._met.clear()
        self._sent.clear()
        self._is_away = False
        return kept

    def given_up(self, found: Found, answer: Answer) -> Outgoing | None:
        """An item that was granted here is another's, or over; return what is to be pushed, in case it is free now."""
        return Outgoing(found.entry, found.parent) if answer is Answer.CONTENDED else None

    def _begin(self) -> None:
        for outgoing in self._unanswered():
            # Its own push answers for it to the page that led to it.
            self._sent.add(outgoing.entry.digest)
            self._sort(Outgoing(outgoing.entry, None), is_known=False)
        pending = self._pending()
        self._spare = dict(list(self._spare.items())[-pending:]) if pending else {}

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

    def _next_spare(self, left: dict[str, int]) -> Outgoing | None:
        if not self._spare:
            return None
        digest = next(reversed(self._spare))
        if left.get(self._spare[digest].slot, 1) <= 0:
            return None
        return Outgoing(self._spare.pop(digest), None)


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
