"""pool_take: who gets what, and what a call clears away on its way."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.messages import GenerationChanged
from scrapy_lease.store.pool_scripts import PoolStanding
from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, PoolBed, ids


def test_a_lease_has_what_its_holder_needs(bed: PoolBed) -> None:
    """A grant carries body, exit and what is left of the provider's time, under a fence that rises with every grant."""
    member = bed.member()
    bed.add("p1", life=HOUR, exit="10.0.0.1")
    (lease,) = member.get()
    assert (lease.id, lease.body, lease.exit, lease.strikes, lease.rests) == ("p1", b"body of p1", "10.0.0.1", 0, {})
    assert lease.life is not None
    assert HOUR - 5000 < lease.life <= HOUR
    member.back(lease)
    (again,) = member.get()
    assert again.fence > lease.fence


def test_no_two_hold_one(bed: PoolBed) -> None:
    """What one session holds no other gets, and nobody gets more than there is."""
    bed.add(*range(5))
    one, other = bed.member("a"), bed.member("b")
    first = one.get(3)
    second = other.get(9)
    assert sorted(ids(first) + ids(second)) == ["0", "1", "2", "3", "4"]
    assert [bed.holder(lease.id) for lease in first] == ["a"] * 3


def test_how_the_pool_stands(bed: PoolBed) -> None:
    """A look takes nothing and counts everything."""
    member = bed.member()
    bed.add(*range(6))
    first, second, third = member.get(3)
    member.say(first, "broken")
    member.say(second, "ban", "shop")
    member.back(second)
    assert member.take(answered=0).standing == PoolStanding(False, 3, 1, 1, 1, 6, 0, 4, 0, 0, "")
    assert bed.holder(third.id) == "a"


def test_the_longest_idle_comes_first(bed: PoolBed) -> None:
    """Resources go round: what was given back last is taken last."""
    member = bed.member()
    bed.add(*range(3))
    seen = []
    for _ in range(6):
        (lease,) = member.get()
        bed.pass_time(10)
        member.back(lease)
        seen.append(lease.id)
    assert seen[:3] == seen[3:]
    assert sorted(seen[:3]) == ["0", "1", "2"]


def test_what_is_given_back_for_later_is_not_free_before(bed: PoolBed) -> None:
    """A delay between two uses is kept, whoever asks."""
    member = bed.member()
    bed.add("p1")
    (lease,) = member.get()
    member.say(lease, "back", 5000)
    assert bed.member("b").get() == ()
    bed.pass_time(5000)
    assert ids(bed.member("c").get()) == ["p1"]


def test_one_identity_of_an_exit_at_a_time(bed: PoolBed) -> None:
    """Several identities behind one exit address count as one; each gets its turn."""
    holder, other = bed.member("a"), bed.member("b")
    bed.add("u1", "u2", "u3", exit="10.0.0.1")
    (lease,) = holder.get()
    seen = [lease.id]
    for _ in range(5):
        assert other.get() == ()
        holder.back(lease)
        holder, other = other, holder
        (lease,) = holder.get()
        seen.append(lease.id)
    assert seen[:3] == seen[3:]
    assert sorted(seen[:3]) == ["u1", "u2", "u3"]


def test_expired_resources_are_cleared_away(bed: PoolBed) -> None:
    """What the provider has taken back is gone from everywhere, whether free or resting."""
    member = bed.member()
    bed.add("free", "resting", "kept", life=HOUR)
    lease = next(lease for lease in member.get(3) if lease.id == "resting")
    member.say(lease, "broken")
    bed.expire("resting")
    bed.expire("kept")
    member.take()
    assert (bed.place("resting"), bed.place("kept"), bed.place("free")) == ("gone", "leased", "leased")


def test_too_little_life_is_no_lease(bed: PoolBed) -> None:
    """A resource with less than the margin left is handed out to nobody."""
    member = bed.member()
    bed.add("short", life=5000)
    bed.add("long", life=60_000)
    assert ids(member.take(("", 2), margin=10_000)) == ["long"]
    assert bed.place("short") == "gone"


def test_an_expired_lease_ends_with_its_holder(bed: PoolBed) -> None:
    """A resource that expires in use stays its holder's, and is gone when it is given back."""
    member = bed.member()
    bed.add("p1", life=HOUR)
    (lease,) = member.get()
    bed.expire("p1")
    assert member.get() == ()
    assert bed.place("p1") == "leased"
    assert member.back(lease) == "+"
    assert bed.place("p1") == "gone"


