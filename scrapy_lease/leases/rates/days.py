"""The days of a time zone, as boundaries that the server's clock is held against."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

#: Days before and after the one in which a clock is: clocks differ, and a slice may be asked for late.
BEFORE, AFTER = 1, 2


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name of the IANA database, which need not be there for UTC; raise KeyError, OSError or
    ValueError for what is none."""
    return UTC if name == "UTC" else ZoneInfo(name)


def days_around(wall: float, timezone: str) -> tuple[int, ...]:
    """Return the midnights of *timezone* around *wall* (ms): where clocks are changed a day has 23 or 25 hours."""
    zone = zone_of(timezone)
    today = datetime.fromtimestamp(wall / 1000, zone).date()
    days = (today + timedelta(days=number) for number in range(-BEFORE, AFTER + 1))
    # Where a change of clocks leaves midnight out, it is taken for the moment of the change.
    return tuple(int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000) for day in days)


class Calendar:
    """The days around the present one by the server's clock, as far as that is known.

    :param timezone: whose days; a name of the IANA database.
    """

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        #: ms by which the server's clock is ahead of this host's.
        self._ahead = 0.0

    def __repr__(self) -> str:
        return f"<Calendar of {self._timezone}>"

    def correct(self, wall: float) -> None:
        """The server's clock shows *wall* (ms)."""
        self._ahead = wall - time.time() * 1000

    def days(self) -> tuple[int, ...]:
        """Return the midnights around now."""
        return days_around(time.time() * 1000 + self._ahead, self._timezone)
