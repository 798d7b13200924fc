"""pool_register, pool_change: what providers and operators do to a pool."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.pool_scripts import Resource
from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, PoolBed, ids, resource, wall


def test_each_is_answered(bed: PoolBed) -> None:
    """New, known, expired already, revoked: each entry has its answer, also within one call."""
    bed.add("known", "revoked")
    bed.change("revoke", "revoked")
    rows = [resource("new"), resource("known"), resource("old", life=-1000), resource("revoked"), resource("new")]
    assert bed.register(*rows) == "+=.x="
    assert [bed.place(name) for name in ("new", "known", "old", "revoked")] == ["free", "free", "gone", "aside"]


def test_a_leased_one_keeps_its_lease(bed: PoolBed) -> None:
    """Registered again while leased, a resource has the new body and expiry, the lease it had, and its exit."""
    member = bed.member()
    bed.add("p1", life=1000, exit="10.0.0.1")
    taken = member.take(("", 1), n=1)
    assert bed.register(resource("p1", life=HOUR, exit="10.0.0.2", body=b"other")) == "="
    (again,) = member.take(("", 1), n=1).leases
    assert (again.fence, again.body, again.exit) == (taken.leases[0].fence, b"other", "10.0.0.1")
    assert again.life is not None
    assert again.life > 1000
    assert member.back(again) == "+"
    assert bed.place("p1") == "free"


def test_an_expired_lease_that_is_prolonged_comes_back(bed: PoolBed) -> None:
    """What the provider gives more time while it is leased is free afterwards, and expires when it says now."""
    member = bed.member()
    bed.add("p1", life=HOUR)
    (lease,) = member.get()
    bed.expire("p1")
    member.take()
    bed.add("p1", life=HOUR)
    member.back(lease)
    assert bed.place("p1") == "free"
    bed.expire("p1")
    member.take()
    assert bed.place("p1") == "gone"


def test_a_resting_one_goes_on_resting(bed: PoolBed) -> None:
    """To be listed again by its provider mends nothing: rests for a site and for all stay."""
    member = bed.member()
    bed.add(*range(9))
    broken, banned = member.get(2)
    member.say(broken, "broken")
    member.say(banned, "ban", "shop")
    member.back(banned)
    assert bed.add(broken.id, banned.id, life=HOUR) == "=="
    assert (bed.place(broken.id), bed.place(banned.id)) == ("resting", "spotted")


def test_an_exit_that_moves(bed: PoolBed) -> None:
    """A free resource found behind another exit counts there; what waited behind its old exit comes forward."""
    bed.add("u1", "u2", exit="10.0.0.1")
    bed.add("v1", exit="10.0.0.2")
    assert bed.place("u2", "10.0.0.1") == "behind"
    bed.register(resource("u1", exit="10.0.0.2"))
    assert (bed.place("u1", "10.0.0.2"), bed.place("u2")) == ("behind", "free")
    assert sorted(ids(bed.member().get(9))) == ["u2", "v1"]


def test_events_tell_the_exit(bed: PoolBed) -> None:
    """Where a resource comes out is told when it is new and when it moves: it is known when the resource is gone."""
    member = bed.member()
    bed.add("p1", exit="10.0.0.1")
    bed.add("p1", exit="10.0.0.1")
    bed.add("p1", exit="10.0.0.2")
    (lease,) = member.get()
    bed.add("p1", exit="10.0.0.3")
    member.back(lease)
    bed.add("p1", exit="10.0.0.3")
    told = [(event["what"], event["why"]) for event in bed.events() if event["what"] in ("new", "moved")]
    assert told == [("new", "10.0.0.1"), ("moved", "10.0.0.2"), ("moved", "10.0.0.3")]


def test_what_comes_together_is_not_handed_out_together(bed: PoolBed) -> None:
    """The spread places what ends together among what was there before."""
    bed.register(*(resource(f"early-{tenth}", life=600_000, spread=100 * tenth) for tenth in range(10)))
    bed.pass_time(60_000)
    bed.register(*(resource(f"late-{tenth}", life=600_000, spread=100 * tenth) for tenth in range(10)))
    first = ids(bed.member(ttl=HOUR).get(10))
    assert 0 < sum(name.startswith("late") for name in first) < 10


def test_numbered_by_a_session_not_from_outside(bed: PoolBed) -> None:
    """A session's late copy brings back nothing that is gone since; from outside every call counts."""
    member = bed.member()
    assert member.register(resource("p1"), n=1) == "+"
    (lease,) = member.get()
    member.say(lease, "gone", "refused")
    assert member.register(resource("p1"), n=1) == "+"
    assert bed.place("p1") == "gone"
    member.register(n=2)
    with pytest.raises(StoreRefused, match="older"):
        member.register(resource("p1"), n=1)
    assert bed.add("p1") == "+"


