"""rate_take: permits of one window on the server's clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scrapy_lease.exceptions import OtherDays, SessionLost, StoreRefused
from scrapy_lease.leases.rates.words import CounterName
from tests.helpers.servers import Server
from tests.helpers.timed import MIDNIGHT
from tests.lua.rate_bed import DAY, HOUR, NAME, SECOND, RateBed


@pytest.fixture
def bed(server: Server) -> Iterator[RateBed]:
    return RateBed(server)


def test_no_more_than_the_limit_in_a_window(bed: RateBed) -> None:
    """Whatever is asked for, a window gives its limit; the next gives it again."""
    one = bed.session(limit=10)
    assert [one.get(7), one.get(7), one.get(1)] == [7, 3, 0]
    bed.pass_time(999)
    assert one.get() == 0
    bed.pass_time(1)
    assert one.get(20) == 10


def test_a_slice_ends_with_its_window(bed: RateBed) -> None:
    """What is left of it is what is left of the window on the server's clock; then asking again gives more."""
    one = bed.session(limit=10)
    bed.pass_time(300.5)
    taken = one.take(10)
    assert (taken.left, taken.until) == (699, MIDNIGHT + SECOND)
    assert one.take().wait == 700


def test_tries_are_not_counted(bed: RateBed) -> None:
    """20 tries at 5, then a limit of 10: exactly 5 more."""
    one = bed.session(limit=5)
    assert sum(one.get() for _ in range(20)) == 5
    one.limit = 10
    assert sum(one.get() for _ in range(20)) == 5
    assert bed.counted() == 10


def test_a_counter_has_an_end(bed: RateBed) -> None:
    """It is set with the first grant, stays where it is, and is repaired where it is missing."""
    one = bed.session(limit=5)
    one.take()
    assert bed.client.pttl(bed.key) > 0
    bed.client.pexpire(bed.key, 5000)
    one.take()
    assert bed.client.pttl(bed.key) <= 5000
    bed.client.persist(bed.key)
    one.take()
    assert bed.client.pttl(bed.key) > 0


def test_a_window_ends_under_steady_traffic(bed: RateBed) -> None:
    """Asking all the time neither prolongs a window nor opens one early: each gives 5."""
    one = bed.session(limit=5)
    got = []
    for _ in range(40):
        got.append(one.get(3))
        bed.pass_time(100)
    assert [sum(got[second : second + 10]) for second in (0, 10, 20, 30)] == [5, 5, 5, 5]


def test_a_repeated_call_changes_nothing(bed: RateBed) -> None:
    """It is told what it was granted, and what is left of that now; an older one is refused."""
    one = bed.session(limit=10)
    first = one.take(4)
    bed.pass_time(100)
    again = one.take(9, n=1)
    assert (again.permits, again.left) == (4, first.left - 100)
    assert bed.counted() == 4
    one.take()
    with pytest.raises(StoreRefused, match="older"):
        one.take(n=1)
    bed.pass_time(SECOND)
    late = one.take(n=2)
    assert (late.permits, late.left <= 0) == (1, True)
    assert bed.counted() == 0


def test_what_comes_back_can_be_had_again(bed: RateBed) -> None:
    """Unspent permits are given back under their window, once; those of an earlier one are worth nothing."""
    one, other = bed.session("a", 10), bed.session("b", 10)
    taken = one.take(10)
    assert other.get() == 0
    one.take(0, back=[(taken.until, 4)])
    one.take(0, n=2, back=[(taken.until, 4)])
    assert other.get(9) == 4
    bed.pass_time(SECOND)
    one.take(0, back=[(taken.until, 6)])
    bed.pass_time(990)
    assert sum(other.get(9) for _ in range(9)) == 10


def test_no_more_comes_back_than_was_had(bed: RateBed) -> None:
    """A server that forgot a grant takes nothing back of it: what others had still counts."""
    one, other = bed.session("a", 10), bed.session("b", 10)
    taken = other.take(4)
    one.take(2)
    one.take(0, back=[(taken.until, 9)])
    assert bed.counted() == 4


def test_a_session_that_is_over_gets_nothing(bed: RateBed) -> None:
    """Closed or expired: it is told so."""
    one = bed.session()
    one.close()
    with pytest.raises(SessionLost):
        one.take()
    assert not bed.client.exists(bed.key)


