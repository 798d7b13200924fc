"""pool_refill: who may buy for a pool, how much, and when."""

from __future__ import annotations

import time
from typing import Any

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.refilling import Refill
from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, Member, PoolBed, wall

MINUTE, DAY = 60_000, 86_400_000
#: Longer than a duty lasts without a word.
SILENCE = 4001
NEEDS = {"floor": 10, "batch": 20, "target": 0, "most": 0}


class Buyer:
    """A session that fills the pool up."""

    def __init__(self, bed: PoolBed, sid: str, *limits: tuple[int, int, bool]) -> None:
        self.member: Member = bed.member(sid)
        self.limits = limits
        self._bed = bed
        self._n = 0

    def call(self, state: str, n: int | None = None, **details: Any) -> Refill:
        self._n += n is None
        sid, number = self.member.sid, self._n if n is None else n
        return self._bed.run(self.member.scripts.refill(sid, number, state, self.limits, **details))

    def ask(self, n: int | None = None, **needs: int) -> Refill:
        return self.call("ask", n, **NEEDS | needs)

    def done(self, bought: int = 0, gained: int = 0, failed: tuple[int, ...] | None = None) -> Refill:
        details: dict[str, Any] = {"bought": bought, "gained": gained}
        return self.call("done", **details if failed is None else details | {"failed": failed})


def over(bed: PoolBed, window: int, *, is_call: bool = False) -> None:
    """Let the window that a counter counts in be over."""
    bed.client.hincrby(bed.pool.counter(window, is_call), "window", -1)


def counted(bed: PoolBed, window: int, *, is_call: bool = False) -> int:
    return int(bed.client.hget(bed.pool.counter(window, is_call), "count") or 0)


# When


def test_a_low_pool_is_to_be_filled(bed: PoolBed) -> None:
    """With fewer free than the floor a batch is granted, and the server's time with it; with as many, nothing."""
    buyer = Buyer(bed, "a")
    granted = buyer.ask()
    assert (granted.status, granted.count, granted.limit) == ("buy", 20, 0)
    assert abs(granted.wall - wall()) < 5000
    bed.add(*range(10))
    assert buyer.done(10, 10).status == "done"
    assert (buyer.ask().status, buyer.ask(floor=11).status) == ("enough", "buy")


def test_no_more_than_can_be_had_at_once(bed: PoolBed) -> None:
    """A provider that gives few at a time is asked for few."""
    assert Buyer(bed, "a").ask(most=3).count == 3


def test_who_waits_counts(bed: PoolBed) -> None:
    """What waiting sessions miss is bought on top of the floor, as long as they live and call."""
    buyer, waiter = Buyer(bed, "a"), bed.member("b")
    bed.add(*range(10))
    waiter.get(10)
    bed.add(*range(10, 20))
    assert buyer.ask().status == "enough"
    bed.member("c").take(("", 25))
    bed.add(*range(20, 30))
    assert buyer.ask().status == "buy"
    buyer.done(20)
    bed.pass_time(3001)
    assert buyer.ask(floor=0).status == "enough"


def test_a_target_counts_all_that_is_known(bed: PoolBed) -> None:
    """Where as many are to be there, whether used or not, just those that are missing are granted."""
    buyer = Buyer(bed, "a")
    bed.add(*range(7))
    buyer.member.get(5)
    assert buyer.ask(target=9).count == 2
    buyer.done(2, 2)
    bed.add(7, 8)
    assert buyer.ask(target=9).status == "enough"


def test_use_is_foreseen(bed: PoolBed) -> None:
    """What left free within the last minutes is expected to leave it again, at most as much as is in play."""
    buyer = Buyer(bed, "a")
    bed.add(*range(100))
    assert buyer.ask().forecast == 0
    buyer.member.get(60)
    bed.pass_time(60_000 - 1)
    bed.client.zadd(bed.scope.namespace.sessions, {"a": HOUR})
    used = buyer.ask()
    # 60 a minute are 30 in half a minute; one minute counts less than a third of the memory.
    assert 7 <= used.forecast <= 9
    assert (used.status, buyer.ask(floor=34).status) == ("enough", "buy")
    buyer.done(20, 20)
    bed.add(*range(100, 120))
    bed.pass_time(600_000)
    assert 0 <= buyer.ask().forecast < 3


