"""report: what a session holds after the server restarted, or after it was lost and opened anew."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.scripts import GenerationChanged
from tests.lua.bed import TTL, Bed, digest, entry, names, settlement


def test_a_restart_begins_a_generation(own_bed: Bed) -> None:
    """After a restart nothing is granted before a session has reported, nor within the grace; then all is as before."""
    session = own_bed.session("a")
    session.push(entry(1), entry(2))
    (grant,) = session.lease(want=1)
    own_bed.restart()
    assert session.beat().generation == 2
    assert not session.beat().reported
    with pytest.raises(GenerationChanged):
        session.lease()
    assert session.report((grant.digest, grant.fence)) == [grant.fence]
    assert session.beat().reported
    standing, grants = session.look()
    assert (standing.grace, standing.leased, grants) == (True, 1, [])
    assert session.settle(settlement(grant)) == "+"
    own_bed.pass_time(TTL - 1000)
    session.beat()
    own_bed.pass_time(1000)
    assert names(session.lease()) == ["2"]


def test_an_expired_session_is_kept_within_the_grace(own_bed: Bed) -> None:
    """After a restart only a closed session is reclaimed at once, an expired one after the grace."""
    own_bed.session("lost", ttl=1000).push(entry(1), entry(2))
    closed, looker = own_bed.session("closed"), own_bed.session("looker")
    closed.lease(want=1)
    own_bed.restart()
    looker.beat()
    own_bed.pass_time(2000)
    assert own_bed.reclaim("lost") == (0, -1)
    closed.close()
    assert own_bed.reclaim("closed") == (1, 0)
    own_bed.pass_time(TTL)
    assert own_bed.reclaim("lost") == (0, 0)


def test_what_was_not_reported_is_pending(bed: Bed) -> None:
    """Items that the store gives to the session but the session does not know go back to the backlog."""
    session = bed.session()
    session.push(*(entry(i) for i in range(4)))
    grants = session.lease()
    assert session.report((grants[2].digest, grants[2].fence)) == [grants[2].fence]
    assert names(session.lease()) == ["0", "1", "3"]


def test_what_is_free_is_leased_again(bed: Bed) -> None:
    """A reported item that the store shows as pending or delayed is leased to the session with a new fence."""
    session = bed.session()
    session.push(*(entry(i) for i in range(130)))
    grants = session.lease(want=130)
    session.settle(*(settlement(grant, "back", 9999 if number == 5 else 0) for number, grant in enumerate(grants)))
    wanted = [grants[number] for number in (0, 5, 64, 65, 129)]
    fences = session.report(*((grant.digest, grant.fence) for grant in wanted))
    assert all(fence > grants[-1].fence for fence in fences)
    assert len(fences) == 5
    standing = session.standing()
    assert (standing.ready, standing.delayed, standing.leased) == (125, 0, 5)
    assert not {"0", "5", "64", "65", "129"}.intersection(names(session.lease()))


@pytest.mark.parametrize("taken", [0, 1, 63, 64, 99])
def test_taking_one_out_of_many_keeps_the_order(bed: Bed, taken: int) -> None:
    """An item leased out of the middle of what was pushed together leaves the others in their order."""
    session = bed.session()
    session.push(*(entry(i) for i in range(100)))
    assert session.report((digest(taken), 1)) != [0]
    assert session.standing().ready == 99
    assert names(session.lease()) == [str(i) for i in range(100) if i != taken]


def test_what_another_holds_or_is_over_is_lost(bed: Bed) -> None:
    """An item that another session holds, that is done, dead or unknown, or was held under another fence, is lost."""
    other, session = bed.session("b"), bed.session("a")
    other.push(*(entry(i) for i in range(4)))
    taken, done, dead = other.lease(want=3)
    (own,) = session.lease()
    other.settle(settlement(done), settlement(dead, "dead", "r", ""))
    holds = [(grant.digest, grant.fence) for grant in (taken, done, dead)]
    assert session.report(*holds, (digest("unknown"), 1), (own.digest, own.fence - 1)) == [0] * 5
    assert other.settle(settlement(taken)) == "+"
    assert names(session.lease()) == ["3"]


def test_a_lost_session_gets_back_what_nobody_took(bed: Bed) -> None:
    """A new session that names the lost one gets what that still holds, with no attempt or death counted."""
    old, other = bed.session("old"), bed.session("b")
    old.push(*(entry(i) for i in range(4)))
    grants = old.lease()
    holds = [(grant.digest, grant.fence) for grant in grants]
    old.settle(settlement(grants[3], "back", 0))
    (taken,) = other.lease()
    assert taken.digest == grants[3].digest
    bed.pass_time(TTL + 1)
    new = bed.session("new")
    fences = new.report(*holds, previous="old")
    assert [fence > 0 for fence in fences] == [True, True, True, False]
    assert min(fences[:3]) > max(fence for _, fence in holds)
    assert bed.reclaim("old") == (0, 0)
    record = bed.record(0, "new")
    assert record is not None
    assert (record.state, record.fence, record.attempts, record.deaths) == ("leased", fences[0], 0, 0)
    assert old.settle(settlement(grants[0])) == "-"


def test_a_repeated_report_changes_nothing(bed: Bed) -> None:
    """The last number again gives the same fences; an older one is refused."""
    session = bed.session()
    session.push(entry(1), entry(2))
    fences = session.report((digest(1), 1))
    before = bed.dump()
    assert session.report((digest(1), 1), n=1) == fences
    assert bed.dump() == before
    session.report((digest(1), fences[0]))
    with pytest.raises(StoreRefused, match="older"):
        session.report((digest(1), 1), n=1)


def test_a_session_that_is_over_reports_in_vain(bed: Bed) -> None:
    """After the deadline a report takes nothing."""
    session = bed.session()
    session.push(entry(1))
    bed.pass_time(TTL + 1)
    with pytest.raises(SessionLost):
        session.report((digest(1), 1))
    assert bed.session("b").standing().ready == 1
