"""Local days, hours of work and moments of the daily refill, as moments that the server's clock is held against.

A local time is turned into a moment by the rules of its zone, so a day may have 23 or 25 hours. A time that a change of
clocks leaves out is taken as if they had not been changed; one that comes twice, for the first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import NamedTuple

from scrapy_lease.leases.rates.days import days_around, zone_of

#: Days before and after the one in which a clock is.
AROUND = 2
DAY = 24 * 60
_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?")

#: Begin and end of hours of work, in minutes of the local day; one that ends before it begins goes over midnight.
Hours = tuple[tuple[int, int], ...]


class Times(NamedTuple):
    """Moments around now, in ms: midnights; hours of work, as (from, to), none: always; of the daily refill."""

    days: tuple[int, ...]
    open: tuple[tuple[int, int], ...]
    marks: tuple[int, ...]


def checked_time(text: str) -> int:
    """Return a local time like ``4``, ``04:00`` or ``24:00`` in minutes; raise ValueError for anything else."""
    found = _TIME.fullmatch(text.strip())
    minutes = int(found[1]) * 60 + int(found[2] or 0) if found else -1
    if found is None or not 0 <= minutes <= DAY or int(found[2] or 0) > 59:
        raise ValueError(f"{text!r} is no time of day: write it like 4:30")
    return minutes


def checked_hours(text: str) -> Hours:
    """Return local hours like ``22-6`` or ``9-12:30, 14-18``, read; raise ValueError saying what is wrong."""
    windows = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        begin, dash, end = part.partition("-")
        if not dash:
            raise ValueError(f"{part!r} is no range of hours: write it like 22-6")
        window = checked_time(begin), checked_time(end)
        if window[0] in (window[1], DAY):
            raise ValueError(f"{part!r} has no hours in it; 0-24 is the whole day")
        windows.append(window)
    return tuple(windows)


class Calendar:
    """The days of one pool.

    :param timezone: a name of the IANA database.
    :param hours: see :func:`checked_hours`.
    :param refill: the local time of the daily refill, see :func:`checked_time`.
    :param clock: this host's clock, in s; the server's is what counts.
    """

    def __init__(
        self, timezone: str = "UTC", hours: str = "", refill: str = "04:00", clock: Callable[[], float] = time.time
    ) -> None:
        self._zone = zone_of(timezone)
        self._timezone = timezone
        self._hours = checked_hours(hours)
        self._refill = checked_time(refill)
        self._clock = clock
        #: ms by which the server's clock is ahead of this host's, as far as that is known to matter.
        self._ahead = 0.0

    def __repr__(self) -> str:
        return f"<Calendar of {self._timezone}>"

    def learn(self, wall: float) -> None:
        """The server's clock is at *wall* ms, which was not among the moments around this host's."""
        self._ahead = wall - 1000 * self._clock()

    def now(self) -> Times:
        """Return the moments around now."""
        return self.around(1000 * self._clock() + self._ahead)

    def around(self, wall: float) -> Times:
        """Return the moments around *wall* ms."""
        today = datetime.fromtimestamp(wall / 1000, self._zone).date()
        days = [today + timedelta(days=number) for number in range(-AROUND, AROUND + 1)]
        marks = tuple(self._moment(day, self._refill) for day in days)
        return Times(days_around(wall, self._timezone), tuple(_joined(self._windows(days))), marks)

    def _windows(self, days: list[date]) -> list[tuple[int, int]]:
        return sorted(
            (self._moment(day, begin), self._moment(day + timedelta(days=end < begin), end))
            for day in days
            for begin, end in self._hours
        )

    def _moment(self, day: date, minutes: int) -> int:
        days, minutes = divmod(minutes, DAY)
        local = datetime(day.year, day.month, day.day, tzinfo=self._zone) + timedelta(days=days, minutes=minutes)
        return int(local.timestamp() * 1000)


def _joined(windows: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield sorted *windows*, those that touch or overlap as one."""
    begin = end = None
    for first, last in windows:
        if end is not None and begin is not None and first > end:
            yield begin, end
            begin = end = None
        begin = first if begin is None else begin
        end = last if end is None else max(end, last)
    if begin is not None and end is not None:
        yield begin, end