def test_the_strictest_limit_of_the_live_sessions(bed: RateBed) -> None:
    """It holds for all while who has it lives, and not for longer."""
    strict, lax = bed.session("a", 5), bed.session("b", 20)
    strict.take(1)
    assert lax.take(20).limit == 5
    assert bed.counted() == 5
    strict.close()
    bed.pass_time(990)
    assert sum(lax.get(20) for _ in range(9)) == 15


def test_an_operators_limit_takes_the_place_of_the_configured(bed: RateBed) -> None:
    """Lower or higher, for the window under way too."""
    one = bed.session(limit=5)
    bed.client.hset(bed.space.rate_limits, "api\0001000", 2)
    assert one.get(9) == 2
    bed.client.hset(bed.space.rate_limits, "api\0001000", 8)
    assert one.get(9) == 6
    bed.client.hdel(bed.space.rate_limits, "api\0001000")
    assert one.get(9) == 0


def test_shards_split_the_limit_exactly(bed: RateBed) -> None:
    """11 over 3: 4, 4 and 3."""
    names = [CounterName("api", "api", NAME.label, shard, 3) for shard in range(3)]
    assert [bed.session(f"s{i}", 11, name=name).get(99) for i, name in enumerate(names)] == [4, 4, 3]


@pytest.mark.parametrize("back", [50, 950])
def test_a_clock_that_goes_back_opens_no_window_again(bed: RateBed, back: int) -> None:
    """Less than a window back: what was granted still counts, until the clock is through that window again."""
    one = bed.session(limit=10)
    bed.pass_time(20 * SECOND + 30)
    assert one.get(10) == 10
    bed.pass_time(-back)
    assert one.get() == 0
    bed.pass_time(back + 969)
    assert one.get() == 0
    bed.pass_time(1)
    assert one.get(20) == 10


def test_a_step_costs_one_window(bed: RateBed) -> None:
    """An hour back or forward: the limit once more, and no more than that."""
    one = bed.session(limit=10, length=10 * SECOND)
    for step in (HOUR, -HOUR):
        assert one.get(20) == 10
        bed.pass_time(step)
        one.beat()
        assert [one.get(20), one.get(20)] == [10, 0]
        bed.pass_time(10 * SECOND)


def test_days_of_a_time_zone(bed: RateBed) -> None:
    """The boundaries that are sent count, 23 hours too; a clock outside of them is told."""
    start = MIDNIGHT - 2 * HOUR
    days = [start - DAY, start, start + 23 * HOUR, start + 47 * HOUR]
    one = bed.session(limit=3, length=DAY, days=days)
    taken = one.take(9)
    assert (taken.permits, taken.until, taken.left) == (3, start + 23 * HOUR, 21 * HOUR)
    bed.pass_time(21 * HOUR)
    one.close()
    late = bed.session("b", 3, DAY, days=days)
    assert late.get(9) == 3
    with pytest.raises(OtherDays) as told:
        late.take(days=[start - DAY, start])
    assert told.value.wall == MIDNIGHT + 21 * HOUR


def test_a_server_that_lost_its_tail_is_told(bed: RateBed) -> None:
    """A new server grants nothing in its grace; what it has forgotten of the last calls counts again, once."""
    one, other = bed.session("a", 10), bed.session("b", 10)
    bed.pass_time(100)
    one.take(2)
    saved = bed.client.dump(bed.key)
    first, second = one.take(3), one.take(1)
    bed.client.restore(bed.key, 0, saved, replace=True)
    bed.wire.be_another_server()
    recent = [(1, first.until, 2), (2, first.until, 3), (3, second.until, 1)]
    assert other.take(9).is_grace
    told = one.take(1, recent=recent)
    assert (told.permits, told.is_grace) == (0, True)
    one.take(0, n=4, recent=recent)
    one.take(0, recent=recent)
    assert bed.counted() == 6


def test_another_session_of_the_same_process(bed: RateBed) -> None:
    """What the lost one had is the new one's: nothing is counted twice, and its numbers go on."""
    one = bed.session("a", 10)
    taken = one.take(4)
    one.close()
    heir = bed.session("b", 10)
    heir.take(0, n=2, previous="a", recent=[(1, taken.until, 4)])
    assert bed.counted() == 4
    heir.take(0, n=3, back=[(taken.until, 3)])
    assert bed.counted() == 1
