"""account_take: the active and the cold pool, interval, hours and holders, checked in the script that leases."""

from __future__ import annotations

from collections import Counter

import pytest

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


def test_who_holds_all_that_is_active_gets_a_cold_one(bed: AccountBed) -> None:
    """What a session has already, and others may have besides, is of no use to it."""
    bed.add("x", "y")
    one = bed.member(holders=2)
    assert one.names() == ["x"]
    assert bed.places("x") == {"free", "leased"}
    assert one.names() == ["y"]
