"""Days of a time zone as boundaries of windows."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from scrapy_lease.leases.rates.days import days_around

HOUR = 3_600_000


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000


@pytest.mark.parametrize(
    ("wall", "hours"),
    [
        ("2026-03-29T12:00", [24, 23, 24]),
        ("2026-10-25T12:00", [24, 25, 24]),
        ("2026-07-01T00:30", [24, 24, 24]),
    ],
)
def test_a_day_is_as_long_as_clocks_make_it(wall: str, hours: list[int]) -> None:
    """Where clocks are changed a day has 23 or 25 hours; the middle one is the day of the clock."""
    days = days_around(moment(wall), "Europe/Berlin")
    assert [(after - before) // HOUR for before, after in pairwise(days)] == hours
    assert days[1] <= moment(wall) < days[2]


def test_utc_needs_no_database() -> None:
    """Its days are multiples of 24 hours."""
    assert all(day % (24 * HOUR) == 0 for day in days_around(moment("2026-03-29T12:00"), "UTC"))
