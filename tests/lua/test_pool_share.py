"""pool_take: who waits, for whom what comes free is kept, and what those with more are asked to give back."""

from __future__ import annotations

from collections import Counter

import pytest

from scrapy_lease.store.pool_scripts import Lease
from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, PoolBed, ids


class Node:
    """A node that always wants more, gives back what it is asked for, and calls as often as a waiter must."""

    def __init__(self, bed: PoolBed, sid: str, want: int) -> None:
        self.bed = bed
        self.member = bed.member(sid, ttl=10 * HOUR)
        self.want = want
        self.leases: list[Lease] = []
        self.served = 0

    def turn(self) -> None:
        """One call, and what it asks for."""
        take = self.member.take(("", self.want - len(self.leases)))
        if take.standing.expired:
            self.bed.recover(take.standing.expired)
        self.leases += take.leases
        self.served += len(self.leases)
        for _ in range(take.standing.yields):
            self.member.back(self.leases.pop(0))


def test_what_comes_free_is_for_the_longest_waiter(bed: PoolBed) -> None:
    """Whoever waits longest gets the freed resource, however often others ask before."""
    holder, first, second = bed.member("a"), bed.member("b"), bed.member("c")
    bed.add("p1")
    (lease,) = holder.get()
    assert first.get() == second.get() == ()
    holder.back(lease)
    assert holder.get() == second.get() == ()
    assert ids(first.get()) == ["p1"]


def test_a_waiter_that_cannot_use_it_does_not_hold_it_up(bed: PoolBed) -> None:
    """What the longest waiter has had a chance at and did not take serves others, and it keeps its place."""
    holder, picky, other = bed.member("a"), bed.member("b"), bed.member("c")
    bed.add("p1", "p2")
    first, second = holder.get(2)
    holder.say(first, "ban", "shop")
    assert picky.get(1, "shop") == other.get(1, "news") == ()
    holder.back(first)
    assert other.get(1, "news") == ()
    assert picky.get(1, "shop") == ()
    assert ids(other.get(1, "news")) == [first.id]
    holder.back(second)
    assert other.get(1, "news") == ()
    assert ids(picky.get(1, "shop")) == [second.id]


@pytest.mark.parametrize("how", ["silent", "dead", "content"])
def test_a_waiter_that_left_holds_nothing_up(bed: PoolBed, how: str) -> None:
    """Nothing is kept for who died, does not call any more, or has said that it wants nothing any more."""
    holder, gone, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=3500), bed.member("c", ttl=HOUR)
    bed.add("p1")
    (lease,) = holder.get()
    assert gone.get() == other.get() == ()
    if how == "content":
        gone.take()
    elif how == "silent":
        bed.pass_time(3001)
    else:
        bed.run(bed.scripts.close("b"))
    holder.back(lease)
    assert ids(other.get()) == ["p1"]


def test_nobody_takes_above_the_share_while_others_wait(bed: PoolBed) -> None:
    """With somebody waiting for it, a session gets no more than the fair share of what there is."""
    rich, poor = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    bed.add(*range(6))
    leases = rich.get(6)
    assert poor.get(6) == ()
    rich.back(*leases[:4])
    assert len(rich.get(9)) == 1
    assert len(poor.get(9)) == 3


def test_without_others_one_may_have_all(bed: PoolBed) -> None:
    """The share binds only while others wait."""
    rich, other = bed.member("a"), bed.member("b")
    bed.add(*range(6))
    assert len(other.get(1)) == 1
    assert len(rich.get(9)) == 5


def test_those_above_the_share_are_asked_back(bed: PoolBed) -> None:
    """A session with more than its share is told how many leases others miss; one within it is told nothing."""
    rich, poor = bed.member("a"), bed.member("b")
    bed.add(*range(10))
    leases = rich.get(10)
    assert rich.take().standing.yields == 0
    assert poor.get(3) == ()
    standing = rich.take().standing
    assert (standing.waiting, standing.share, standing.yields) == (1, 5, 3)
    rich.back(*leases[:3])
    assert rich.take().standing.yields == 0
    assert len(poor.get(3)) == 3
    assert poor.take().standing.yields == 0


