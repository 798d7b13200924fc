"""account_refill: once a local day, whoever calls and however often, spread over an hour."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from scrapy_lease.exceptions import OtherDays
from scrapy_lease.leases.pool.calendar import Calendar
from scrapy_lease.store.pool_scripts import Backoff
from tests.helpers.servers import Server
from tests.helpers.timed import MIDNIGHT
from tests.lua.account_bed import BACKOFF, DAY, HOUR, MINUTE, SECOND, AccountBed, Member
from tests.state.pool_wire import run

UTC = Calendar("UTC")


@pytest.fixture
def bed(server: Server) -> AccountBed:
    return AccountBed(server)


def moved(member: Member, bed: AccountBed, calendar: Calendar = UTC) -> int:
    """How many became active by one call."""
    count: int = member.refill(daily=calendar.around(bed.wire.now).marks).moved
    return count


def through_an_hour(bed: AccountBed, *members: Member, calls: int = 60) -> list[int]:
    """How many became active with each call of an hour."""
    counts = []
    for number in range(calls + 1):
        counts.append(moved(members[number % len(members)], bed))
        bed.pass_time(HOUR // calls)
    return counts


def test_a_new_pool_is_fresh(bed: AccountBed) -> None:
    """Its accounts are cold until they are needed; the first refill is on the next day."""
    bed.add("x", "y")
    one = bed.member()
    assert sum(through_an_hour(bed, one)) == 0
    bed.pass_time(DAY)
    assert sum(through_an_hour(bed, one)) == 2
    assert (bed.place("x"), bed.place("y")) == ("free", "free")


@pytest.mark.parametrize("sessions", [1, 10])
def test_once_a_day_whoever_runs_it(bed: AccountBed, sessions: int) -> None:
    """Each day at four o'clock all that are cold become active once, by however many sessions and calls."""
    bed.add(*map(str, range(30)))
    members = [bed.member(f"n{number}", active=2 * HOUR) for number in range(sessions)]
    by_hour = [0] * 72
    for minute in range(0, 72 * 60, 3):
        for member in members:
            by_hour[minute // 60] += moved(member, bed)
        members[0].take()
        bed.pass_time(3 * MINUTE)
    assert [by_hour[hour] + by_hour[hour + 1] for hour in (4, 28, 52)] == [30, 30, 30]
    assert sum(by_hour) == 90


def test_it_is_spread_over_an_hour(bed: AccountBed) -> None:
    """A sixtieth each minute, not all at once; what was not moved yet can be had on demand meanwhile."""
    bed.add(*map(str, range(60)))
    one = bed.member()
    moved(one, bed)
    bed.pass_time(DAY)
    counts = through_an_hour(bed, one)
    assert sum(counts) == 60
    assert max(counts) <= 2
    assert counts[0] == 0


def test_accounts_that_are_promoted_meanwhile_are_not_missed(bed: AccountBed) -> None:
    """Demand takes cold ones while the refill goes on: it ends when none is left."""
    bed.add(*map(str, range(20)))
    one = bed.member()
    moved(one, bed)
    bed.pass_time(DAY)
    moved(one, bed)
    assert len(one.get(15)) == 15
    assert sum(through_an_hour(bed, one)) == 5
    assert bed.client.llen(bed.pool.key("cold")) == 0


def test_a_session_that_dies_half_way_is_followed(bed: AccountBed) -> None:
    """What it did is done, what is left is in the store."""
    bed.add(*map(str, range(20)))
    one, two = bed.member("a"), bed.member("b")
    moved(one, bed)
    bed.pass_time(DAY)
    moved(one, bed)
    bed.pass_time(HOUR // 2)
    assert moved(one, bed) == 10
    bed.end("a")
    bed.pass_time(HOUR)
    assert (moved(two, bed), moved(two, bed)) == (10, 0)


def test_a_call_that_is_repeated_moves_nothing_more(bed: AccountBed) -> None:
    """It is answered as before; also a late copy of it."""
    bed.add("x", "y")
    one = bed.member()
    moved(one, bed)
    bed.pass_time(DAY)
    moved(one, bed)
    bed.pass_time(HOUR)
    row = {"floor": 0, "batch": 0, "target": 0, "most": 0, "daily": list(UTC.around(bed.wire.now).marks)}
    first = run(one.scripts.refill("a", 9, "ask", **row))
    assert first.moved == 2
    bed.change("drain", "x")
    assert run(one.scripts.refill("a", 9, "ask", **row)) == first


def test_benched_accounts_get_another_chance(bed: AccountBed) -> None:
    """The daily refill brings back what was demoted, each for one probe."""
    bed.add("x", "y")
    one = bed.member()
    moved(one, bed)
    one.say(one.one(), "demote", "refused", Backoff(300 * DAY, 300 * DAY))
    bed.pass_time(DAY)
    assert sum(through_an_hour(bed, one)) == 2
    assert {lease.id: lease.strikes for lease in one.get(2)} == {"x": 1, "y": 0}


@pytest.mark.parametrize(
    ("zone", "begin"),
    [("Europe/Berlin", "2026-03-28"), ("Europe/Berlin", "2026-10-24"), ("America/New_York", "2026-10-31")],
)
def test_days_in_which_clocks_are_changed(bed: AccountBed, zone: str, begin: str) -> None:
    """Three local days have three refills, one at four o'clock on each wall, with 23 or 25 hours between them."""
    calendar = Calendar(zone)
    bed.wire.now = 1000 * datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(zone)).timestamp()
    bed.add("x")
    one = bed.member(active=HOUR)
    times = []
    for _ in range(6 * 74):
        if moved(one, bed, calendar):
            times.append(datetime.fromtimestamp(bed.wire.now / 1000, ZoneInfo(zone)).strftime("%d %H"))
        one.take()
        bed.pass_time(10 * MINUTE)
    first = date.fromisoformat(begin)
    assert times == [(first + timedelta(days=number)).strftime("%d 04") for number in range(3)]


def test_another_zone_or_setting_brings_no_second_refill(bed: AccountBed) -> None:
    """Two nodes that differ refill once a day together."""
    bed.add("x")
    one, two = bed.member("a", active=HOUR), bed.member("b", active=HOUR)
    tokyo, later = Calendar("Asia/Tokyo"), Calendar("UTC", refill="07:00")
    total = 0
    for _ in range(3 * 24 * 6):
        total += moved(one, bed, tokyo) + moved(two, bed, later)
        one.take()
        bed.pass_time(10 * MINUTE)
    assert total == 3


def test_a_clock_that_is_stepped_forward_and_back(bed: AccountBed) -> None:
    """A jump of a year, and a refill there, do not end the refills once the clock is right again."""
    bed.add("x")
    one = bed.member(active=HOUR)
    bed.pass_time(5 * HOUR)
    moved(one, bed)
    for step in (365 * DAY, -365 * DAY):
        bed.step_clock(step)
        moved(one, bed)
        bed.pass_time(HOUR)
        assert moved(one, bed) == 1
        bed.pass_time(2 * HOUR)
        one.take()
        assert bed.place("x") == "cold"


def test_what_becomes_cold_afterwards_waits_for_the_next_day(bed: AccountBed) -> None:
    """Of two one was promoted meanwhile: no other takes its place, whether it is cold or benched after the hour."""
    bed.add("x", "y")
    one = bed.member()
    moved(one, bed)
    bed.pass_time(4 * HOUR)
    assert moved(one, bed) == 0
    lease = one.one()
    bed.pass_time(HOUR)
    assert moved(one, bed) == 1
    one.say(lease, "demote", "refused", BACKOFF)
    bed.pass_time(HOUR)
    assert moved(one, bed) == 0


def test_one_call_moves_no_more_than_is_quick(bed: AccountBed) -> None:
    """A hundred at most, whatever is due; the others with the next calls."""
    bed.add(*map(str, range(150)))
    one = bed.member()
    moved(one, bed)
    bed.pass_time(DAY)
    moved(one, bed)
    bed.pass_time(2 * HOUR)
    assert [moved(one, bed), moved(one, bed), moved(one, bed)] == [100, 50, 0]


def test_who_is_refilled_begins_anew(bed: AccountBed) -> None:
    """Nineteen failures of the day before do not count for one that lay cold since."""
    bed.add("x", "y", "z")
    one = bed.member(active=HOUR)
    moved(one, bed)
    lease = one.one()
    one.uses(lease, "-" * 19)
    one.back(lease)
    bed.pass_time(2 * HOUR)
    one.take()
    assert bed.place("x") == "cold"
    bed.pass_time(DAY)
    moved(one, bed)
    bed.pass_time(HOUR)
    assert moved(one, bed) == 3
    (again,) = (lease for lease in one.get(3) if lease.id == "x")
    assert one.uses(again, "-") == "+"


def test_a_host_that_has_other_days_is_told_the_servers(bed: AccountBed) -> None:
    """Nothing is moved by moments that are not around now."""
    one = bed.member()
    with pytest.raises(OtherDays) as error:
        one.refill(daily=[0, DAY])
    assert error.value.wall == MIDNIGHT


# what is bought


def test_more_is_bought_once_a_day(bed: AccountBed) -> None:
    """One session is told to; when it is done, nobody is until the next day."""
    bed.add("x")
    one, two = bed.member("a"), bed.member("b")

    def ask(member: Member) -> tuple[str, int]:
        answer = member.refill(batch=50, daily=UTC.around(bed.wire.now).marks)
        return answer.status, answer.count

    assert ask(one) == ("buy", 50)
    assert ask(two) == ("duty", 0)
    assert one.refill("done", daily=UTC.around(bed.wire.now).marks, bought=0, gained=0).status == "done"
    assert (ask(one), ask(two)) == (("enough", 0), ("enough", 0))
    bed.pass_time(DAY)
    assert ask(two) == ("buy", 50)


def test_who_dies_while_it_buys_is_followed(bed: AccountBed) -> None:
    """It gave no word for some seconds: another buys."""
    bed.add("x")
    one, two = bed.member("a"), bed.member("b")
    marks = UTC.around(bed.wire.now).marks
    assert one.refill(batch=50, daily=marks).status == "buy"
    bed.pass_time(5 * SECOND)
    assert two.refill(batch=50, daily=marks).status == "buy"


def test_a_provider_that_fails_is_asked_again(bed: AccountBed) -> None:
    """After its pause, on the same day."""
    bed.add("x")
    one = bed.member()
    marks = UTC.around(bed.wire.now).marks
    assert one.refill(batch=50, daily=marks).status == "buy"
    one.refill("done", daily=marks, bought=0, gained=0, failed=[2000, 300_000, 0, 0])
    assert one.refill(batch=50, daily=marks).status == "pause"
    bed.pass_time(2 * SECOND)
    assert one.refill(batch=50, daily=marks).status == "buy"


def test_a_pool_that_knows_nothing_buys_at_once(bed: AccountBed) -> None:
    """Whatever was bought today: all of it is gone."""
    bed.add("x")
    one = bed.member()
    marks = UTC.around(bed.wire.now).marks
    one.refill(batch=50, daily=marks)
    one.refill("done", daily=marks, bought=0, gained=0)
    assert one.refill(batch=50, daily=marks).status == "enough"
    one.say(one.one(), "gone", "deleted")
    assert one.refill(batch=50, daily=marks).status == "buy"
