"""The numbered calls of one process to one shard of a counter, and when the next is worth making."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from scrapy_lease.leases.rates.words import Granted, RateAsk

#: Seconds for which a server may not have kept what it answered.
RECENT = 3.0


class Lane:
    """See the module's docstring: at most one call is under way. Without an answer it is repeated as it was."""

    __slots__ = (
        "ends", "full_until", "is_busy", "must_tell", "n", "next_try", "recent", "reopens", "sid", "slots",
        "unanswered",
    )  # fmt: skip

    def __init__(self) -> None:
        self.n = 0
        #: Of the last call: the session that made it.
        self.sid = ""
        self.unanswered: RateAsk | None = None
        self.is_busy = False
        #: Is the server another one, which may have forgotten what was granted lately?
        self.must_tell = False
        #: (moment, n, until, permits) of what was granted within the last seconds before the last answer.
        self.recent: deque[tuple[float, int, int, int]] = deque()
        #: Clock times (s): from which on asking may give something; until which there is nothing.
        self.next_try = self.full_until = float("-inf")
        #: Clock times (s): at which the window of the last answer ends, at which there is another for certain.
        self.ends = self.reopens = float("-inf")
        #: After the present one, for which a sliding slice is asked for: as many as an answer takes.
        self.slots = 1

    def make(self, ask: RateAsk, number: Callable[[], int]) -> RateAsk:
        """Return the next call, or the one that is to be repeated; it is under way."""
        self.is_busy, self.must_tell = True, False
        if self.unanswered is None:
            self.n = number()
            self.unanswered = replace(ask, recent=[row[1:] for row in self.recent])
        return self.unanswered

    def noted(self, now: float, granted: Granted) -> None:
        """Keep in mind what was granted now: what was granted long before an answer is safe in the store."""
        while self.recent and self.recent[0][0] < now - RECENT:
            self.recent.popleft()
        if granted.permits:
            self.recent.append((now, self.n, granted.until, granted.permits))

    def opens_at(self, now: float, margin: float) -> float:
        """Return the clock time (s) from which on asking may give something.

        :param margin: seconds before the end of a window in which its permits are of no use any more.
        """
        is_shut = self.ends - margin <= now < self.reopens
        return max(self.next_try, self.reopens) if is_shut else self.next_try

    def full_at(self, now: float, margin: float) -> float:
        """Return the clock time (s) until which there is nothing for certain."""
        is_shut = self.ends - margin <= now < self.reopens
        return max(self.full_until, self.reopens) if is_shut else self.full_until
