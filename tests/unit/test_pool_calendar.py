"""Local days, hours and moments of the refill of a pool of accounts, in zones whose clocks are changed."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from scrapy_lease.leases.pool.calendar import Calendar, checked_hours, checked_time

HOUR = 3_600_000


def at(text: str, zone: str = "UTC") -> int:
    """A local time in ms."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def is_open(calendar: Calendar, wall: int) -> bool:
    return any(begin <= wall < end for begin, end in calendar.around(wall).open)


@pytest.mark.parametrize("text", ["4", "04:00", " 4:00 "])
def test_times_of_day(text: str) -> None:
    """A time has hours, and minutes if need be."""
    assert checked_time(text) == 240


@pytest.mark.parametrize("text", ["", "25", "24:01", "4:60", "-1", "4h", "12:5"])
def test_what_is_no_time(text: str) -> None:
    """Anything else is refused with the text in the message."""
    with pytest.raises(ValueError, match="no time of day"):
        checked_time(text)


def test_ranges_of_hours() -> None:
    """Several ranges, over midnight too; the whole day is 0-24."""
    assert checked_hours("22-6, 9-12:30") == ((1320, 360), (540, 750))
    assert checked_hours("0-24") == ((0, 1440),)
    assert checked_hours("") == ()


@pytest.mark.parametrize("text", ["22", "6-6", "24-6", "a-b", "22-6-7"])
def test_what_is_no_range(text: str) -> None:
    """A range without hours, or half of one, is refused."""
    with pytest.raises(ValueError, match=r"hours|time of day"):
        checked_hours(text)


def test_hours_over_midnight() -> None:
    """From the evening of one day to the morning of the next, in local time."""
    calendar = Calendar("America/New_York", "22-6")
    times = {"21:59": False, "22:00": True, "23:59": True, "00:00": True, "05:59": True, "06:00": False}
    assert {text: is_open(calendar, at(f"2026-06-10 {text}", "America/New_York")) for text in times} == times


@pytest.mark.parametrize(("night", "hours"), [("2026-03-29", 7), ("2026-10-25", 9), ("2026-06-10", 8)])
def test_hours_in_a_night_in_which_clocks_are_changed(night: str, hours: int) -> None:
    """22-6 ends at six by the clocks on the wall: it is an hour shorter in spring, and longer in autumn."""
    begin, end = Calendar("Europe/Berlin", "22-6").around(at(f"{night} 01:00", "Europe/Berlin")).open[1]
    assert end == at(f"{night} 06:00", "Europe/Berlin")
    assert end - begin == hours * HOUR


def test_ranges_that_touch_are_one() -> None:
    """What ends at midnight and goes on there has no end there."""
    calendar = Calendar("UTC", "22-24,0-6")
    assert (at("2026-06-09 22:00"), at("2026-06-10 06:00")) in calendar.around(at("2026-06-10 01:00")).open


def test_the_whole_day_is_always_open() -> None:
    """0-24 has no gap at midnight, nor in a night of 23 hours."""
    calendar = Calendar("Europe/Berlin", "0-24")
    assert len(calendar.around(at("2026-03-29 12:00", "Europe/Berlin")).open) == 1


@pytest.mark.parametrize(
    ("zone", "day", "moments"),
    [
        ("Europe/Berlin", "2026-03-29", ["2026-03-28 04:00", "2026-03-29 04:00", "2026-03-30 04:00"]),
        ("Asia/Tokyo", "2026-06-10", ["2026-06-09 04:00", "2026-06-10 04:00", "2026-06-11 04:00"]),
    ],
)
def test_one_moment_a_day(zone: str, day: str, moments: list[str]) -> None:
    """The daily refill is at its local time, also where the night before had 23 hours."""
    marks = Calendar(zone).around(at(f"{day} 12:00", zone)).marks
    assert list(marks[1:4]) == [at(text, zone) for text in moments]


def test_a_moment_that_does_not_exist_comes_once() -> None:
    """A day in which clocks jump over the time of the refill has one moment, one in which it comes twice too."""
    spring = Calendar("Europe/Berlin", refill="2:30").around(at("2026-03-29 12:00", "Europe/Berlin")).marks
    autumn = Calendar("Europe/Berlin", refill="2:30").around(at("2026-10-25 12:00", "Europe/Berlin")).marks
    for marks in (spring, autumn):
        assert len(set(marks)) == 5
        assert all(20 * HOUR < later - earlier < 28 * HOUR for earlier, later in pairwise(marks))


def test_a_host_with_a_wrong_clock_learns_the_servers() -> None:
    """Days are those around the server's clock, once it has said that the others are not."""
    calendar = Calendar("UTC", clock=lambda: 0.0)
    wall = at("2026-06-10 12:00")
    assert not calendar.now().days[0] <= wall < calendar.now().days[-1]
    calendar.learn(wall)
    assert calendar.now() == calendar.around(wall)
