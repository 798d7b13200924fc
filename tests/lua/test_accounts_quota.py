"""account_take: the quota of an account's day, its slices, and whose clock says which day it is."""

from __future__ import annotations

from datetime import datetime

import pytest

from scrapy_lease.exceptions import OtherDays
from scrapy_lease.leases.pool.calendar import Calendar
from tests.helpers.servers import Server
from tests.helpers.timed import MIDNIGHT
from tests.lua.account_bed import DAY, HOUR, SECOND, AccountBed


@pytest.fixture
def bed(server: Server) -> AccountBed:
    return AccountBed(server)


def test_a_quota_of_three_gives_three_to_ten_nodes(bed: AccountBed) -> None:
    """Ten sessions that take, use and give back in turn spend exactly the quota of the day, and then nothing."""
    bed.add("x")
    nodes = [bed.member(f"n{number}", quota=3) for number in range(10)]
    spent = 0
    for _ in range(3):
        for node in nodes:
            for lease in node.get():
                assert lease.permits is not None
                assert lease.permits.count
                spent += 1
                node.back(lease, unspent=lease.permits.count - 1)
    assert spent == 3
    assert bed.place("x") == "spent"


def test_permits_are_granted_by_slices(bed: AccountBed) -> None:
    """A lease is given a slice of the quota, and another when it asks; never more than there is."""
    bed.add("x")
    one = bed.member(quota=25)
    lease = one.one()
    assert lease.permits.count == 10
    assert [one.more(lease).count for _ in range(3)] == [10, 5, 0]


def test_what_a_dead_node_had_is_spent(bed: AccountBed) -> None:
    """Nobody knows how many of its permits were used, so none comes back; the rest of the quota goes on."""
    bed.add("x")
    one, two = bed.member("a", quota=12), bed.member("b", quota=12)
    assert one.one().permits.count == 10
    bed.end("a")
    bed.reclaim("a")
    assert two.one().permits.count == 2


def test_a_repeated_take_grants_nothing_more(bed: AccountBed) -> None:
    """The reply was lost: the same call says the same permits."""
    bed.add("x")
    one = bed.member(quota=25)
    first = one.take(1)
    assert one.take(1, n=1) == first
    assert bed.member("b", quota=25).names() == []
    assert one.more(first.leases[0]).used == 20


def test_a_stale_holder_gets_no_permits_and_returns_none(bed: AccountBed) -> None:
    """Permits are for who has the lease, under its fence."""
    bed.add("x")
    one, two = bed.member("a", quota=25), bed.member("b", quota=25)
    stale = one.one()
    bed.end("a")
    bed.reclaim("a")
    two.one()
    again = bed.member("c", quota=25)
    before = bed.client.hget(bed.pool.key("accounts"), "x")
    assert again.more(stale) is None
    assert again.back(stale, unspent=10) == "-"
    assert bed.client.hget(bed.pool.key("accounts"), "x") == before


def test_the_quota_is_new_with_the_local_day(bed: AccountBed) -> None:
    """At the midnight of the zone, on the server's clock, and no moment before."""
    bed.add("x")
    one = bed.member(quota=3)
    one.back(one.one())
    assert bed.place("x") == "spent"
    bed.pass_time(DAY - 1)
    assert one.names() == []
    bed.pass_time(1)
    assert one.one().permits.count == 3


def test_a_lease_that_is_out_at_midnight(bed: AccountBed) -> None:
    """Its permits end with their day; what is returned of that day is not added to the next."""
    bed.add("x")
    one = bed.member(quota=10)
    lease = one.one()
    assert lease.permits.left == DAY
    bed.pass_time(DAY)
    assert one.more(lease).count == 10
    one.back(lease, unspent=10)
    assert bed.place("x") == "spent"


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_the_day_in_which_clocks_are_changed(bed: AccountBed, day: str, hours: int) -> None:
    """A day of 23 or 25 hours has one quota, and the next day another."""
    calendar = Calendar("Europe/Berlin")
    days = calendar.around(datetime.fromisoformat(f"{day} 12:00+02:00").timestamp() * 1000).days
    bed.wire.now = days[1]
    bed.add("x")
    one = bed.member(quota=2, days=days)
    lease = one.one()
    assert lease.permits.left == hours * HOUR
    one.back(lease)
    bed.pass_time(hours * HOUR - SECOND)
    assert one.names() == []
    bed.pass_time(SECOND)
    assert one.names() == ["x"]


