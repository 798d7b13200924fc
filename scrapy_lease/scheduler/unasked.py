"""What a host with a queue of its own can fetch while the store is away: what its queue gives, as ever.

Its duplicate filter knows what it came across. What another session had, or failed, before the store went stays aside;
so does what had been asked for and was not answered.
"""

from __future__ import annotations

from collections.abc import Callable

from scrapy_lease.backlog.lanes import Ask, Outgoing
from scrapy_lease.leases.items import Hold
from scrapy_lease.scheduler.ahead import Ahead, Candidate
from scrapy_lease.scheduler.unsafe import Found
from scrapy_lease.store.messages import Answer


class Unasked:
    """See the module's docstring.

    :param passes: takes a candidate that needs no lease, and tells whether it did.
    :param take: called with another that is fetched; True: the engine has its request, and goes on with it.
    :param again: lets an item be asked for by name until it is over: it may lead on.
    """

    def __init__(
        self,
        ahead: Ahead,
        passes: Callable[[Ask], bool],
        take: Callable[[Candidate], bool],
        again: Callable[[Hold], None],
    ) -> None:
        self._ahead = ahead
        self._passes = passes
        self._take = take
        self._again = again

    def __repr__(self) -> str:
        return f"<Unasked of {self._ahead}>"

    def unleased(self, free: int, rooms: dict[str, int]) -> list[Found]:
        """Take up to *free* of what can be fetched, of each download slot in *rooms* no more than that."""
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
        return []

    def given_up(self, found: Found, answer: Answer) -> Outgoing | None:
        """An item that was granted here is another's, or over: unless its page was seen here, ask for it by name."""
        if found.hold.open or not found.hold.has_ended_well:
            self._again(found.hold)
        return None
