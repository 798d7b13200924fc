"""pool_take of accounts: those that several sessions may hold, what waits for them, and quotas with all else."""

from __future__ import annotations

import pytest

from tests.helpers.servers import Server
from tests.helpers.timed import MIDNIGHT
from tests.lua.account_bed import HOUR, MINUTE, SITE, AccountBed, Rules
from tests.state.pool_wire import run


@pytest.fixture
def bed(server: Server) -> AccountBed:
    return AccountBed(server)


def test_what_is_held_does_not_become_cold(bed: AccountBed) -> None:
    """It is in use, though one seat of it is free for long."""
    bed.add("x")
    one, two = (bed.member(sid, holders=2, active=HOUR) for sid in "ab")
    one.one()
    bed.pass_time(2 * HOUR)
    one.take()
    assert two.names() == ["x"]


def test_nobody_waits_for_more_than_there_are(bed: AccountBed) -> None:
    """A session holds each account once, so who has them all waits for nothing."""
    bed.add("x", "y")
    one = bed.member(holders=2)
    assert one.names(5) == ["x", "y"]
    assert not bed.client.zcard(bed.pool.key("waiting"))


def test_where_any_number_may_hold_one_nobody_is_before_anybody(bed: AccountBed) -> None:
    """Who waited while all rested keeps nothing from who comes."""
    bed.add("x", "y", "z")
    one, two = (bed.member(sid, holders=0) for sid in "ab")
    bed.cool("x", "y", "z", length=HOUR)
    assert two.names(3) == []
    bed.change("free", "x", "y", "z")
    assert sorted(one.names(3)) == ["x", "y", "z"]
    assert sorted(two.names(3)) == ["x", "y", "z"]


def test_what_is_cold_can_be_had(bed: AccountBed) -> None:
    """It counts as free for who looks how the pool stands."""
    bed.add("x", "y", "z")
    one = bed.member()
    one.one()
    assert one.take().standing.free == 2


def test_who_has_more_than_a_share_gives_it_up(bed: AccountBed) -> None:
    """Of six accounts three, when another wants them."""
    bed.add(*"uvwxyz")
    one, two = bed.member("a"), bed.member("b")
    one.get(6)
    two.get(6)
    assert one.take().standing.yields == 3


def test_a_share_is_of_seats(bed: AccountBed) -> None:
    """Of four accounts with two seats each, three sessions have two or three."""
    bed.add(*"wxyz")
    one, two, three = (bed.member(sid, holders=2) for sid in "abc")
    one.get(4)
    two.get(4)
    assert three.names(4) == []
    assert one.take().standing.yields == 2


def test_two_wants_of_one_call_get_two_accounts(bed: AccountBed) -> None:
    """Where several may hold one, too."""
    bed.add("x", "y")
    bed.member("z", holders=3).get(2)
    one = bed.member()
    said = Rules(holders=3, days=bed.days())
    taken = run(one.scripts.take("a", 1, [(SITE, 1), ("elsewhere", 1)], terms=said))
    assert sorted(lease.id for lease in taken.leases) == ["x", "y"]


def test_a_quota_that_is_lowered_counts_at_once(bed: AccountBed) -> None:
    """What has used it up by now serves nobody until its day is over."""
    bed.add("x")
    one = bed.member(quota=10)
    one.back(one.one(), unspent=5)
    assert bed.place("x") == "free"
    assert one.names(quota=5) == []
    assert bed.place("x") == "spent"


def test_where_several_hold_one_each_permit_has_its_time(bed: AccountBed) -> None:
    """One at a time, as long as there is quota; when there is none, none, and the interval goes on as it was."""
    bed.add("x")
    one, two = (bed.member(sid, holders=2, interval=MINUTE, quota=2) for sid in "ab")
    first, second = one.one(), two.one()
    assert (first.permits.count, second.permits.count) == (1, 1)
    assert second.permits.start >= MINUTE
    assert one.more(first).count == 0


def test_permits_end_with_the_day_though_work_goes_on(bed: AccountBed) -> None:
    """Hours over midnight: with a quota the day ends first; without one the hours do."""
    bed.add("x", "y")
    bed.pass_time(22 * HOUR)
    night = [(MIDNIGHT + 20 * HOUR, MIDNIGHT + 30 * HOUR)]
    one = bed.member(open=night)
    assert one.one(quota=5).permits.left == 2 * HOUR
    assert one.one().permits.left == 8 * HOUR
