"""Permits that a process has: slices, each of which may be spent until its own moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: The part of a slice's window, and the most seconds, that it ends here before it ends on the server's clock.
GUARD_SHARE, GUARD = 0.05, 0.05
#: By how much the clocks of two hosts may run apart, as a part of what is left.
DRIFT = 0.001


@dataclass(slots=True)
class Slice:
    """Permits of one window; *ends*: clock time (s) from which none may be spent; *shard* -1: of no counter."""

    shard: int
    until: int
    ends: float
    permits: int


class Purse:
    """The slices of one limit on one key. A slice that is over is worth nothing: the store has forgotten it too.

    :param clock: the boot-time clock, in s.
    :ivar margin: seconds before its end from which on nothing of a slice is spent: it could arrive too late.
    """

    __slots__ = ("_clock", "_ends", "_slices", "_total", "margin")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.margin = 0.0
        self._clock = clock
        self._slices: list[Slice] = []
        #: Permits of all slices, and clock time (s) at which the first of them is over.
        self._total = 0
        self._ends = float("inf")

    def __repr__(self) -> str:
        return f"<Purse: {self.permits} permits>"

    @property
    def permits(self) -> int:
        """How many may be spent at this instant."""
        return self.at(self._clock())

    def at(self, now: float) -> int:
        """How many may be spent at clock time *now* (s), which no later call may go behind."""
        if now + self.margin >= self._ends:
            self._slices = [each for each in self._slices if each.ends > now + self.margin and each.permits]
            self._count()
        return self._total

    def add(self, slice_: Slice) -> None:
        """Take a slice in; of one window all that is known of its end is that it is no earlier."""
        if not slice_.permits or slice_.ends - self.margin <= self._clock():
            return
        for each in self._slices:
            if (each.shard, each.until) == (slice_.shard, slice_.until):
                each.permits += slice_.permits
                each.ends = max(each.ends, slice_.ends)
                break
        else:
            self._slices.append(slice_)
        self._slices.sort(key=lambda each: each.ends)
        self._count()

    def spend(self, permits: int) -> int:
        """Spend what there is for certain, :meth:`at` having been asked; what ends first goes first.

        :returns: how many are left.
        """
        self._total -= permits
        for each in self._slices:
            spent = min(permits, each.permits)
            each.permits -= spent
            permits -= spent
            if not permits:
                break
        return self._total

    def take_out(self, permits: int, shard: int) -> list[tuple[int, int]]:
        """Remove up to so many of one shard, those that last longest first; return (until, permits) of each slice."""
        taken = []
        for each in reversed(self._slices):
            number = min(permits, each.permits) if each.shard == shard else 0
            if number > 0:
                each.permits -= number
                permits -= number
                taken.append((each.until, number))
        self._count()
        return taken

    def of_shard(self, shard: int) -> int:
        """Return how many permits of one shard are left."""
        return sum(each.permits for each in self._slices if each.shard == shard)

    def _count(self) -> None:
        self._total = sum(each.permits for each in self._slices)
        self._ends = self._slices[0].ends if self._slices else float("inf")
