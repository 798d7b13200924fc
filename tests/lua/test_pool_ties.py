"""pool_take: sticky keys, each tied to one resource across leases, sessions and sites."""

from __future__ import annotations

import pytest

from scrapy_lease.store.pool_scripts import Tie
from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, Member, PoolBed, ids


def lease_of(member: Member, key: str, site: str = "shop") -> object:
    """The one lease that a take for a key gives."""
    (lease,) = member.tie(Tie(key, site)).leases
    return lease


def kept(bed: PoolBed) -> int:
    """How many ties there are."""
    hash_, ends = bed.pool.ties
    assert set(bed.client.hkeys(hash_)) == set(bed.client.zrange(ends, 0, -1))
    return bed.client.hlen(hash_)


def test_a_new_key_is_tied_to_what_is_leased_for_it(bed: PoolBed) -> None:
    """Each key of a call gets a lease on top of what the sites want, and is tied to that; two keys to two."""
    member = bed.member()
    bed.add(*range(5))
    take = member.tie(Tie("k", "shop"), Tie("l", "shop"), Tie("m", "news"), want=1)
    assert len(take.leases) == 4
    assert len(set(take.tied)) == 3
    assert set(take.tied) < set(ids(take))
    assert kept(bed) == 3


def test_the_same_key_gets_the_same_resource(bed: PoolBed) -> None:
    """Also another session, after the first gave it back, and ahead of what was idle for longer."""
    one, other = bed.member("a"), bed.member("b")
    bed.add(*range(5))
    first = one.tie(Tie("k", "shop"))
    one.back(*first.leases)
    for member in (other, one, other):
        bed.pass_time(10)
        take = member.tie(Tie("k", "shop"))
        assert take.tied == first.tied == tuple(ids(take))
        member.back(*take.leases)


def test_keys_are_not_shown(bed: PoolBed) -> None:
    """The store holds 16 bytes for a key, in which nobody reads the name of an account."""
    bed.add("p1")
    bed.member().tied("account:ann")
    for key in bed.client.scan_iter():
        assert b"account:ann" not in (bed.client.dump(key) or b"") + key
    assert [len(key) for key in bed.client.hkeys(bed.pool.ties[0])] == [16]


def test_a_key_waits_while_another_has_its_resource(bed: PoolBed) -> None:
    """However much else is free, it gets nothing until that is given back; the session waits like any other."""
    one, other, third = bed.member("a"), bed.member("b"), bed.member("c")
    bed.add(*range(5))
    first = one.tie(Tie("k", "shop"))
    take = other.tie(Tie("k", "shop"))
    assert (take.tied, take.leases) == (first.tied, ())
    assert third.take().standing.waiting == 1
    assert len(other.tie(Tie("k", "shop"), want=2).leases) == 2
    one.back(*first.leases)
    take = other.tie(Tie("k", "shop"))
    assert take.tied == tuple(ids(take)) == first.tied
    assert third.take().standing.waiting == 0


def test_what_the_session_has_already_is_not_leased_again(bed: PoolBed) -> None:
    """A key that is tied to a lease of the session's own gets that, and nothing more."""
    member = bed.member()
    bed.add(*range(3))
    first = member.tie(Tie("k", "shop"))
    again = member.tie(Tie("k", "news"))
    assert (again.tied, again.leases) == (first.tied, ())
    assert member.take().standing.free == 2


def test_two_keys_of_one_resource(bed: PoolBed) -> None:
    """Both tied to what is free: it is leased once, and both are told."""
    member = bed.member()
    bed.add("p1", "p2", "p3")
    (lease,) = member.tie(Tie("k", "shop")).leases
    assert member.tied("l", offer=lease.id) == lease.id
    member.back(lease)
    take = member.tie(Tie("k", "shop"), Tie("l", "shop"))
    assert take.tied == (lease.id, lease.id)
    assert ids(take) == [lease.id]
    assert bed.client.zcard(bed.pool.key("waiting")) == 0


def test_an_offer_is_taken_by_what_is_tied_to_nothing(bed: PoolBed) -> None:
    """A new key is tied to a lease that the session offers, and nothing is leased; one that has its own keeps that."""
    member, other = bed.member("a"), bed.member("b")
    bed.add(*range(3))
    offered, second = member.get(2)
    assert member.tied("k", offer=offered.id) == offered.id
    assert member.tied("k", offer=second.id) == offered.id
    assert other.take().standing.free == 1
    assert other.tied("k") == offered.id


