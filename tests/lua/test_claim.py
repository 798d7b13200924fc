"""Leases of named items: ``claim.lua``, each answer and what it leaves in the store."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.scripts import Answer, Claim, Entry, GenerationChanged
from tests.lua.bed import SLOT, TTL, Bed, Session, claimed, digest, entry, names, settlement


def answers(session: Session, *entries: Entry) -> str:
    """The answers to one call, a character each."""
    return "".join(claim.answer for claim in session.claim(*entries))


def test_what_nobody_has_is_leased(bed: Bed) -> None:
    """An unknown item is in the backlog and leased at once, with its request, and nothing of it is ready."""
    session = bed.session()
    first, second = session.claim(entry("a", priority=3), entry("b"))
    assert first.answer is second.answer is Answer.GRANTED
    assert first.fence == second.fence > 0
    record = bed.record("a", "a")
    assert record is not None
    assert (record.fence, record.slot, record.priority, record.payload) == (first.fence, SLOT, 3, b"payload of a")
    standing = session.standing()
    assert (standing.ready, standing.leased) == (0, 2)


def test_an_item_has_one_holder(bed: Bed) -> None:
    """What one live session holds is contended for all others, and for itself."""
    one, other = bed.session("a"), bed.session("b")
    assert answers(one, entry(1), entry(2)) == "++"
    assert answers(other, entry(1), entry(2), entry(3)) == "==+"
    assert answers(one, entry(1)) == "="


def test_an_item_is_leased_once_in_one_call(bed: Bed) -> None:
    """The same item twice in one call is granted once."""
    assert answers(bed.session(), entry(1), entry(1)) == "+="


@pytest.mark.parametrize("args", [("keep",), ("run",)])
def test_done_is_over(bed: Bed, args: tuple[str]) -> None:
    """What is done is over for everybody, and the backlog is empty."""
    one, other = bed.session("a"), bed.session("b")
    (claim,) = one.claim(entry(1))
    assert one.settle(claimed(1, claim, "done", *args)) == "+"
    assert answers(other, entry(1)) == "."
    assert bed.record(1) is None


def test_rejected_is_over(bed: Bed) -> None:
    """What was rejected is over in its run."""
    one = bed.session("a")
    (claim,) = one.claim(entry(1))
    one.settle(claimed(1, claim, "rejected"))
    assert answers(bed.session("b"), entry(1)) == "."


@pytest.mark.parametrize("kept", [False, True])
def test_a_page_that_leads_on_is_told_apart(bed: Bed, kept: bool) -> None:
    """A page that led to others says so in its run; in the next it is new, unless it is kept."""
    one = bed.session("a")
    (claim,) = one.claim(entry(1))
    one.settle(claimed(1, claim, "done", "leads", kept))
    assert answers(bed.session("b"), entry(1)) == ">"
    for session in (one, bed.session("b")):
        session.close()
        bed.reclaim(session.sid)
    later = bed.session("later")
    assert later.open().run == 2
    assert answers(later, entry(1)) == ("." if kept else "+")


def test_a_mark_that_leads_on_counts_for_its_time(bed: Bed) -> None:
    """A page that yielded items and led on is new when its mark is too old."""
    session = bed.session()
    (claim,) = session.claim(entry(1, ttl=50))
    session.settle(claimed(1, claim, "done", "leads", True))
    session.close()
    bed.reclaim("a")
    key, field = bed.scope.mark(digest(1))
    assert bed.client.hincrby(key, field, -100) > 2**31
    later = bed.session("later")
    assert later.open().run == 2
    assert answers(later, entry(1, ttl=50)) == "+"


def test_a_failed_item_waits(bed: Bed) -> None:
    """A fault is counted; until its wait is over the answer says how long; then the item comes with its faults."""
    one, other = bed.session("a"), bed.session("b")
    (claim,) = one.claim(entry(1))
    one.settle(claimed(1, claim, "failed", 5000, 3, "callback", "trace"))
    (waiting,) = other.claim(entry(1))
    assert waiting.answer is Answer.WAITING
    assert 4000 < waiting.wait <= 5000
    bed.pass_time(5000)
    (granted,) = other.claim(entry(1))
    assert (granted.answer, granted.attempts, granted.deaths) == (Answer.GRANTED, 1, 0)
    assert granted.fence > claim.fence
    assert other.standing().delayed == 0


def test_what_was_handed_back_is_free(bed: Bed) -> None:
    """What a session handed back, or was pushed by others, is leased by name, out of the middle of what is ready."""
    session = bed.session()
    bed.push(*(entry(i) for i in range(70)))
    (claim,) = session.claim(entry(33))
    assert claim.answer is Answer.GRANTED
    assert session.standing().ready == 69
    session.settle(claimed(33, claim, "back", 0))
    assert answers(session, entry(33)) == "+"
    assert sorted(names(session.lease())) == sorted(str(i) for i in range(70) if i != 33)


def test_what_a_dead_session_held_is_taken_over(bed: Bed) -> None:
    """The item of a session that expired is contended until it is taken back, then free with its death counted."""
    one, other = bed.session("a"), bed.session("b")
    one.claim(entry(1))
    bed.pass_time(TTL + 1)
    other = bed.session("c")
    assert answers(other, entry(1)) == "="
    assert bed.reclaim("a") == (1, 0)
    (claim,) = other.claim(entry(1))
    assert (claim.answer, claim.deaths) == (Answer.GRANTED, 1)


def test_dead_is_over_for_its_run(bed: Bed) -> None:
    """An item among the dead letters is not tried again in its run; fed in a later one it begins anew."""
    session = bed.session()
    (claim,) = session.claim(entry(1))
    assert session.settle(claimed(1, claim, "dead", "callback", "trace")) == "!"
    assert answers(session, entry(1)) == "."
    assert bed.dead(1) is not None
    bed.client.hset(bed.scope.key("meta"), "run_began", 4_000_000_000_000)
    (again,) = session.claim(entry(1))
    assert (again.answer, again.attempts) == (Answer.GRANTED, 0)
    assert bed.dead(1) is None
    assert bed.client.hlen(bed.scope.key("payload")) == 0


def test_a_repeated_call_says_the_same(bed: Bed) -> None:
    """A repeated call changes nothing and gives the same leases; one that is gone is to be asked for again."""
    one, other = bed.session("a"), bed.session("b")
    other.claim(entry("theirs"))
    said = one.claim(entry(1), entry("theirs"), entry(2), n=1)
    before = bed.dump()
    assert one.claim(entry(1), entry("theirs"), entry(2), n=1) == said
    assert bed.dump() == before
    one.settle(claimed(1, said[0]))
    repeated = one.claim(entry(1), entry("theirs"), entry(2), n=1)
    assert [claim.answer for claim in repeated] == [Answer.CONTENDED, Answer.CONTENDED, Answer.GRANTED]


def test_an_older_call_is_refused(bed: Bed) -> None:
    """A call that comes after a later one grants nothing."""
    session = bed.session()
    session.claim(entry(1), n=1)
    session.claim(entry(2), n=2)
    with pytest.raises(StoreRefused, match="claim"):
        session.claim(entry(3), n=1)
    assert bed.record(3) is None


def test_a_lost_session_gets_nothing(bed: Bed) -> None:
    """A session past its deadline is told so."""
    session = bed.session()
    bed.pass_time(TTL + 1)
    with pytest.raises(SessionLost):
        session.claim(entry(1))
    assert bed.record(1) is None


def test_a_paused_job_grants_nothing(bed: Bed) -> None:
    """While the job is paused everything is contended, and no mark is made."""
    session = bed.session()
    bed.client.hset(bed.scope.namespace.control, f"pause:{bed.scope.job}", "1")
    assert answers(session, entry(1)) == "="
    assert bed.mark(1) is None


def test_after_a_restart_nothing_is_granted_before_the_report(own_bed: Bed) -> None:
    """A server that restarted asks for a report first, then grants nothing before its grace is over."""
    session = own_bed.session(ttl=60_000)
    session.claim(entry(1))
    own_bed.restart()
    with pytest.raises(GenerationChanged):
        session.claim(entry(2))
    session.report()
    assert answers(session, entry(2)) == "="


def test_a_lease_of_the_backlog_and_a_claim_agree(bed: Bed) -> None:
    """What is leased from the backlog cannot be claimed, what is claimed cannot be leased or pushed."""
    one, other = bed.session("a"), bed.session("b")
    bed.push(entry(1))
    (grant,) = one.lease()
    assert answers(other, entry(1), entry(2)) == "=+"
    assert bed.push(entry(2)) == "="
    assert one.lease() == []
    assert one.settle(settlement(grant)) == "+"
    assert answers(other, entry(1)) == "."


def test_a_page_that_led_on_is_known_to_a_push(bed: Bed) -> None:
    """For the backlog of all hosts, a page that led on in this run is done like any other."""
    session = bed.session()
    (claim,) = session.claim(entry(1, mark="run"))
    session.settle(claimed(1, claim, "done", "leads", False))
    assert bed.push(entry(1, mark="run")) == "."


def test_counters_tell_what_was_known(bed: Bed) -> None:
    """Accepted counts what came new; duplicate what was over."""
    session = bed.session()
    first, _ = session.claim(entry(1), entry(2))
    session.settle(claimed(1, first))
    session.claim(entry(1), entry(2))
    assert (bed.counter("accepted"), bed.counter("duplicate"), bed.counter("done")) == (2, 1, 1)


def test_an_answer_is_read_whole() -> None:
    """A claim that is no lease has no fence."""
    assert Claim(Answer.OVER).fence == 0
