"""pool_report: what a session holds before its first take, after a restart, after a loss."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.pool_scripts import Lease
from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, PoolBed, ids


def test_what_was_not_reported_comes_back(bed: PoolBed) -> None:
    """Resources that the store gives to the session but it does not know are free again."""
    member = bed.member()
    bed.add(*range(4))
    leases = member.get(4)
    assert member.report(leases[2]) == [leases[2].fence]
    assert sorted(ids(member.get(9))) == sorted(set(ids(leases)) - {leases[2].id})


def test_what_is_free_is_leased_again(bed: PoolBed) -> None:
    """A reported resource that the store shows as free is the session's under a new fence; nobody else gets it."""
    member, other = bed.member("a"), bed.member("b")
    bed.add("p1", "p2", "p3")
    first, second, _ = leases = member.get(3)
    member.say(second, "ban", "shop")
    member.back(*leases)
    fences = member.report(first, second)
    assert min(fences) > first.fence
    assert len(other.get(9)) == 1


def test_what_is_not_to_be_had_is_lost(bed: PoolBed) -> None:
    """Another's, resting, drained, behind its exit, unknown, or its own under another fence: lost."""
    member, other = bed.member("a"), bed.member("b")
    bed.add("theirs", "broken", "drained", "own")
    leases = {lease.id: lease for lease in member.get(4)}
    bed.add("u1", "u2", exit="10.0.0.1")
    member.back(leases["theirs"], leases["drained"])
    member.say(leases["broken"], "broken")
    bed.change("drain", "drained")
    assert ids(other.get(2)) == ["u1", "theirs"]
    unknown, behind = (Lease(name, 1, b"", "", None, 0, {}) for name in ("unknown", "u2"))
    own = Lease("own", leases["own"].fence - 1, b"", "", None, 0, {})
    asked = (leases["theirs"], leases["broken"], leases["drained"], unknown, behind, own)
    assert member.report(*asked) == [0] * 6
    assert bed.holder("theirs") == "b"
    assert bed.place("own") == "free"


def test_a_lost_session_gets_back_what_nobody_took(bed: PoolBed) -> None:
    """A new session that names the lost one gets what that still holds; the old one's word is void."""
    old, other = bed.member("old"), bed.member("b", ttl=HOUR)
    bed.add("p1", "p2", "p3")
    leases = old.get(3)
    old.back(leases[2])
    assert ids(other.get(1)) == [leases[2].id]
    bed.pass_time(TTL + 1)
    new = bed.member("new", reports=False)
    fences = new.report(*leases, previous="old")
    assert min(fences[:2]) > leases[0].fence
    assert fences[2] == 0
    assert old.back(*leases[:2]) == "--"
    other.take()
    assert bed.holder(leases[0].id) == bed.holder(leases[1].id) == "new"


def test_a_repeated_report_changes_nothing(bed: PoolBed) -> None:
    """The last number again gives the same fences; a lower one is refused."""
    member = bed.member(reports=False)
    bed.add("p1")
    lease = Lease("p1", 1, b"", "", None, 0, {})
    fences = member.report(lease, n=1)
    assert fences != [0]
    before = bed.dump()
    assert member.report(lease, n=1) == fences
    assert bed.dump() == before
    member.report(lease, n=2)
    with pytest.raises(StoreRefused, match="older"):
        member.report(lease, n=1)


def test_a_session_that_is_over_reports_in_vain(bed: PoolBed) -> None:
    """After the deadline a report takes nothing."""
    member = bed.member()
    bed.add("p1")
    bed.pass_time(TTL + 1)
    with pytest.raises(SessionLost):
        member.report(Lease("p1", 1, b"", "", None, 0, {}))
    assert bed.place("p1") == "free"
