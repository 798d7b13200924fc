"""account_take: the active and the cold pool, quota, interval, hours and holders, checked in the script that leases."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest

from scrapy_lease.exceptions import OtherDays
from scrapy_lease.leases.pool.calendar import Calendar
from tests.helpers.servers import Server
from tests.helpers.timed import MIDNIGHT
from tests.lua.account_bed import DAY, HOUR, MINUTE, SECOND, AccountBed


@pytest.fixture
def bed(server: Server) -> AccountBed:
    return AccountBed(server)


# two layers


def test_a_new_account_is_cold_until_it_is_needed(bed: AccountBed) -> None:
    """Cold accounts become active one for each that is wanted and not free, in their order."""
    bed.add("x", "y", "z")
    one = bed.member()
    assert [bed.place(name) for name in "xyz"] == ["cold"] * 3
    assert one.names(2) == ["x", "y"]
    assert bed.place("z") == "cold"


def test_what_is_free_comes_before_what_is_cold(bed: AccountBed) -> None:
    """No account is promoted while an active one is free."""
    bed.add("x", "y")
    one = bed.member()
    one.back(one.one())
    assert one.names() == ["x"]
    assert bed.place("y") == "cold"


def test_of_the_active_the_one_used_least_lately_is_first(bed: AccountBed) -> None:
    """What came back last is handed out last."""
    bed.add("x", "y", "z")
    one = bed.member()
    leases = {lease.id: lease for lease in one.get(3)}
    for name in "yzx":
        bed.pass_time(10)
        one.back(leases[name])
    assert [one.one().id for _ in range(3)] == ["y", "z", "x"]


def test_an_active_account_that_nobody_uses_becomes_cold(bed: AccountBed) -> None:
    """Counted from its last use; what is in use stays."""
    bed.add("x", "y")
    one = bed.member(active=HOUR)
    kept, idle = one.get(2)
    one.back(idle)
    bed.pass_time(HOUR - 1)
    one.take()
    assert bed.place(idle.id) == "free"
    bed.pass_time(1)
    one.take()
    assert (bed.place(idle.id), bed.place(kept.id)) == ("cold", "leased")


def test_all_is_there_after_a_restart(bed: AccountBed) -> None:
    """Layers, counts and leases are in the store: another server with its data goes on with them."""
    bed.add("x", "y")
    one = bed.member(quota=20)
    lease = one.one()
    one.back(lease, unspent=4)
    bed.be_another_server()
    one.report()
    again = one.one()
    assert (again.id, again.permits.used) == ("x", 16)
    assert bed.place("y") == "cold"


# quota


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


# interval


def test_what_comes_back_rests_for_the_interval(bed: AccountBed) -> None:
    """The rest of the interval is told by who used it; of who died, a whole one."""
    bed.add("x")
    one, two = bed.member("a", interval=5 * SECOND), bed.member("b", interval=5 * SECOND)
    one.back(one.one(), delay=2 * SECOND)
    bed.pass_time(2 * SECOND - 1)
    assert two.names() == []
    bed.pass_time(1)
    assert two.names() == ["x"]
    bed.end("b")
    bed.reclaim("b")
    bed.pass_time(5 * SECOND - 1)
    assert one.names() == []
    bed.pass_time(1)
    assert one.names() == ["x"]


def test_sessions_that_share_an_account_keep_its_interval_together(bed: AccountBed) -> None:
    """Each use has a start of its own, an interval and the time that it may come late after the one before."""
    bed.add("x")
    nodes = [bed.member(f"n{number}", interval=1000, holders=0) for number in range(3)]
    leases = [node.one() for node in nodes]
    starts = [lease.permits.start for lease in leases]
    for _ in range(3):
        starts += [node.more(lease).start for node, lease in zip(nodes, leases, strict=True)]
    assert starts == [1250 * number for number in range(12)]


# hours


def test_nothing_is_leased_outside_of_the_hours(bed: AccountBed) -> None:
    """Before them a take says how long they are away; with their end, permits end."""
    bed.add("x")
    one = bed.member(open=[(MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR), (MIDNIGHT + DAY, MIDNIGHT + DAY + HOUR)])
    before = one.take(1)
    assert (before.leases, before.standing.shut, bed.place("x")) == ((), HOUR, "cold")
    bed.pass_time(HOUR)
    lease = one.one()
    assert (lease.permits.count, lease.permits.left) == (None, HOUR)
    bed.pass_time(HOUR)
    assert one.more(lease) is None
    one.back(lease)
    assert one.take(1).standing.shut == 22 * HOUR


def test_hours_over_midnight_by_the_servers_clock(bed: AccountBed) -> None:
    """22-6 of a zone, hour by hour through a day."""
    bed.add("x")
    calendar = Calendar("Asia/Tokyo", "22-6")
    one = bed.member(quota=0)
    open_at = []
    for _ in range(24):
        times = calendar.around(bed.wire.now)
        leases = one.get(days=times.days, open=times.open)
        open_at += [int(bed.wire.now - MIDNIGHT) // HOUR] if leases else []
        for lease in leases:
            one.back(lease)
        bed.pass_time(HOUR)
    # 22:00 in Tokyo is 13:00 in UTC.
    assert open_at == list(range(13, 21))


# holders


@pytest.mark.parametrize(("holders", "served"), [(1, 1), (3, 3), (0, 5)])
def test_as_many_hold_one_account_as_may(bed: AccountBed, holders: int, served: int) -> None:
    """One session, a number of them, or any number; each holds it once."""
    bed.add("x")
    nodes = [bed.member(f"n{number}", holders=holders) for number in range(5)]
    assert sum(len(node.get(2)) for node in nodes) == served
    assert sum(len(node.get(2)) for node in nodes) == 0


def test_a_seat_that_is_left_serves_the_next(bed: AccountBed) -> None:
    """Whoever gives it back, and whoever died, leaves one seat."""
    bed.add("x")
    a, b, c, d = (bed.member(sid, holders=2) for sid in "abcd")
    lease = a.one()
    b.one()
    assert c.names() == []
    a.back(lease)
    assert (c.names(), d.names()) == (["x"], [])
    bed.end("b")
    bed.reclaim("b")
    assert d.names() == ["x"]


def test_holders_of_many_accounts_are_spread(bed: AccountBed) -> None:
    """With any number of holders, who takes one gets the one that was taken least lately."""
    bed.add("x", "y", "z")
    nodes = [bed.member(f"n{number}", holders=0) for number in range(9)]
    for _ in range(3):
        for node in nodes[:3]:
            node.get(3)
    held: Counter[str] = Counter()
    for number in range(9):
        bed.pass_time(1)
        held[bed.member(f"m{number}", holders=0).one().id] += 1
    assert held == {"x": 3, "y": 3, "z": 3}


def test_holders_share_the_quota(bed: AccountBed) -> None:
    """Together they are granted no more than the quota of the day."""
    bed.add("x")
    nodes = [bed.member(f"n{number}", holders=0, quota=25) for number in range(4)]
    leases = [(node, lease) for node in nodes for lease in node.get()]
    granted = [lease.permits.count for _, lease in leases]
    granted += [node.more(lease).count for node, lease in leases]
    assert sum(granted) == 25


def test_the_fence_is_of_one_holder(bed: AccountBed) -> None:
    """Of two that hold an account, one's word with the other's fence changes nothing."""
    bed.add("x")
    one, two = bed.member("a", holders=2), bed.member("b", holders=2)
    first, second = one.one(), two.one()
    assert first.fence < second.fence
    assert one.back(second) == "-"
    assert one.back(first) == "+"
    assert two.report(second) == [second.fence]


def test_who_waits_is_served_before_who_has(bed: AccountBed) -> None:
    """An account that comes back is kept for the session that waits, as any resource of a pool."""
    bed.add("x")
    one, two = bed.member("a"), bed.member("b")
    lease = one.one()
    assert two.names() == []
    bed.pass_time(1)
    one.back(lease)
    assert (one.names(), two.names()) == ([], ["x"])


def test_the_events_tell_the_way_of_an_account(bed: AccountBed) -> None:
    """New, promoted, taken, given back, and cold again."""
    bed.add("x")
    one = bed.member(active=MINUTE)
    one.back(one.one())
    bed.pass_time(MINUTE)
    one.take()
    rows = [row[b"what"].decode() for _, row in bed.client.xrange(bed.pool.key("events"))]
    assert rows == ["new", "promote", "take", "back", "cold"]
