"""pool_take: keys with a resource that is made for each: whoever asks first brings it in, and nobody else gets it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scrapy_lease.store.pool_scripts import Tie
from scrapy_lease.store.taking import Own
from tests.lua.pool_bed import HOUR, PoolBed, ids

MINUTE = 60_000


def key(own: str, *, name: str = "ann", strict: bool = False, life: int = HOUR, avoid: str = "", body: str = "") -> Tie:
    """What a session asks for account *name*, having made *own* for it."""
    made = Own(own, (body or f"body of {own}").encode(), life)
    return Tie(name, "shop", avoid=frozenset(avoid.split()), strict=strict, own=made)


def known(bed: PoolBed) -> set[str]:
    return {name.decode() for name in bed.client.hkeys(bed.pool.key("resources"))}


def test_it_is_brought_in_and_leased_in_one_call(bed: PoolBed) -> None:
    """With the body that was given and the life from now on; the event says so; what else is free stays free."""
    member = bed.member()
    bed.add(*range(3))
    take = member.tie(key("a1"))
    (lease,) = take.leases
    assert (lease.id, lease.body, take.tied) == ("a1", b"body of a1", ("a1",))
    assert lease.life is not None
    assert HOUR - 5000 < lease.life <= HOUR
    assert bed.client.zscore(bed.pool.key("expiries"), "a1") is not None
    assert [event["what"] for event in bed.events() if event["ids"] == "a1"] == ["new", "take"]
    assert bed.place(0) == bed.place(1) == bed.place(2) == "free"


def test_one_without_an_end(bed: PoolBed) -> None:
    """It is never cleared away."""
    (lease,) = bed.member().tie(key("a1", life=0)).leases
    assert lease.life is None
    assert bed.client.zscore(bed.pool.key("expiries"), "a1") is None


@pytest.mark.parametrize("is_strict", [False, True])
def test_two_sessions_make_one_at_once(bed: PoolBed, is_strict: bool) -> None:
    """Who comes first has it; the other waits for that one, what it made is nowhere, and it gets it afterwards."""
    a, b = bed.member("a"), bed.member("b")
    (lease,) = a.tie(key("a1", strict=is_strict)).leases
    take = b.tie(key("b1", strict=is_strict))
    assert (take.leases, take.tied, known(bed)) == ((), ("a1",), {"a1"})
    a.back(lease)
    assert ids(b.tie(key("b2", strict=is_strict))) == ["a1"]
    assert known(bed) == {"a1"}


def test_the_same_one_made_twice(bed: PoolBed) -> None:
    """Two keys whose resource is the same one share it: one session at a time has it."""
    a, b = bed.member("a"), bed.member("b")
    a.tie(key("same", name="one"))
    take = b.tie(key("same", name="two"))
    assert (take.leases, take.tied) == ((), ("same",))


def test_a_call_that_is_repeated(bed: PoolBed) -> None:
    """It gives the lease of the first time, and brings nothing in: its reply was lost, or it comes late."""
    member = bed.member()
    first = member.tie(key("a1"), n=1)
    again = member.tie(key("a2"), n=1)
    assert [(lease.id, lease.fence) for lease in again.leases] == [(lease.id, lease.fence) for lease in first.leases]
    assert (again.tied, known(bed)) == (("a1",), {"a1"})


def test_a_dead_holder(bed: PoolBed) -> None:
    """Its key's resource serves who asks next, as soon as it is over and not before."""
    bed.member("a", ttl=5000).tie(key("a1"))
    b = bed.member("b", ttl=HOUR)
    assert b.tie(key("b1")).leases == ()
    bed.pass_time(6000)
    assert b.tie(key("b2")).standing.expired == "a"
    bed.recover("a")
    assert ids(b.tie(key("b3"))) == ["a1"]
    assert known(bed) == {"a1"}


