"""One limit on one key, as one process uses it: what it has of the window, what it wants, when to ask for more.

Each shard of the counter has a lane of numbered calls. A call without an answer is repeated as it was; numbers go on
over sessions, so that the store can tell what it has forgotten.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from scrapy_lease.leases.rates.lanes import Lane
from scrapy_lease.leases.rates.slices import DRIFT, GUARD, GUARD_SHARE, Purse, Slice
from scrapy_lease.leases.rates.words import CounterName, Granted, Limit, RateAsk, RateOptions

#: Seconds over which use is averaged; at most so many seconds of it are added up before.
MEMORY, FOLD = 1.0, 0.05
#: Seconds of use for which permits are asked for ahead: where they are short, and where most of them are nobody's.
AHEAD, FAR_AHEAD = 0.5, 2.0
#: Seconds of use that must be at hand: as long as asking for more may take.
LOW = 0.1
#: The part of what is needed that, being here, is not worth adding to a pipeline that leaves anyway.
FULL = 0.75
#: The part of the guard that is kept where most permits are nobody's, so that what arrives late finds room; below how
#: many permits a limit has no such room: one that came late would be felt.
LOOSE, MANY = 0.1, 100
#: The most of a window that it ends earlier here because this process is slow to send.
SLOW_SHARE = 0.25
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
        #: Were most permits nobody's when it was answered last?
        self._is_plenty = False
        #: Permits spent in a second, as of a moment; those spent since; how few are too few.
        self._rate = 0.0
        self._rated = self.used
        self._fresh = 0
        self._low = 0.0
        self.hurry(0.0)

    def __repr__(self) -> str:
        return f"<Counter {self.name.name} {self.limit.permits}/{self.limit.window} ms: {self.purse}>"

    @property
    def rate(self) -> float:
        """Permits spent in a second, of late."""
        self._fold(self._clock())
        return self._rate

    @property
    def opens_in(self) -> float:
        """Seconds after which there may be permits again; 0: any moment."""
        now, margin = self._clock(), self.purse.margin
        return max(0.0, min(lane.full_at(now, margin) for lane in self.lanes) - now)

    def has(self, permits: int) -> bool:
        """Are so many here, besides those that are reserved?"""
        return self.purse.permits - self.reserved >= permits

    def spend(self, permits: int, now: float) -> bool:
        """Spend, at clock time *now* (s), permits that are here for certain; are there few left?

        Few is what is spent while more is asked for.
        """
        left = self.purse.spend(permits)
        self.used = now
        self._fresh += permits
        if now - self._rated > FOLD:
            self._fold(now)
        return left - self.reserved <= self._low

    def hurry(self, late: float) -> None:
        """What is sent now leaves so many seconds late: permits are of use the less long."""
        if self._options.algorithm == "sliding":
            return
        window = self.limit.window / 1000
        guard = min(GUARD, window * GUARD_SHARE)
        self.purse.margin = guard * LOOSE if self._is_plenty else max(guard, min(late, window * SLOW_SHARE))

    def mint(self, permits: int) -> None:
        """Take permits that no store granted, once in a window by this host's clock."""
        now = self._clock()
        if now >= self._minted_until:
            self._minted_until = now + self.limit.window / 1000
            self.purse.add(Slice(-1, 0, self._minted_until, permits))

    # what is to be asked

    def due(self, *, rides: bool = False) -> int | None:
        """Return the shard to ask now, None for none.

        :param rides: others are asked now anyway, so it may be a little early.
        """
        now, lanes, margin = self._clock(), self.lanes, self.purse.margin
        for shard, lane in enumerate(lanes):
            if (lane.unanswered is not None or lane.must_tell) and not lane.is_busy and lane.next_try <= now:
                return shard
        if self._missing(rides) <= 0 or any(lane.is_busy for lane in lanes):
            return None
        order = ((self._home + step) % len(lanes) for step in range(len(lanes)))
        return next((shard for shard in order if lanes[shard].opens_at(now, margin) <= now), None)

    def due_in(self) -> float:
        """Return the seconds after which :meth:`due` may change by itself."""
        now, margin = self._clock(), self.purse.margin
        waiting = [lane.next_try for lane in self.lanes if lane.unanswered is not None and not lane.is_busy]
        if not any(lane.is_busy for lane in self.lanes) and self._missing() > 0:
            waiting += [lane.opens_at(now, margin) for lane in self.lanes]
        return min(waiting, default=float("inf")) - now

    def ask(self, shard: int, days: tuple[int, ...]) -> RateAsk:
        """Return the call to make of a shard; it is under way until :meth:`answered` or :meth:`failed`."""
        return self.lanes[shard].make(self._call(shard, days, want=max(0, self._missing(True))), self._number)

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
        ahead = FAR_AHEAD if self._is_plenty else min(AHEAD, self.limit.window / 1000)
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

    def answered(self, shard: int, asked: float, granted: Granted, late: float = 0.0) -> None:
        """Take in the answer to the call of a shard that was sent at clock time *asked* (s).

        :param late: seconds by which this process is slow to send.
        """
        lane, now = self.lanes[shard], self._clock()
        ask, lane.unanswered, lane.is_busy = lane.unanswered, None, False
        assert ask is not None
        self._is_plenty = granted.free * 2 * len(self.lanes) >= self.limit.permits >= MANY
        self.hurry(late)
        left = min(granted.left, 2 * self.limit.window) / 1000
        ends = asked + left - self._drift(left)
        lane.noted(now, granted)
        self.purse.add(Slice(shard, granted.until, ends, granted.permits))
        lane.slots = self._slots_for(now - asked)
        lane.full_until = float("-inf")
        if self._options.algorithm == "fixed":
            lane.ends, lane.reopens = ends, asked + max(0.0, left) + random.uniform(0.001, 0.002)
        if ask.want and ends - self.purse.margin <= now:
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

    def _drift(self, left: float) -> float:
        """Return the seconds by which a slice ends here before it does on the server's clock, which may run faster.

        Of a sliding limit each slice has a guard of its own; of a fixed one it is the purse's margin.
        """
        drift = max(0.0, left) * DRIFT
        return drift + min(GUARD, left * GUARD_SHARE) if self._options.algorithm == "sliding" else drift

    def _slots_for(self, seconds: float) -> int:
        """Return after how many slots an answer that took so long is still of use: of half a window at most."""
        step = self.limit.window / 1000 / SLOTS
        return 1 + min(SLOTS // 2, int(1.5 * seconds / step))

    def _call(
        self, shard: int, days: tuple[int, ...], *, want: int = 0, back: Sequence[tuple[int, int]] = ()
    ) -> RateAsk:
        sliding = self.lanes[shard].slots if self._options.algorithm == "sliding" else 0
        return RateAsk(*self.limit, want, days, sliding, self._options.is_paced, back)

    def _missing(self, rides: bool = False) -> int:
        """Return how many permits to ask for: none while there are enough for as long as asking takes."""
        here, need = self.purse.permits - self.reserved, self.need
        if here >= min(self.wanted, 1) and here > (need * FULL if rides else self._low):
            return 0
        return min(need - here, self.limit.permits)

    def _fold(self, now: float) -> None:
        """Add up what was spent since the last time."""
        self._rate = self._rate * math.exp((self._rated - now) / MEMORY) + self._fresh / MEMORY
        self._rated, self._fresh = now, 0
        self._low = self._rate * LOW