@pytest.mark.parametrize("fault", ["another's", "free", "rests", "unknown"])
def test_an_offer_that_is_none(bed: PoolBed, fault: str) -> None:
    """What the session has not, or what rests for the site, no key is tied to: it gets what is free."""
    member, other = bed.member("a"), bed.member("b")
    bed.add("p1", "p2", "p3", "p4")
    (lease,) = member.get() if fault != "another's" else other.get()
    if fault == "rests":
        member.say(lease, "ban", "shop")
    elif fault == "free":
        member.back(lease)
    take = member.tie(Tie("k", "shop", "nothing" if fault == "unknown" else lease.id))
    assert take.tied == tuple(ids(take)) != (lease.id,)


@pytest.mark.parametrize("how", ["gone", "broken", "ban", "drain", "revoke", "expired", "short"])
def test_a_key_is_tied_anew_when_its_resource_cannot_serve(bed: PoolBed, how: str) -> None:
    """Gone, resting for all or for the site, taken aside, at its end: the key gets another, and stays with that."""
    member = bed.member()
    bed.add("p1", "p2", "p3", "p4", life=HOUR)
    (lease,) = member.tie(Tie("k", "shop")).leases
    if how in ("gone", "broken"):
        member.say(lease, how, *(["refused"] if how == "gone" else []))
    elif how == "ban":
        member.say(lease, "ban", "shop")
    if how not in ("gone", "broken"):
        member.back(lease)
    if how in ("drain", "revoke"):
        bed.change(how, lease.id)
    elif how == "expired":
        bed.expire(lease.id)
    take = member.tie(Tie("k", "shop"), margin=2 * HOUR if how == "short" else 0)
    if how == "short":
        assert (take.tied, take.leases) == (("",), ())
        return
    assert take.tied == tuple(ids(take)) != (lease.id,)
    bed.change("undrain", lease.id)
    assert member.tied("k") == take.tied[0]


def test_a_rest_for_another_site_does_not_matter(bed: PoolBed) -> None:
    """A key stays with what rests elsewhere, and takes what is due for a probe."""
    member = bed.member()
    bed.add("p1", "p2", "p3", "p4")
    (lease,) = member.tie(Tie("k", "shop")).leases
    member.say(lease, "ban", "news")
    member.back(lease)
    (again,) = member.tie(Tie("k", "shop")).leases
    assert (again.id, again.rests["news"].left > 0) == (lease.id, True)
    member.back(again)
    bed.pass_time(20_000)
    (probe,) = member.tie(Tie("k", "news")).leases
    assert (probe.id, probe.rests["news"].left) == (lease.id, 0)


def test_a_key_avoids_what_refused_it(bed: PoolBed) -> None:
    """What it must avoid it is not tied to any more, if there is another; otherwise it stays."""
    member = bed.member()
    bed.add("p1", "p2")
    (lease,) = member.tie(Tie("k", "shop")).leases
    other = member.tied("k", avoid=lease.id)
    assert other not in ("", lease.id)
    assert member.tied("k", avoid=f"{lease.id} {other}") == ""
    assert member.tied("k") == other


def test_an_identity_of_the_same_exit_is_as_good(bed: PoolBed) -> None:
    """Where another identity of its exit address is in play a key gets that: to a site they are one."""
    member, other = bed.member("a"), bed.member("b")
    bed.add("u1", "u2", exit="10.0.0.1")
    bed.add("p1", "p2")
    leases = {lease.id: lease for lease in member.get(4)}
    (name,) = leases.keys() & {"u1", "u2"}
    assert member.tied("k", offer=name) == name
    member.back(leases["p1"], leases["p2"])
    member.back(leases[name])
    twin = ({"u1", "u2"} - {name}).pop()
    assert bed.place(name, "10.0.0.1") == "behind"
    assert other.tied("k") == twin
    assert bed.holder(twin) == "b"


def test_what_is_free_later_is_waited_for(bed: PoolBed) -> None:
    """A resource that was given back with a delay is its keys' when that is over."""
    member = bed.member()
    bed.add("p1", "p2")
    (lease,) = member.tie(Tie("k", "shop")).leases
    member.say(lease, "back", 5000)
    take = member.tie(Tie("k", "shop"))
    assert (take.tied, take.leases) == ((lease.id,), ())
    bed.pass_time(5000)
    assert ids(member.tie(Tie("k", "shop"))) == [lease.id]


def test_a_tie_ends_when_it_was_not_used_for_so_long(bed: PoolBed) -> None:
    """It is cleared away by whoever takes, a hundred a call; use prolongs it."""
    member = bed.member(ttl=10 * HOUR)
    bed.add("p1")
    (lease,) = member.get()
    member.tie(*(Tie(f"k{number}", "shop", lease.id) for number in range(150)), Tie("used", "shop", lease.id))
    assert kept(bed) == 151
    bed.pass_time(HOUR - 1000)
    assert member.tie(Tie("used", None, lease.id)).tied == (lease.id,)
    bed.pass_time(1000)
    assert [(member.take(), kept(bed))[1] for _ in range(2)] == [51, 1]
    bed.add("p2")
    assert member.tied("k0", avoid=lease.id) == "p2"


