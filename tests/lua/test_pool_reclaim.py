"""pool_reclaim: what a session leaves behind in a pool serves others, when it is over and not before."""

from __future__ import annotations

import pytest

from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, Member, PoolBed, ids


@pytest.fixture
def living(bed: PoolBed) -> Member:
    return bed.member("living", ttl=10 * HOUR)


def test_the_living_are_left_alone(bed: PoolBed, living: Member) -> None:
    """Nothing is taken from a session before its deadline, and nobody is told that it is over."""
    bed.add("p1")
    living.get()
    other = bed.member("b")
    other.get()
    assert bed.recover("living") == (0, -1)
    assert (other.take().standing.expired, bed.holder("p1")) == ("", "living")


def test_a_dead_sessions_resources_serve_others(bed: PoolBed, living: Member) -> None:
    """After the deadline, and the grace after it, a dead session is named and its leases are ended; not before."""
    dead = bed.member("dead")
    bed.add("p1", "p2")
    held = dead.get(2)
    bed.pass_time(TTL - 100)
    assert living.take(("", 1), grace=20_000).standing.expired == ""
    bed.pass_time(10_000)
    assert living.take(("", 1), grace=20_000).standing.expired == ""
    assert bed.recover("dead", grace=20_000) == (0, -1)
    bed.pass_time(11_000)
    assert living.take(("", 1), grace=20_000).standing.expired == "dead"
    assert bed.recover("dead", grace=20_000) == (2, 0)
    (lease,) = living.get()
    assert lease.fence > held[0].fence
    assert dead.back(*held) == "--"
    assert bed.holder(lease.id) == "living"
    assert living.take().standing.expired == ""


def test_a_session_that_nobody_remembers_is_dead(bed: PoolBed, living: Member) -> None:
    """Forgotten by the backlog before the pool, it has its grace from when it is missed."""
    bed.add("p1")
    bed.member("gone").get()
    bed.client.zrem(bed.scope.namespace.sessions, "gone")
    assert bed.recover("gone", grace=5000) == (0, -1)
    bed.pass_time(5000)
    assert bed.recover("gone", grace=5000) == (1, 0)


def test_a_closed_session_needs_no_grace(bed: PoolBed, living: Member) -> None:
    """What a session left behind on closing serves others at once."""
    closing = bed.member("closing")
    bed.add("p1")
    closing.get()
    bed.run(bed.scripts.close("closing"))
    assert living.take(("", 1), grace=20_000).standing.expired == "closing"
    assert bed.recover("closing", grace=20_000) == (1, 0)
    assert ids(living.take(("", 1), grace=20_000)) == ["p1"]
    assert [event["why"] for event in bed.events() if event["what"] == "back"] == ["closed"]


def test_a_hundred_at_a_time(bed: PoolBed, living: Member) -> None:
    """One call ends at most a hundred leases and tells how many are left; then the session is forgotten."""
    dead = bed.member("dead")
    bed.add(*range(230))
    dead.get(999)
    bed.pass_time(TTL + 1)
    assert [bed.recover("dead") for _ in range(4)] == [(100, 130), (100, 30), (30, 0), (0, 0)]
    assert living.take().standing.free == 230
    left = ("members", "waiting", "asks", "over", "recalls", "leases")
    assert not any(bed.client.exists(bed.pool.key(part)) for part in left)


def test_each_finds_its_place(bed: PoolBed, living: Member) -> None:
    """What a dead session held is free, or drained, revoked, expired, or resting for a site as before."""
    dead = bed.member("dead")
    bed.add("plain", "drained", "revoked", "banned", "u1")
    bed.add("expired", life=HOUR)
    leases = {lease.id: lease for lease in dead.get(6)}
    dead.say(leases["banned"], "ban", "shop")
    bed.change("drain", "drained")
    bed.change("revoke", "revoked")
    bed.expire("expired")
    bed.pass_time(TTL + 1)
    bed.recover("dead")
    places = {name: bed.place(name) for name in leases}
    assert places == {
        "plain": "free", "drained": "aside", "revoked": "aside", "banned": "spotted", "u1": "free", "expired": "gone",
    }  # fmt: skip


def test_a_freed_lease_is_not_ended_twice(bed: PoolBed, living: Member) -> None:
    """A resource that an operator freed, and another session holds by now, stays the other's."""
    dead = bed.member("dead", ttl=TTL)
    bed.add("p1")
    dead.get()
    bed.change("free", "p1")
    bed.pass_time(10 * HOUR)
    other = bed.member("other", ttl=HOUR)
    assert ids(other.get()) == ["p1"]
    assert bed.recover("dead") == (1, 0)
    assert bed.holder("p1") == "other"
    assert bed.member("more").take(("", 1)).leases == ()