@pytest.mark.parametrize(("name", "exit"), [("a b", ""), ("", ""), ("a\0b", ""), ("a", "\n"), ("a", "x" * 1000)])
def test_what_cannot_be_a_name_is_refused(bed: PoolBed, name: str, exit: str) -> None:
    """Ids and exits are parts of members and events: no spaces, no control characters."""
    with pytest.raises(StoreRefused):
        bed.register(Resource(name, b"", 0, exit))


def test_a_session_that_nobody_knows_registers_nothing(bed: PoolBed) -> None:
    """What a server that lost the session could not tell from a late copy is refused."""
    member = bed.member()
    bed.client.delete(bed.scope.namespace.session("a"))
    with pytest.raises(SessionLost):
        member.register(resource("p1"))
    assert bed.place("p1") == "gone"


def test_drained(bed: PoolBed) -> None:
    """A drained resource is given to nobody; its holder may go on; undrained it is as before."""
    member = bed.member()
    bed.add("p1", "p2")
    (lease,) = member.get()
    other = ({"p1", "p2"} - {lease.id}).pop()
    assert bed.change("drain", "p1", "p2", "p3") == "++-"
    assert bed.change("drain", "p1") == "="
    taken = member.take(("", 1))
    assert (taken.leases, taken.recalled) == ((), ())
    assert member.back(lease) == "+"
    assert (bed.place(lease.id), bed.place(other)) == ("aside", "aside")
    assert bed.change("undrain", "p1", "p2") == "++"
    assert len(member.get(2)) == 2


def test_a_drained_one_leaves_its_exit(bed: PoolBed) -> None:
    """What stands behind a drained resource's exit comes forward once nobody holds it."""
    member = bed.member()
    bed.add("u1", "u2", exit="10.0.0.1")
    (lease,) = member.get()
    bed.change("drain", "u1")
    assert bed.place("u2", "10.0.0.1") == "behind"
    member.back(lease)
    assert (bed.place("u1"), bed.place("u2")) == ("aside", "free")
    bed.change("undrain", "u1")
    assert bed.place("u1", "10.0.0.1") == "behind"


def test_revoked(bed: PoolBed) -> None:
    """A revoked resource is asked back at every call; nobody else gets it, and no provider brings it back."""
    member = bed.member()
    bed.add("p1")
    (lease,) = member.get()
    assert bed.change("revoke", "p1") == "+"
    assert member.take().recalled == member.take().recalled == ("p1",)
    assert bed.holder("p1") == "a"
    member.back(lease)
    assert member.take().recalled == ()
    assert bed.add("p1") == "x"
    assert member.get() == ()
    assert bed.change("undrain", "p1") == "+"
    assert ids(member.get()) == ["p1"]


def test_freed(bed: PoolBed) -> None:
    """A freed lease is over at once; others get the resource, and its exit, when its holder must know."""
    member, other = bed.member("a", ttl=TTL), bed.member("b", ttl=TTL)
    bed.add("u1", "u2", exit="10.0.0.1")
    (lease,) = member.get()
    member.say(lease, "ban", "shop")
    assert bed.change("free", "u1") == "+"
    assert member.take().recalled == ("u1",)
    assert other.get() == ()
    assert member.back(lease) == "-"
    assert member.take().recalled == ()
    bed.pass_time(TTL - 5000)
    for session in ("a", "b"):
        bed.run(bed.scripts.beat(session, ttl=TTL, node="host"))
    assert other.get() == ()
    bed.pass_time(5000)
    (theirs,) = other.get()
    assert (theirs.id, theirs.rests, theirs.strikes) == ("u1", {}, 0)


def test_freed_from_its_rests(bed: PoolBed) -> None:
    """An operator can end the rests of a resource, for a site and for all, and what put it aside."""
    member = bed.member()
    bed.add(*range(9))
    banned, broken, drained = member.get(3)
    member.say(banned, "ban", "shop")
    member.back(banned, drained)
    member.say(broken, "broken")
    bed.change("drain", drained.id)
    assert bed.change("free", banned.id, broken.id, drained.id) == "+++"
    assert {bed.place(lease.id) for lease in (banned, broken, drained)} == {"free"}
    leases = member.get(9)
    assert {(lease.strikes, tuple(lease.rests)) for lease in leases} == {(0, ())}


def test_a_past_expiry_of_a_known_one_counts(bed: PoolBed) -> None:
    """A provider may also take a resource back earlier than it said."""
    member = bed.member()
    bed.add("p1", life=HOUR)
    bed.register(Resource("p1", b"", wall() - 5))
    assert member.get() == ()
    assert bed.place("p1") == "gone"
