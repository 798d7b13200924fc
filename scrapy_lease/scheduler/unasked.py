"""What a host with a queue of its own can fetch while the store is away: what its queue gives, as ever.

Its duplicate filter knows what it came across. What had been asked for and was not answered is fetched too: it may be
the one page that leads on. What another session had, or failed, before the store went stays aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scrapy_lease.backlog.lanes import Ask, Outgoing
from scrapy_lease.leases.items import Hold
from scrapy_lease.scheduler.ahead import Ahead, Candidate
from scrapy_lease.scheduler.found import Found
from scrapy_lease.store.messages import Answer, Entry, Grant


class Unasked:
    """See the module's docstring.

    :param asked: gives what was asked for and has no answer.
    :param passes: takes a candidate that needs no lease, and tells whether it did.
    :param take: called with another that is fetched; True: the engine has its request, and goes on with it.
    :param again: lets an item be asked for by name until it is over: it may lead on.
    """

    def __init__(
        self,
        ahead: Ahead,
        asked: Callable[[], Iterable[Ask]],
        passes: Callable[[Ask], bool],
        take: Callable[[Candidate], bool],
        again: Callable[[Hold], None],
    ) -> None:
        self._ahead = ahead
        self._asked = asked
        self._passes = passes
        self._take = take
        self._again = again
        self._is_away = False

    def __repr__(self) -> str:
        return f"<Unasked of {self._ahead}>"

    def __len__(self) -> int:
        """Nothing waits here: it is in the queue."""
        return 0

    def pushed(self, entry: Entry, *, is_new: bool) -> None:
        """Nothing is noted: the queue knows what it came across."""

    def granted(self, grants: Sequence[Grant]) -> None:
        """Nothing is noted here either."""

    def unleased(self, free: int, rooms: dict[str, int]) -> list[Found]:
        """Take up to *free* of what can be fetched, of each download slot in *rooms* no more than that."""
        if not self._is_away:
            self._is_away = True
            self._ahead.renew(self._asked())
        self._ahead.fill()
        found = []
        for candidate in self._ahead.ask(free, rooms, free):
            assert isinstance(candidate, Candidate)
            if self._passes(candidate):
                continue
            if candidate.times:
                self._ahead.put_aside(candidate)
            else:
                self._ahead.drop(candidate.entry.digest)
                found.append(Found(candidate.entry, candidate.request, None, self._take(candidate)))
        return found

    def kept(self, everything: bool) -> list[Outgoing]:
        """Nothing is pushed: what was not fetched is in the queue."""
        self._is_away = False
        return []

    def given_up(self, found: Found, answer: Answer) -> Outgoing | None:
        """An item that was granted here is another's, or over: unless its page was seen here, ask for it by name."""
        if found.hold.open or not found.hold.has_ended_well:
            self._again(found.hold)
        return None
