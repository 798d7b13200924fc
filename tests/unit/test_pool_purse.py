"""The permits of a leased account: reserved when a use begins, spent when it is sent, void with their day."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.leases.pool.accounts import AccountOptions
from scrapy_lease.leases.pool.purse import Purse, farewell_of
from scrapy_lease.store.permits import Permits
from tests.unit.pool_parts import Clock

DAY = 86_400_000


def permits(count: int | None = 10, *, start: int = 0, left: int | None = DAY, day: int = 1, used: int = 10) -> Permits:
    return Permits(count, start, left, day, used)


def purse(clock: Clock, granted: Permits, **options: Any) -> Purse:
    return Purse(AccountOptions(**options), granted, clock(), clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def use(of: Purse, number: int = 1) -> None:
    for _ in range(number):
        of.begin()
        of.sent()


def test_no_more_uses_than_permits(clock: Clock) -> None:
    """What is reserved cannot begin again; what was not sent can."""
    one = purse(clock, permits(3))
    one.begin()
    one.begin()
    assert one.places == 1
    one.begin()
    assert one.places == 0
    one.unused()
    assert one.places == 1
    one.sent()
    one.sent()
    assert (one.places, one.rest()) == (1, (0, 1, 1))


def test_more_is_asked_for_in_time_and_once(clock: Clock) -> None:
    """At half of a slice, so that nobody waits for it; again a second later if there is no answer."""
    one = purse(clock, permits(10))
    asked = []
    one.on_low = lambda: asked.append(one.places)
    use(one, 4)
    assert not one.wants()
    use(one)
    assert asked == [5]
    assert (one.wants(), one.wants()) == (True, False)
    clock.now += 1
    assert one.wants()
    one.add(permits(10, used=20), clock())
    assert (one.places, one.wants()) == (15, False)


def test_a_purse_is_dry_when_the_store_has_nothing_more(clock: Clock) -> None:
    """Not while something is left, or under way."""
    one = purse(clock, permits(1))
    one.add(permits(0, used=11), clock())
    assert not one.is_dry
    one.begin()
    one.sent()
    assert one.is_dry
    assert not purse(clock, permits(None, left=None)).is_dry


def test_permits_end_with_their_day(clock: Clock) -> None:
    """A moment before the server's clock says so: then nothing begins, nothing is sent, and nothing is returned."""
    one = purse(clock, permits(10, left=10_000))
    one.begin()
    clock.now += 9.9
    assert one.may_send
    clock.now += 0.1
    assert not one.may_send
    assert one.places == 0
    one.unused()
    assert one.rest() == (0, 0, 1)
    assert one.wants()


def test_what_is_left_of_another_day_is_void(clock: Clock) -> None:
    """The permits of the new day are all there are."""
    one = purse(clock, permits(10, left=10_000))
    clock.now += 10
    one.add(permits(4, day=2, used=4), clock())
    assert one.places == 4
    assert one.told() == (4, 2)


def test_an_answer_that_was_long_under_way_ends_as_soon(clock: Clock) -> None:
    """What is left is counted from when it was asked for."""
    asked = clock()
    clock.now += 4
    one = Purse(AccountOptions(), permits(10, left=5000), asked, clock)
    clock.now += 1
    assert one.has_ended


def test_the_interval_counts_from_sending(clock: Clock) -> None:
    """One use at a time, and the next an interval after the last one was sent, however long that took."""
    one = purse(clock, permits(None, left=None), interval=5.0)
    assert one.places == 1
    one.begin()
    assert one.places == 0
    clock.now += 3
    one.sent()
    clock.now += 4.9
    assert one.places == 0
    assert one.ready_in == pytest.approx(0.1)
    clock.now += 0.1
    assert one.places == 1


def test_what_was_not_sent_costs_no_interval(clock: Clock) -> None:
    """The account is free at once."""
    one = purse(clock, permits(None, left=None), interval=5.0)
    one.begin()
    one.unused()
    assert one.places == 1


def test_the_rest_of_the_interval_goes_back_with_the_lease(clock: Clock) -> None:
    """Whoever has the account next waits for it, too."""
    one = purse(clock, permits(None, left=None), interval=5.0)
    use(one)
    clock.now += 2
    delay, unspent, _ = one.rest()
    assert 3000 <= delay <= 3001
    assert unspent == 0


def test_a_shared_account_is_used_when_the_store_says(clock: Clock) -> None:
    """Each permit has its own start; this process keeps no interval besides."""
    one = purse(clock, permits(1, start=2000, left=None), interval=4.0, holders=0)
    assert one.places == 0
    assert not one.wants()
    clock.now += 2
    assert one.places == 1
    use(one)
    assert one.wants()
    one.add(permits(1, start=500, left=None), clock())
    clock.now += 0.5
    assert one.places == 1


def test_a_permit_that_was_not_used_in_time_is_void(clock: Clock) -> None:
    """Others may use the account after it; it goes back with the lease, as it was not spent."""
    one = purse(clock, permits(1, left=None, used=1), interval=4.0, holders=0, quota=9)
    clock.now += 1
    assert (one.places, one.wants()) == (1, False)
    clock.now += 0.1
    assert one.places == 0
    assert one.wants()
    one.add(permits(1, left=None, used=2), clock())
    use(one)
    assert one.rest()[1] == 1


def test_any_number_within_the_hours(clock: Clock) -> None:
    """Without a quota nothing is counted, and after the hours nothing begins."""
    one = purse(clock, permits(None, left=3_600_000), hours="9-17")
    use(one, 1000)
    assert (one.places, one.wants()) == (None, False)
    clock.now += 3600
    assert (one.places, one.wants()) == (0, True)


@pytest.mark.parametrize(
    ("verb", "args", "expected"),
    [("back", (0,), (0, 7, 1)), ("cool", (500,), (500, 7, 1)), ("gone", ("expired",), ("expired",))],
)
def test_permits_go_back_with_the_lease(clock: Clock, verb: str, args: Any, expected: Any) -> None:
    """With whatever ends it, unless nothing of the account is left."""
    one = purse(clock, permits(10))
    use(one, 3)
    assert farewell_of(one, verb, args) == expected
    assert farewell_of(None, verb, args) == args
