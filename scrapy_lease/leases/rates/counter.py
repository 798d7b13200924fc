"""One limit on one key, as one process uses it: what it has of the window, what it wants, when to ask for more.

Each shard of the counter has a lane of numbered calls. A call without an answer is repeated as it was; numbers go on
over sessions, so that the store can tell what it has forgotten.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from scrapy_lease.leases.rates.slices import DRIFT, GUARD, GUARD_SHARE, Purse, Slice
from scrapy_lease.leases.rates.words import CounterName, Granted, Limit, RateAsk, RateOptions

#: Seconds for which a server may not have kept what it answered.
RECENT = 3.0
#: Seconds over which use is averaged, and for which permits are asked for ahead.
MEMORY, AHEAD = 1.0, 0.5
#: Seconds of use that must be at hand: as long as asking for more may take.
LOW = 0.1
#: ms of a window in which what nobody needs is not worth a call.
SHORT = 2000
#: Parts of a sliding window; see ``_sliding.lua``.
SLOTS = 40
#: Seconds between looks whether others have given back: at least, at most.
SOONEST, LATEST = 0.02, 5.0
#: Most seconds, and at most a hundredth of the window, by which not all ask at once when one begins.
JITTER = 0.02
#: Seconds before a new server is asked again.
GRACE = 0.25


class Lane:
    """The calls to one shard: at most one is under way."""

    __slots__ = ("full_until", "is_busy", "must_tell", "n", "next_try", "recent", "sid", "slots", "unanswered")

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


class Counter:
    """See the module's docstring.

    :param home: the shard that is asked first.
    :param number: gives the numbers of calls, ever greater ones.
    :param clock: the boot-time clock, in s.
    :ivar reserved: permits for requests that are on their way to be sent.
    :ivar wanted: permits that requests at hand want, those with a reservation aside.
    """

    def __init__(
        self, name: CounterName, limit: Limit, options: RateOptions, home: int, number: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.name = name
        self.limit = limit
        self.purse = Purse(clock)
        self.reserved = self.wanted = 0
        self.lanes = [Lane() for _ in range(options.shards)]
        #: Clock time (s) at which it was used or wanted last.
        self.used = clock()
        self._options = options
        self._home = home % options.shards
        self._number = number
        self._clock = clock
        self._minted_until = float("-inf")
        self._rate = 0.0
        self._rated = self.used

    def __repr__(self) -> str:
        return f"<Counter {self.name.name} {self.limit.permits}/{self.limit.window} ms: {self.purse}>"

    @property
    def rate(self) -> float:
        """Permits spent in a second, of late."""
        return self._rate * math.exp((self._rated - self._clock()) / MEMORY)

    @property
    def opens_in(self) -> float:
        """Seconds after which there may be permits again; 0: any moment."""
        return max(0.0, min(lane.full_until for lane in self.lanes) - self._clock())

    def has(self, permits: int) -> bool:
        """Are so many here, besides those that are reserved?"""
        return self.purse.permits - self.reserved >= permits

    def spend(self, permits: int) -> None:
        """Spend permits that are here for certain."""
        now = self._clock()
        self.purse.spend(permits)
        self._rate = self.rate + permits / MEMORY
        self._rated = self.used = now

    @property
    def is_low(self) -> bool:
        """Is there less than what is spent while more is asked for?"""
        return self.purse.permits - self.reserved <= self.rate * LOW

    def mint(self, permits: int) -> None:
        """Take permits that no store granted, once in a window by this host's clock."""
        now = self._clock()
        if now >= self._minted_until:
            self._minted_until = now + self.limit.window / 1000
            self.purse.add(Slice(-1, 0, self._minted_until, permits))

    # what is to be asked

    def due(self) -> int | None:
        """Return the shard to ask now, None for none."""
        now, lanes = self._clock(), self.lanes
        for shard, lane in enumerate(lanes):
            if (lane.unanswered is not None or lane.must_tell) and not lane.is_busy and lane.next_try <= now:
                return shard
        if self._missing() <= 0 or any(lane.is_busy for lane in lanes):
            return None
        order = ((self._home + step) % len(lanes) for step in range(len(lanes)))
        return next((shard for shard in order if lanes[shard].next_try <= now), None)

    def due_in(self) -> float:
        """Return the seconds after which :meth:`due` may change by itself."""
        waiting = [lane.next_try for lane in self.lanes if lane.unanswered is not None and not lane.is_busy]
        if not any(lane.is_busy for lane in self.lanes) and self._missing() > 0:
            waiting += [lane.next_try for lane in self.lanes]
        return min(waiting, default=float("inf")) - self._clock()

    def ask(self, shard: int, days: tuple[int, ...]) -> RateAsk:
        """Return the call to make of a shard; it is under way until :meth:`answered` or :meth:`failed`."""
        return self.lanes[shard].make(self._call(shard, days, want=max(0, self._missing())), self._number)

    def give_back(self, shard: int, days: tuple[int, ...], *, keep: int = 0) -> RateAsk | None:
        """Return the call that gives back what a shard gave, all but *keep* of what is here; None: there is nothing."""
        lane = self.lanes[shard]
        surplus = self.purse.permits - self.reserved - keep
        if lane.is_busy or lane.unanswered is not None or surplus <= 0 or not self.purse.of_shard(shard):
            return None
        return lane.make(self._call(shard, days, back=self.purse.take_out(surplus, shard)), self._number)

    @property
    def need(self) -> int:
        """Permits that will be needed soon."""
        ahead = min(AHEAD, self.limit.window / 1000)
        return max(self.wanted, math.ceil(self.rate * ahead - 0.5))

    @property
    def surplus(self) -> int:
        """Permits here that nobody will need soon; 0 where they end soon."""
        return self.purse.permits - self.reserved - self.need if self.limit.window > SHORT else 0

    @property
    def is_idle(self) -> bool:
        """Is nothing here, on its way, or expected?"""
        return not (self.reserved or self.wanted or self.is_calling or self.purse.permits)

    @property
    def is_calling(self) -> bool:
        """Is a call under way, or to be repeated?"""
        return any(lane.is_busy or lane.unanswered is not None or lane.must_tell for lane in self.lanes)

    # what was told

    def answered(self, shard: int, asked: float, granted: Granted) -> None:
        """Take in the answer to the call of a shard that was sent at clock time *asked* (s)."""
        lane, now = self.lanes[shard], self._clock()
        ask, lane.unanswered, lane.is_busy = lane.unanswered, None, False
        assert ask is not None
        left = min(granted.left, 2 * self.limit.window) / 1000
        ends = asked + left - self._guard(left)
        lane.noted(now, granted)
        self.purse.add(Slice(shard, granted.until, ends, granted.permits))
        lane.slots = self._slots_for(now - asked)
        lane.full_until = float("-inf")
        if ask.want and ends <= now:
            # Nothing of this window is of use any more.
            lane.full_until = lane.next_try = asked + max(0.0, left) + 0.001
        elif granted.permits >= ask.want:
            lane.next_try = float("-inf")
        elif granted.is_grace:
            lane.next_try = now + GRACE
        elif granted.free > 0:
            lane.next_try = now + min(1.0, max(SOONEST, left / 8))
        else:
            jitter = random.uniform(0.001, max(0.001, min(JITTER, self.limit.window / 100_000)))
            lane.full_until = asked + granted.wait / 1000 + jitter
            lane.next_try = min(lane.full_until, now + min(LATEST, max(1.0, self.limit.window / 10_000)))

    def failed(self, shard: int, wait: float) -> None:
        """The call of a shard has no answer: it is repeated in *wait* s."""
        lane = self.lanes[shard]
        lane.is_busy = False
        lane.next_try = self._clock() + wait

    def _guard(self, left: float) -> float:
        part = left if self._options.algorithm == "sliding" else self.limit.window / 1000
        return min(GUARD, part * GUARD_SHARE) + max(0.0, left) * DRIFT

    def _slots_for(self, seconds: float) -> int:
        """Return after how many slots an answer that took so long is still of use: of half a window at most."""
        step = self.limit.window / 1000 / SLOTS
        return 1 + min(SLOTS // 2, int(1.5 * seconds / step))

    def _call(
        self, shard: int, days: tuple[int, ...], *, want: int = 0, back: Sequence[tuple[int, int]] = ()
    ) -> RateAsk:
        sliding = self.lanes[shard].slots if self._options.algorithm == "sliding" else 0
        return RateAsk(*self.limit, want, days, sliding, self._options.is_paced, back)

    def _missing(self) -> int:
        """Return how many permits to ask for: none while there are enough for as long as asking takes."""
        here = self.purse.permits - self.reserved
        if here > self.rate * LOW and here >= min(self.wanted, 1):
            return 0
        return min(self.need - here, self.limit.permits)