def test_a_tie_that_is_over_counts_for_nothing_before_it_is_cleared_away(bed: PoolBed) -> None:
    """With more than a call clears away, none of them has its resource for longer than it should."""
    member = bed.member(ttl=10 * HOUR)
    bed.add("p1", "p2")
    (lease,) = member.get()
    member.tie(*(Tie(f"k{number:03}", "shop", lease.id) for number in range(202)))
    bed.pass_time(HOUR)
    (other,) = member.get()
    take = member.tie(*(Tie(f"k{number:03}", "shop", other.id) for number in range(202)))
    assert set(take.tied) == {other.id}


def test_a_key_in_use_is_renewed_whoever_lost_it(bed: PoolBed) -> None:
    """A server that lost the tie hears of it again, also in its grace; one that has another says which."""
    member, other = bed.member("a"), bed.member("b")
    bed.add("p1", "p2")
    (lease,) = member.tie(Tie("k", "shop")).leases
    bed.client.delete(*bed.pool.ties)
    assert member.tie(Tie("k", None, lease.id)).tied == (lease.id,)
    assert other.tied("k") == lease.id
    bed.client.delete(*bed.pool.ties)
    (theirs,) = other.tie(Tie("k", "shop")).leases
    assert member.tie(Tie("k", None, lease.id)).tied == (theirs.id,)
    bed.client.delete(*bed.pool.ties)
    assert other.tie(Tie("k", None, lease.id)).tied == ("",)
    assert kept(bed) == 0


def test_in_the_grace_of_a_new_server_no_key_is_tied(own_bed: PoolBed) -> None:
    """What is in use is kept; a key of which the server knows nothing may be in use elsewhere, so it waits."""
    member = own_bed.member("a")
    own_bed.add("p1", "p2")
    (lease,) = member.tie(Tie("k", "shop")).leases
    own_bed.restart()
    member.report(lease)
    own_bed.client.delete(*own_bed.pool.ties)
    take = member.tie(Tie("k", None, lease.id), Tie("l", "shop", lease.id))
    assert (take.standing.grace, take.tied) == (True, (lease.id, ""))
    own_bed.pass_time(TTL - 5000)
    own_bed.run(own_bed.scripts.beat("a", ttl=TTL, node="host"))
    own_bed.pass_time(5000)
    assert member.tied("l", offer=lease.id) == lease.id


def test_a_repeated_take_ties_nothing(bed: PoolBed) -> None:
    """It tells what its keys are tied to now, and gives the leases it gave; a key without a tie stays without."""
    member = bed.member()
    bed.add("p1")
    take = member.tie(Tie("k", "shop"), Tie("l", "shop"), n=1)
    assert take.tied in (("p1", ""), ("", "p1"))
    bed.add("p2")
    before = bed.dump()
    again = member.tie(Tie("k", "shop"), Tie("l", "shop"), n=1)
    assert (again.tied, ids(again)) == (take.tied, ids(take))
    assert bed.dump() == before


def test_nobody_before_is_passed_for_a_key(bed: PoolBed) -> None:
    """What comes free is for the longest waiter, whatever key is tied to it; the key's turn is the next."""
    holder, first, second = bed.member("a"), bed.member("b"), bed.member("c")
    bed.add("p1")
    (lease,) = holder.tie(Tie("k", "shop")).leases
    assert first.get(1, "news") == ()
    assert second.tie(Tie("k", "shop")).leases == ()
    holder.back(lease)
    assert second.tie(Tie("k", "shop")).leases == ()
    (lease,) = first.get(1, "news")
    first.back(lease)
    assert ids(second.tie(Tie("k", "shop"))) == ["p1"]


def test_at_a_paused_site_no_key_is_tied(bed: PoolBed) -> None:
    """While the pause lasts nothing is leased; when it is over one lease is the probe, for a key if it is a key's."""
    member = bed.member("a", ttl=10 * HOUR)
    other = bed.member("b", ttl=10 * HOUR)
    bed.add("p1", "p2")
    for lease in member.get(2):
        member.say(lease, "ban", "shop")
        member.back(lease)
    take = other.tie(Tie("k", "shop"), Tie("l", "shop"), want=1)
    assert (take.tied, take.leases, take.pauses[0] > 0) == (("", ""), (), True)
    bed.pass_time(take.pauses[0] + 1)
    take = other.tie(Tie("k", "shop"), Tie("l", "shop"), want=1)
    assert (len(take.leases), take.pauses) == (1, (-1,))
    assert sorted(take.tied) == ["", take.leases[0].id]