@pytest.mark.parametrize("fate", ["gone", "ban", "broken", "expire", "revoke", "avoid"])
def test_another_is_made(bed: PoolBed, fate: str) -> None:
    """Where the one it had is gone or may not serve, it gets the new one and keeps that, if it is not for ever."""
    member = bed.member()
    bed.add(*range(3))
    (lease,) = member.tie(key("a1")).leases
    avoid = "a1" if fate == "avoid" else ""
    if fate in ("gone", "ban", "broken"):
        member.say(lease, fate, *{"gone": ["banned"], "ban": ["shop"]}.get(fate, []))
    if fate == "ban":
        member.back(lease)
    if fate == "expire":
        member.back(lease)
        bed.expire("a1")
    if fate == "revoke":
        member.back(lease)
        bed.change("revoke", "a1")
    assert ids(member.tie(key("a2", avoid=avoid))) == ["a2"]
    member.back(*member.tie(key("a3", avoid=avoid)).leases)
    assert member.tie(key("a3", avoid=avoid)).tied == ("a2",)


@pytest.mark.parametrize("fate", ["ban", "broken", "revoke", "drain", "gone"])
def test_for_ever(bed: PoolBed, fate: str) -> None:
    """Tied for ever it gets no other one, whatever was made: it waits for its own, and has that again."""
    member = bed.member()
    bed.add(*range(3))
    (lease,) = member.tie(key("a1", strict=True, life=0)).leases
    if fate in ("ban", "broken", "gone"):
        member.say(lease, fate, *{"ban": ["shop"], "gone": ["expired"]}.get(fate, []))
    if fate in ("ban", "revoke", "drain"):
        member.back(lease)
    if fate in ("revoke", "drain"):
        bed.change(fate, "a1")
    take = member.tie(key("a2", strict=True, life=0))
    assert (take.leases, take.tied) == ((), ("a1",))
    assert "a2" not in known(bed)
    if fate in ("revoke", "drain"):
        bed.change("undrain", "a1")
    elif fate != "gone":
        bed.pass_time(2 * HOUR)
        member = bed.member("b")
    made = key("a1" if fate == "gone" else "a3", strict=True, life=0)
    assert ids(member.tie(made)) == ["a1"]


def test_another_address_of_the_same_one(bed: PoolBed) -> None:
    """Where the key is another one, because the URL is, and the resource is the same, the new body counts."""
    a = bed.member("a")
    a.back(*a.tie(key("a1", name="http")).leases)
    (lease,) = a.tie(key("a1", name="https", body="other")).leases
    assert lease.body == b"other"


def test_nothing_is_shared(bed: PoolBed) -> None:
    """Of what is made for keys nobody gives up any for others, however many wait; nor is any kept for them."""
    a, b = bed.member("a"), bed.member("b")
    (waited_for, *_) = a.tie(*(key(f"a{number}", name=f"k{number}") for number in range(4))).leases
    for _ in range(3):
        assert b.tie(key("b", name="k0"), owned=True).leases == ()
        bed.pass_time(1100)
        look = a.take(owned=True)
        assert (look.standing.yields, look.standing.waiting) == (0, 0)
    a.back(waited_for)
    assert ids(a.tie(key("other", name="k0"), owned=True)) == ["a0"]


def test_what_is_not_offered(bed: PoolBed) -> None:
    """A lease that the session has already is none for a key that has its own."""
    member = bed.member()
    bed.add("plain")
    member.get()
    assert member.tie(replace(key("a1"), offer="plain")).tied == ("a1",)


def test_a_pool_that_is_filled_otherwise_later(bed: PoolBed) -> None:
    """Once no session makes anything for keys, what the pool has is shared again: who has too much gives some up."""
    before = bed.member("before", ttl=HOUR)
    before.back(*before.tie(key("a1", life=0)).leases)
    bed.change("revoke", "a1")
    bed.add(*range(4))
    bed.pass_time(2 * HOUR)
    a, b = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    assert len(a.get(4)) == 4
    assert b.get(2) == ()
    assert a.take().standing.yields == 2
