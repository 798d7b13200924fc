"""Permits to use a leased account: of a day, one after the other, within the hours of work.

A permit is *reserved* from the moment that a request gets its account, and spent at the instant that it is sent; what
is not sent gives it back. The store counted all permits as it granted them, so a process that dies has spent its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from scrapy_lease.leases.pool.accounts import SLICE, AccountOptions
from scrapy_lease.leases.session import boot_time

#: Seconds that permits end here before they end on the server's clock; the part of what is left by which clocks may
#: run apart.
GUARD, DRIFT = 0.05, 0.001
#: Part of an interval for which a permit is good that has a start of its own, see ``_account_take.lua``.
LATE = 0.25
#: Seconds after which permits are asked for again where there were none.
AGAIN = 1.0


class PermitsLike(Protocol):
    """Permits as the store grants them; see :class:`scrapy_lease.store.permits.Permits`. Times in ms."""

    @property
    def count(self) -> int | None: ...
    @property
    def start(self) -> int: ...
    @property
    def left(self) -> int | None: ...
    @property
    def day(self) -> int: ...
    @property
    def used(self) -> int: ...


class Purse:
    """The permits of one lease.

    :param asked: clock time (s) at which the store was asked for them.
    :param clock: the boot-time clock, in s.
    :ivar on_low: called when it may be time to ask for more.
    """

    __slots__ = (
        "_ask_at", "_clock", "_ends", "_interval", "_late", "_left", "_next", "_reserved", "_void", "day", "on_low",
        "used",
    )  # fmt: skip

    def __init__(
        self, options: AccountOptions, permits: PermitsLike, asked: float, clock: Callable[[], float] = boot_time
    ) -> None:
        # Where several hold an account, the store says when each may use it.
        self._interval = options.interval if options.holders == 1 else 0.0
        #: Seconds for which a permit is good from its start on, where each has its own; else 0.
        self._late = options.interval * LATE if options.holders != 1 else 0.0
        #: Permits whose time has passed.
        self._void = 0
        self._clock = clock
        self._left: int | None = None
        self._reserved = 0
        self._next = self._ask_at = float("-inf")
        self._ends: float | None = None
        self.day = self.used = 0
        self.on_low: Callable[[], None] = lambda: None
        self.add(permits, asked)

    def __repr__(self) -> str:
        return f"<Purse: {'any number' if self._left is None else self._left} left, {self._reserved} reserved>"

    def add(self, permits: PermitsLike, asked: float) -> None:
        """Take in what the store granted when it was asked at clock time *asked* (s); those of another day are void."""
        now = self._clock()
        if permits.day != self.day:
            self._void = 0
        if permits.count is None:
            self._left = None
        else:
            kept = self._left if self._left is not None and permits.day == self.day and not self.has_ended else 0
            self._left = kept + permits.count
        self.day, self.used = permits.day, permits.used
        self._ends = None if permits.left is None else asked + permits.left / 1000 * (1 - DRIFT) - GUARD
        if self._late or permits.start:
            # From the answer on: the server may have counted from any moment since it was asked.
            self._next = max(self._next, now + permits.start / 1000)
        self._ask_at = now + AGAIN if permits.count == 0 else float("-inf")

    @property
    def has_ended(self) -> bool:
        """Is the day of its permits over, or the time of work?"""
        return self._ends is not None and self._clock() >= self._ends

    @property
    def is_dry(self) -> bool:
        """Is nothing left, and did the store have nothing more?"""
        return self._left == 0 and not self._reserved and self._ask_at > self._clock()

    @property
    def places(self) -> int | None:
        """How many uses may begin now, None: any number."""
        if self.has_ended or self._next > self._clock() or self.is_late:
            return 0
        if self._interval:
            return 0 if self._reserved or self._left == 0 else 1
        return None if self._left is None else max(0, self._left - self._reserved)

    @property
    def may_send(self) -> bool:
        """May what is reserved be sent at this instant?"""
        return not self.has_ended and self._next <= self._clock() and not self.is_late

    @property
    def is_late(self) -> bool:
        """Has the time of its permit passed? Another has a start of its own."""
        return self._late > 0 and self._clock() > self._next + self._late

    @property
    def is_by_one(self) -> bool:
        """Is there one permit at a time, which is of use only if a request wants it just then?"""
        return self._late > 0

    @property
    def ready_in(self) -> float:
        """Seconds until a use may begin, as far as that is a matter of time."""
        return max(0.0, self._next - self._clock())

    def wants(self) -> bool:
        """Is it time to ask for more? After this it is asked for."""
        now = self._clock()
        if self.is_late and self._left and not self._reserved:
            self._void, self._left = self._void + self._left, 0
        low = 0 if self._late else SLICE // 2
        is_low = self._left is not None and self._left - (0 if self._late else self._reserved) <= low
        if now < self._ask_at or not (is_low or self.has_ended):
            return False
        self._ask_at = now + AGAIN
        return True

    def begin(self) -> None:
        """A use begins: it reserves a permit."""
        self._reserved += 1

    def sent(self) -> None:
        """What was reserved is sent."""
        self._reserved -= 1
        self._next = max(self._next, self._clock() + self._interval) if self._interval else self._next
        if self._left is not None:
            self._left -= 1
            if self._left - self._reserved <= SLICE // 2:
                self.on_low()

    def unused(self) -> None:
        """What was reserved was not sent."""
        self._reserved -= 1

    def rest(self) -> tuple[int, int, int]:
        """Return what goes back with the lease: ms until the account's next use, permits not spent, and their day."""
        unspent = 0 if self._left is None or self.has_ended else max(0, self._left) + self._void
        return round(self.ready_in * 1000 + 0.5) if self.ready_in else 0, unspent, self.day

    def told(self) -> tuple[int, int] | None:
        """Return what a new server is told: permits that were granted, to anybody, in that day."""
        return (self.used, self.day) if self._left is not None else None


def farewell_of(purse: Purse | None, verb: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with which a lease ends, its permits among them."""
    if purse is None or verb not in ("back", "cool", "demote"):
        return args
    delay, unspent, day = purse.rest()
    return (max(delay, *args), unspent, day) if verb == "back" else (*args, unspent, day)