def test_what_ends_soon_is_replaced_before(bed: PoolBed) -> None:
    """Resources whose time is up within seconds do not count as free."""
    buyer = Buyer(bed, "a")
    bed.add(*range(6), life=HOUR)
    bed.add(*range(6, 12), life=5000)
    answer = buyer.ask()
    assert (answer.status, answer.forecast) == ("buy", 6)


# Who


def test_one_buys_for_all(bed: PoolBed) -> None:
    """While one session has the duty the others are told for how long at most; its end frees it at once."""
    one, other = Buyer(bed, "a"), Buyer(bed, "b")
    one.ask()
    answer = other.ask()
    assert answer.status == "duty"
    assert 3000 < answer.wait <= 4000
    one.done(20, 20)
    assert other.ask().status == "buy"


def test_a_word_keeps_the_duty(bed: PoolBed) -> None:
    """Who says that it is busy keeps the duty; who says nothing for seconds has passed it on, and is told."""
    one, other = Buyer(bed, "a"), Buyer(bed, "b")
    one.ask()
    for _ in range(3):
        bed.pass_time(SILENCE - 1000)
        assert one.call("busy").status == "busy"
        assert other.ask().status == "duty"
    bed.pass_time(SILENCE)
    assert other.ask().status == "buy"
    assert one.call("busy").status == "passed"
    assert one.done(20, 20).status == "passed"
    assert one.ask().status == "duty"


def test_silence_alone_loses_no_duty(bed: PoolBed) -> None:
    """A buyer that was slow goes on where nobody else has asked meanwhile."""
    one = Buyer(bed, "a")
    one.ask()
    bed.pass_time(SILENCE)
    assert one.call("busy").status == "busy"


def test_the_duty_of_a_session_that_is_over_is_nobodys(bed: PoolBed) -> None:
    """A session that closed or died buys nothing any more."""
    one, other = Buyer(bed, "a"), Buyer(bed, "b")
    one.ask()
    bed.run(bed.scripts.close("a"))
    assert other.ask().status == "buy"


def test_a_lost_session_may_not_buy(bed: PoolBed) -> None:
    """A session past its deadline is told so, whatever it says."""
    one = Buyer(bed, "a")
    bed.pass_time(TTL + 1)
    for state in ("ask", "busy", "done"):
        with pytest.raises(SessionLost):
            one.call(state, bought=0, gained=0, **NEEDS)


def test_a_repeated_call_changes_nothing(bed: PoolBed) -> None:
    """A lost answer is told again and grants nothing twice; a number before it is refused."""
    one = Buyer(bed, "a", (400, MINUTE, False))
    first = one.ask(n=1)
    before = bed.dump()
    assert one.ask(n=1) == first
    assert bed.dump() == before
    one.call("busy", n=2)
    with pytest.raises(StoreRefused, match="older"):
        one.ask(n=1)


# Failures


def test_a_failure_is_everybodys(bed: PoolBed) -> None:
    """Nobody calls a provider that failed before its pause is over; it doubles, up to the longest, and ends well."""
    one, other = Buyer(bed, "a"), Buyer(bed, "b")
    for pause in (2000, 4000, 8000, 8000):
        assert one.ask().status == "buy"
        one.done(failed=(2000, 8000, 0, 0))
        answer = other.ask()
        assert answer.status == "pause"
        assert pause - 100 < answer.wait <= pause
        bed.pass_time(pause)
    assert one.ask().status == "buy"
    one.done(20, 20)
    one.ask()
    one.done(failed=(2000, 8000, 1000, 0))
    assert 1400 < other.ask().wait <= 1500


def test_a_provider_that_asks_for_a_pause_gets_it(bed: PoolBed) -> None:
    """The least pause that a failure names is kept where the doubling would be shorter."""
    one = Buyer(bed, "a")
    one.ask()
    one.done(failed=(2000, 8000, 0, 30_000))
    assert 29_000 < one.ask().wait <= 30_000


# Limits