def test_two_pools_have_their_own_days(server: Server) -> None:
    """The quota of Tokyo is new when the day begins there, that of New York fourteen hours later."""
    bed = AccountBed(server)
    bed.add("x")
    tokyo, york = Calendar("Asia/Tokyo"), Calendar("America/New_York")
    bed.wire.now = tokyo.around(MIDNIGHT).days[1] + HOUR
    one = bed.member("a", quota=2, days=tokyo.around(bed.wire.now).days)
    two = bed.member("b", quota=2, days=york.around(bed.wire.now).days)
    one.back(one.one())
    # Another zone does not begin another day while that of the account goes on.
    assert two.names() == []
    bed.pass_time(14 * HOUR)
    assert two.names() == []
    bed.pass_time(9 * HOUR)
    assert one.names(days=tokyo.around(bed.wire.now).days) == ["x"]


def test_a_clock_that_is_stepped_back_gives_no_quota_twice(bed: AccountBed) -> None:
    """Back by hours: the day goes on. Back by a week: its end is too far ahead to count, so one more is given."""
    bed.add("x")
    bed.pass_time(12 * HOUR)
    one = bed.member(quota=3)
    one.back(one.one())
    bed.step_clock(-13 * HOUR)
    assert one.names() == []
    bed.step_clock(-7 * DAY)
    assert one.one().permits.count == 3


def test_a_host_that_has_other_days_is_told_the_servers(bed: AccountBed) -> None:
    """Nothing happens in that call, and the same one can be made with the right days."""
    bed.add("x")
    one = bed.member(quota=3)
    with pytest.raises(OtherDays) as error:
        one.take(1, days=[0, DAY])
    assert error.value.wall == MIDNIGHT
    assert bed.place("x") == "cold"
    assert one.take(1, n=1).leases


def test_a_quota_that_is_raised_counts_at_once(bed: AccountBed) -> None:
    """What was spent by the old quota is active again with the next take."""
    bed.add("x")
    one = bed.member(quota=3)
    one.back(one.one())
    assert one.names() == []
    assert one.one(quota=5).permits.count == 2


def test_a_new_server_hears_what_was_granted(bed: AccountBed) -> None:
    """It lost what was counted last: who holds the lease says it, so nothing is granted twice."""
    bed.add("x")
    one = bed.member(quota=25)
    lease = one.one()
    used = one.more(lease).used
    bed.client.hdel(bed.pool.key("accounts"), "x")
    bed.be_another_server()
    assert one.report(lease, told=[(used, lease.permits.day)]) == [lease.fence]
    assert one.more(lease).count == 5


def test_a_new_server_counts_no_less_than_it_hears(bed: AccountBed) -> None:
    """It knows the day, and less of it than was granted; or more, which stays."""
    bed.add("x")
    one = bed.member(quota=40)
    lease = one.one()
    day = lease.permits.day
    for told, left in ((30, 10), (5, 0)):
        bed.be_another_server()
        one.report(lease, told=[(told, day)])
        assert one.more(lease).count == left


def test_another_zone_begins_no_other_day(bed: AccountBed) -> None:
    """While the day of an account goes on, what is left of its quota is all there is, whoever asks."""
    bed.add("x")
    one, two = bed.member("a", quota=15), bed.member("b", quota=15)
    lease = one.one()
    one.back(lease)
    bed.pass_time(HOUR)
    other = two.one(days=[MIDNIGHT - 23 * HOUR, MIDNIGHT + HOUR, MIDNIGHT + 25 * HOUR])
    assert (other.permits.count, other.permits.day) == (5, lease.permits.day)


@pytest.mark.parametrize(("step", "passes"), [(0, DAY), (-7 * DAY, 0)])
def test_of_many_that_are_spent_all_come_back(bed: AccountBed, step: int, passes: int) -> None:
    """At midnight, or when the clock is stepped back so far that their day is none, with one look."""
    names = sorted(f"{number:02}" for number in range(30))
    bed.add(*names)
    one = bed.member(quota=1)
    for lease in one.get(30):
        one.back(lease)
    assert one.names(30) == []
    bed.pass_time(passes)
    bed.step_clock(step)
    assert sorted(one.names(30)) == names