def test_a_repeated_take_changes_nothing(bed: PoolBed) -> None:
    """The last number again gives the same leases, as far as they are still held; an older one is refused."""
    member = bed.member()
    bed.add(*range(4))
    taken = member.take(("", 2), n=1)
    before = bed.dump()
    assert ids(member.take(("", 2), n=1)) == ids(taken)
    assert bed.dump() == before
    member.back(taken.leases[0])
    assert ids(member.take(("", 2), n=1)) == ids(taken)[1:]
    member.take(("", 1), n=2)
    with pytest.raises(StoreRefused, match="older"):
        member.take(("", 1), n=1)


def test_a_late_copy_of_a_take_in_vain_takes_nothing(bed: PoolBed) -> None:
    """A take that found nothing finds nothing when its copy comes after all."""
    member = bed.member()
    assert member.take(("", 1), n=1).leases == ()
    bed.add("p1")
    assert member.take(("", 1), n=1).leases == ()


def test_the_probe_of_a_paused_site_is_told(bed: PoolBed) -> None:
    """Whoever gets it knows that it probes, also by a repeated call; others hear how long they wait for it."""
    member, prober, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR), bed.member("c", ttl=HOUR)
    bed.add(*range(4))
    leases = member.get(4)
    for lease in leases:
        member.say(lease, "ban", "shop")
    member.back(*leases)
    (pause,) = prober.take(("shop", 2)).pauses
    assert 0 < pause <= 10_000
    bed.pass_time(pause)
    for _ in range(2):
        take = prober.take(("news", 1), ("shop", 2), n=7)
        assert (len(take.leases), take.pauses) == (2, (0, -1))
    (pause,) = other.take(("shop", 1)).pauses
    assert 0 < pause <= 1000
    prober.say(take.leases[1], "ok", "shop")
    assert other.take(("shop", 1)).pauses == (0,)


def test_a_lost_session_gets_nothing(bed: PoolBed) -> None:
    """A session past its deadline is told so."""
    member = bed.member()
    bed.add("p1")
    bed.pass_time(TTL + 1)
    with pytest.raises(SessionLost):
        member.get()
    assert bed.place("p1") == "free"


def test_a_session_reports_first(bed: PoolBed) -> None:
    """A session that has told nothing of what it holds is granted nothing."""
    member = bed.member(reports=False)
    bed.add("p1")
    with pytest.raises(GenerationChanged):
        member.get()


def test_after_a_restart_nothing_is_granted_before_the_grace_is_over(own_bed: PoolBed) -> None:
    """A server that restarted asks for a report, grants nothing and ends no dead session's leases within its grace."""
    member, dead = own_bed.member("a"), own_bed.member("dead", ttl=1000)
    own_bed.add(*range(4))
    (lease,) = member.get()
    dead.get()
    own_bed.restart()
    with pytest.raises(GenerationChanged):
        member.get()
    assert member.report(lease) == [lease.fence]
    own_bed.pass_time(2000)
    standing = member.take(("", 3)).standing
    assert (standing.grace, standing.free, standing.leased, standing.expired) == (True, 2, 2, "")
    assert own_bed.recover("dead") == (0, -1)
    own_bed.pass_time(TTL - 5000)
    own_bed.run(own_bed.scripts.beat("a", ttl=TTL, node="host"))
    own_bed.pass_time(3000)
    assert own_bed.recover("dead") == (1, 0)
    assert len(member.get(9)) == 3


def test_events_tell_who_had_what(bed: PoolBed) -> None:
    """Each grant and return is one event that names session, node, fence, cause and resource."""
    member = bed.member("a")
    bed.add("p1", "p2")
    taken = member.get(2)
    member.back(taken[0])
    member.say(taken[1], "gone", "refused")
    fence = f"{taken[0].fence:016d}"
    assert [tuple(event.values()) for event in bed.events()] == [
        ("new", "", "", "", "", "p1 p2"),
        ("take", "a", "a", fence, "", "p1 p2"),
        ("back", "a", "a", fence, "", taken[0].id),
        ("back", "a", "a", fence, "refused", taken[1].id),
        ("gone", "", "a", "", "refused", taken[1].id),
    ]


def test_all_keys_are_in_one_slot(bed: PoolBed) -> None:
    """Every key a pool script is given has the hash tag of its shard."""
    keys = [*bed.pool.all("a", "b"), *bed.pool.ties]
    assert all(key.startswith("{test:0}:") for key in keys)
    assert len(set(keys)) == 26