def test_limits_are_those_of_all(bed: PoolBed) -> None:
    """What all sessions were granted counts, however often they change; the limit is named that is reached, and when
    it is over.
    """
    limits = ((1000, DAY, False), (50, MINUTE, False))
    buyers = [Buyer(bed, sid, *limits) for sid in "abc"]
    granted = []
    for buyer in buyers:
        granted.append(buyer.ask().count)
        buyer.done(granted[-1], granted[-1])
    assert granted == [20, 20, 10]
    answer = buyers[0].ask()
    assert (answer.status, answer.limit) == ("limit", 2)
    assert 0 < answer.wait <= MINUTE - answer.wall % MINUTE
    assert buyers[1].ask().status == "limit"
    over(bed, MINUTE)
    assert buyers[0].ask().count == 20
    assert (counted(bed, MINUTE), counted(bed, DAY)) == (20, 70)


def test_a_limit_that_is_raised_lets_the_difference_through(bed: PoolBed) -> None:
    """Counters count what was granted, so the rest of the window has what the new limit leaves, and no more."""
    one = Buyer(bed, "a", (20, MINUTE, False))
    assert one.ask().count == 20
    one.done(20, 20)
    assert one.ask().status == "limit"
    one.limits = ((25, MINUTE, False),)
    assert one.ask().count == 5


def test_what_was_not_delivered_is_given_back(bed: PoolBed) -> None:
    """The limits count what was delivered, also where that was more than granted."""
    one = Buyer(bed, "a", (100, MINUTE, False))
    one.ask()
    one.done(13, 13)
    assert counted(bed, MINUTE) == 13
    one.ask()
    one.done(25, 25)
    assert counted(bed, MINUTE) == 38


def test_a_window_that_is_over_is_not_corrected(bed: PoolBed) -> None:
    """What a purchase came to is never set off against a window in which it was not granted."""
    one = Buyer(bed, "a", (100, 200, False))
    one.ask()
    time.sleep(0.21)
    one.done(25, 25)
    assert counted(bed, 200) == 20


def test_a_buyer_that_dies_has_bought(bed: PoolBed) -> None:
    """What was granted and never answered for counts, also when its buyer speaks after the duty has passed on."""
    one, other = (Buyer(bed, sid, (50, MINUTE, False)) for sid in "ab")
    one.ask()
    bed.pass_time(SILENCE)
    assert other.ask().count == 20
    one.done(0)
    assert counted(bed, MINUTE) == 40
    assert other.ask().count == 10


def test_calls_are_counted_apart(bed: PoolBed) -> None:
    """A limit of calls counts each grant as one, never gives back, and holds beside one of the same window."""
    one = Buyer(bed, "a", (1000, MINUTE, False), (2, MINUTE, True))
    for _ in range(2):
        assert one.ask().count == 20
        one.done(0)
    answer = one.ask()
    assert (answer.status, answer.limit) == ("limit", 2)
    assert (counted(bed, MINUTE), counted(bed, MINUTE, is_call=True)) == (0, 2)


def test_nothing_is_counted_where_a_limit_forbids(bed: PoolBed) -> None:
    """One limit that is reached spends nothing of the others."""
    one = Buyer(bed, "a", (1000, DAY, False), (5, MINUTE, False), (7, 7 * DAY, True))
    one.ask()
    one.done(5, 5)
    assert one.ask().status == "limit"
    assert (counted(bed, DAY), counted(bed, 7 * DAY, is_call=True)) == (5, 1)


def test_counters_go_by_themselves(bed: PoolBed) -> None:
    """A counter expires some time after its window, and a lost expiry is set again with the next count."""
    one = Buyer(bed, "a", (100, MINUTE, False))
    key = bed.pool.counter(MINUTE, False)
    one.ask()
    assert MINUTE < bed.client.pttl(key) <= 2 * MINUTE
    bed.client.persist(key)
    one.done(20, 20)
    assert MINUTE < bed.client.pttl(key) <= 2 * MINUTE


def test_pools_do_not_share_their_limits(bed: PoolBed) -> None:
    """Another pool of the namespace has counters of its own, in the same slot of a cluster."""
    space = bed.scope.namespace
    one, other = space.pool("proxy", "one"), space.pool("proxy", "other")
    assert one.counter(MINUTE, False) != other.counter(MINUTE, False)
    assert one.counter(MINUTE, False).startswith(space.prefix)