def test_what_is_left_over_goes_round(bed: PoolBed) -> None:
    """What the share leaves over is given out too, to nobody all of it."""
    one, other = bed.member("a"), bed.member("b")
    bed.add(*range(4))
    assert len(one.get(4)) == 4
    assert other.get(9) == ()
    bed.add(*range(4, 11))
    assert [len(session.get(9)) for session in (one, other)] == [1, 5]
    assert [len(session.get(9)) for session in (one, other)] == [1, 0]


@pytest.mark.parametrize(("resources", "sessions"), [(2, 3), (1, 5), (3, 12), (7, 3)])
def test_leases_rotate(bed: PoolBed, resources: int, sessions: int) -> None:
    """With fewer resources than sessions each has its turn, and about as much of them as the others."""
    bed.add(*range(resources))
    nodes = [Node(bed, f"s{number:02}", resources) for number in range(sessions)]
    for _ in range(12 * sessions):
        bed.age(1000)
        for node in nodes:
            node.turn()
    served = Counter({node.member.sid: node.served for node in nodes})
    assert min(served.values()) > 0
    assert max(served.values()) <= 2 * min(served.values()), served


def test_the_starving_are_served(bed: PoolBed) -> None:
    """Twelve sessions, of which eight come when all is taken: within a few rounds each has a lease."""
    bed.add(*range(24))
    early = [Node(bed, f"e{number}", 6) for number in range(4)]
    for node in early:
        node.turn()
    late = [Node(bed, f"l{number}", 6) for number in range(8)]
    for _ in range(3):
        for node in (*early, *late):
            node.turn()
    assert {len(node.leases) for node in (*early, *late)} == {2}


def test_a_delay_that_ends_is_for_the_longest_waiter(bed: PoolBed) -> None:
    """What is given back for later is kept, when its time has come, for who has waited longest: whoever calls first."""
    holder, waiter = bed.member("a"), bed.member("b")
    bed.add("p1")
    (lease,) = holder.get()
    assert waiter.get() == ()
    holder.say(lease, "back", 2000)
    assert waiter.get() == holder.get() == ()
    bed.pass_time(2000)
    assert holder.get() == ()
    assert ids(waiter.get()) == ["p1"]


def test_what_is_kept_is_of_use(bed: PoolBed) -> None:
    """What rests for a site is not what is kept for who waits for that site: others cannot take the rest instead."""
    holder, first, second = bed.member("a"), bed.member("b"), bed.member("c")
    bed.add("p1", "p2", "p3")
    leases = {lease.id: lease for lease in holder.get(3)}
    holder.say(leases["p1"], "ban", "shop")
    holder.say(leases["p2"], "ban", "news")
    assert first.get(1, "shop") == second.get(1, "shop") == ()
    holder.back(leases["p1"], leases["p2"])
    assert second.get(1, "shop") == ()
    assert ids(first.get(1, "shop")) == ["p2"]
    assert second.get(1, "shop") == ()
    assert ids(second.get(1, "news")) == ["p1"]


def test_what_is_free_later_is_no_share(bed: PoolBed) -> None:
    """Leases rotate when fewer can be handed out now than there are sessions, whatever comes free in an hour."""
    holder, waiter = bed.member("a"), bed.member("b")
    bed.add("p1", "p2")
    first, second = holder.get(2)
    holder.say(first, "back", HOUR)
    assert waiter.get() == ()
    bed.age(1000)
    assert holder.take().standing.yields == 1
    holder.back(second)
    assert ids(waiter.get()) == [second.id]


def test_what_a_dead_session_held_is_shared(bed: PoolBed) -> None:
    """A process dies with more than its share: once its time to live is over, whoever waits is served."""
    bed.add(*range(4))
    dying = Node(bed, "dead", 3)
    bed.run(bed.scripts.open("dead", ttl=TTL, config="c", fresh=True, info={}))
    dying.turn()
    nodes = [Node(bed, f"s{number}", 1) for number in range(3)]
    for _ in range(3):
        for node in nodes:
            node.turn()
    assert sorted(len(node.leases) for node in nodes) == [0, 0, 1]
    bed.pass_time(TTL)
    for _ in range(3):
        bed.age(1000)
        for node in nodes:
            node.turn()
    assert [len(node.leases) for node in nodes] == [1, 1, 1]
