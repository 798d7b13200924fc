"""open, beat, close and start: who lives, which run it is, who reads start()."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.scripts import Beat, Opened
from tests.lua.bed import TTL, Bed, entry, names, settlement


def test_open_tells_generation_run_and_live_sessions(bed: Bed) -> None:
    """The first session finds generation 1 and run 1; live sessions are counted, a repeated open not twice."""
    first, second = bed.session("a"), bed.session("b")
    assert second.open() == Opened(1, 1, 3)
    assert first.beat().live == 2


def test_open_refuses_another_configuration(bed: Bed) -> None:
    """While a session of the job lives, one that is configured otherwise is refused and changes nothing."""
    first = bed.session("a", config="one")
    before = bed.dump()
    with pytest.raises(StoreRefused, match="configure them alike"):
        bed.session("b", config="two")
    assert bed.dump() == before
    first.close()
    assert bed.session("b", config="two").beat().live == 1


def test_open_refuses_another_number_of_shards(bed: Bed) -> None:
    """The number of shards is fixed when the namespace is created."""
    bed.session("a", shards=1)
    with pytest.raises(StoreRefused, match="1 shards"):
        bed.session("b", shards=64)


@pytest.mark.parametrize(("fresh", "run"), [(True, 2), (False, 1)])
def test_a_run_that_is_over_makes_way(bed: Bed, fresh: bool, run: int) -> None:
    """With nothing in the backlog and nobody alive, a fresh session begins the next run; others go on with the last."""
    first = bed.session("a")
    first.push(entry(1))
    first.settle(settlement(first.lease()[0]))
    first.close()
    assert bed.session("b", fresh=fresh) is not None
    assert bed.counter("run") == run
    assert bed.counter("done") == (0 if fresh else 1)


def test_a_run_with_a_backlog_goes_on(bed: Bed) -> None:
    """What is pending keeps the run alive although nobody is."""
    bed.session("a").push(entry(1))
    bed.pass_time(TTL + 1)
    later = bed.session("b")
    assert bed.counter("run") == 1
    assert names(later.lease()) == ["1"]


def test_beat_renews_and_tells_flags(bed: Bed) -> None:
    """A beat moves the deadline and tells pause of the job and drain of the node."""
    session = bed.session("a")
    assert session.beat() == Beat(1, 1, paused=False, draining=False, reported=True)
    bed.client.hset(bed.scope.namespace.control, mapping={"pause:shop": 1, "drain:host": 1})
    bed.pass_time(TTL - 1000)
    assert session.beat() == Beat(1, 1, paused=True, draining=True, reported=True)
    bed.pass_time(TTL - 1000)
    assert session.beat().live == 1


def test_a_beat_after_the_deadline_is_lost(bed: Bed) -> None:
    """A session whose deadline passed is over for good, also for a beat that comes at once."""
    session = bed.session("a")
    bed.pass_time(TTL + 1)
    with pytest.raises(SessionLost):
        session.beat()
    with pytest.raises(SessionLost):
        session.lease()


def test_a_late_beat_never_shortens(bed: Bed) -> None:
    """A shorter time to live does not take away what was promised before."""
    session = bed.session("a", ttl=TTL)
    session.beat(ttl=1000)
    bed.pass_time(TTL - 1000)
    assert session.beat().live == 1


def test_a_closed_session_is_granted_nothing(bed: Bed) -> None:
    """After close neither a beat nor a lease finds the session; closing again changes nothing."""
    session = bed.session("a")
    session.push(entry(1))
    session.close()
    before = bed.dump()
    session.close()
    assert bed.dump() == before
    for call in (session.beat, session.lease):
        with pytest.raises(SessionLost):
            call()


def test_one_session_reads_start(bed: Bed) -> None:
    """One claims start(), the other waits; when it is finished, nobody claims it again in this run."""
    first, second = bed.session("a"), bed.session("b")
    assert [first.start("claim"), second.start("claim"), first.start("claim")] == ["yours", "wait", "yours"]
    assert second.start("finish") == "ok"
    assert second.start("claim") == "wait"
    first.start("finish")
    assert second.start("claim") == "over"


def test_another_reads_start_when_the_reader_dies(bed: Bed) -> None:
    """A claim of a session that is over passes to the next that asks."""
    first, second = bed.session("a"), bed.session("b")
    first.start("claim")
    first.close()
    assert second.start("claim") == "yours"


def test_a_new_run_knows_of_no_end_of_start(bed: Bed) -> None:
    """What a server that forgot a run was told of its start() does not keep anybody from reading that of the next."""
    forgotten = bed.session("a")
    forgotten.start("claim")
    bed.client.flushdb()
    forgotten.start("finish")
    assert bed.session("b").start("claim") == "yours"


def test_each_session_reads_start(bed: Bed) -> None:
    """With mode each, every claim succeeds."""
    sessions = [bed.session("a"), bed.session("b")]
    assert [session.start("claim", "each") for session in sessions] == ["yours", "yours"]


@pytest.mark.parametrize("verb", ["finish", "leave"])
def test_drained_needs_all_producers_to_end(bed: Bed, verb: str) -> None:
    """An empty backlog is drained only when no live session may still push what start() yields."""
    first, second = bed.session("a"), bed.session("b")
    assert not first.standing().drained
    first.start(verb)
    assert not first.standing().drained
    second.start("leave")
    assert first.standing().drained
    first.push(entry(1))
    assert not first.standing().drained


def test_a_dead_producer_does_not_hold_up_the_end(bed: Bed) -> None:
    """A session that is over produces nothing any more."""
    first = bed.session("a")
    bed.session("b", ttl=1)
    first.start("leave")
    bed.pass_time(2)
    assert first.standing().drained
