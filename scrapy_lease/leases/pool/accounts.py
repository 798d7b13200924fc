"""How the accounts of a pool are used, and what the store is told of that with each take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scrapy_lease.leases.pool.calendar import Calendar, Times

#: Permits that are granted at a time: what a process that dies had of them is counted as used.
SLICE = 10
#: Uses that the success rate needs.
LEAST = 20
#: Longest rest (s) of what was demoted.
LONGEST = 86400.0


@dataclass(frozen=True, slots=True)
class AccountOptions:
    """How the accounts of one pool are used; times in seconds.

    :param holders: sessions that may hold one at once; 0: any number.
    :param quota: requests sent with one in a local day; 0: any number.
    :param interval: between two uses of one.
    :param hours: local hours of work, see :func:`~.calendar.checked_hours`; "": always.
    :param timezone: whose days, hours and time of the refill count.
    :param min_success: success rate below which an account is demoted.
    :param slow: an answer is slow that takes longer than this, and than twice the median of the pool at that site.
    :param cooldown: for how long a slow account, or one that a site asks to wait, is left alone, and a demoted one at
        first.
    :param active: after which one that nobody uses is cold.
    :param refill: local time of the daily refill.
    :param waits_for_quota: a pool is of use whose accounts only wait for their next day, or their hours.
    """

    holders: int = 1
    quota: int = 0
    interval: float = 0.0
    hours: str = ""
    timezone: str = "UTC"
    min_success: float = 0.9
    slow: float = 2.0
    cooldown: float = 60.0
    active: float = 14400.0
    refill: str = "04:00"
    waits_for_quota: bool = False

    @property
    def calendar(self) -> Calendar:
        """A calendar of these days."""
        return Calendar(self.timezone, self.hours, self.refill)

    @property
    def has_purse(self) -> bool:
        """Does a use need a permit?"""
        return bool(self.quota or self.interval or self.hours)

    def terms(self, times: Times, more: tuple[tuple[str, int], ...]) -> Terms:
        """Return what the store is told; *more*: leases, as (id, fence), that need permits."""
        return Terms(
            self.holders, self.quota, round(self.interval * 1000), round(self.active * 1000), SLICE, times.days,
            times.open, more,
        )  # fmt: skip


class Terms(NamedTuple):
    """See :class:`AccountOptions`, and ``_account_take.lua``; times in ms."""

    holders: int
    quota: int
    interval: int
    active: int
    slice: int
    days: tuple[int, ...]
    open: tuple[tuple[int, int], ...]
    more: tuple[tuple[str, int], ...] = ()
