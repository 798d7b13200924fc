"""lease: exclusive, fenced, fair between download slots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_lease.exceptions import StoreRefused
from tests.helpers.servers import Server
from tests.lua.bed import SLOT, Bed, entry, names, settlement


def test_each_item_to_one_session(bed: Bed) -> None:
    """Many sessions that lease until nothing is left get every item exactly once."""
    bed.push(*(entry(i) for i in range(300)))
    sessions = [bed.session(f"s{i}") for i in range(5)]
    got: list[str] = []
    while grants := [grant for session in sessions for grant in session.lease(want=17)]:
        got += names(grants)
    assert sorted(got) == sorted(str(i) for i in range(300))


def test_fences_rise(bed: Bed) -> None:
    """What one call grants has one fence, above all before it, also of the same item and after the clock went back."""
    session = bed.session()
    session.push(*(entry(i) for i in range(200)))
    (fence,) = {grant.fence for grant in session.lease(want=100)}
    fences = [fence]
    bed.client.hincrby(bed.scope.namespace.clock, "fence", 10**15)
    fences += {grant.fence for grant in session.lease(want=50)}
    (first,) = session.lease(want=1)
    session.settle(settlement(first, "back", 0))
    (again,) = session.lease(want=1)
    assert again.digest == first.digest
    fences += [first.fence, again.fence]
    assert fences == sorted(set(fences))


def test_the_record_names_the_lease(bed: Bed) -> None:
    """State, session, fence and time of a lease can be read; nothing of an earlier holder stays."""
    session = bed.session("a")
    session.push(entry(1, mark="run", priority=2))
    (grant,) = session.lease()
    record = bed.record(1, "a")
    assert record is not None
    assert (record.state, record.session, record.fence, record.sent) == ("leased", "a", grant.fence, False)
    assert abs(record.since - bed.client.time()[0]) < 5
    assert (grant.slot, grant.mark, grant.attempts, grant.deaths) == (SLOT, "run", 0, 0)
    session.settle(settlement(grant, "back", 0))
    record = bed.record(1, "a")
    assert record is not None
    assert (record.state, record.session, record.fence) == ("pending", "", 0)


def test_no_slot_above_its_room(bed: Bed) -> None:
    """A listed slot gets no more than its room, however much is wanted and however long it waits."""
    session = bed.session()
    session.push(*(entry(f"{slot}{i}", slot=slot) for slot in "abc" for i in range(100)))
    grants = session.lease(want=1000, rooms={"a": 3, "b": 0, "c": 70})
    assert [sum(grant.slot == slot for grant in grants) for slot in "abc"] == [3, 0, 70]
    assert session.standing().ready == 227


def test_one_slot_leaves_room_for_others(bed: Bed) -> None:
    """An unlisted slot takes at most three quarters of what is wanted, best slots first."""
    session = bed.session()
    session.push(*(entry(f"{slot}{i}", slot=slot) for slot in "abc" for i in range(100)))
    grants = session.lease(want=16, rooms={})
    assert [sum(grant.slot == slot for grant in grants) for slot in "abc"] == [12, 3, 1]


def test_slots_of_similar_names_are_apart(bed: Bed) -> None:
    """A slot whose name begins with another's, or is empty, is a slot of its own."""
    session = bed.session()
    slots = ["a", "a\x01", "ab", "", "a.example"]
    session.push(*(entry(f"{number}{slot}", slot=slot) for slot in slots for number in range(3)))
    for slot in slots:
        grants = session.lease(want=10, rooms={other: 2 if other == slot else 0 for other in slots})
        assert [grant.slot for grant in grants] == [slot, slot]


def test_the_best_slot_comes_first(bed: Bed) -> None:
    """The slot whose next request is best is served first, and its rank follows what is left of it."""
    session = bed.session()
    session.push(entry("low", slot="a"), entry("high", slot="b", priority=9), entry("later", slot="b", priority=-1))
    got = [names(session.lease(want=1, rooms={}))[0] for _ in range(3)]
    assert got == ["high", "low", "later"]


def test_a_repeated_lease_gives_the_same_grants(bed: Bed) -> None:
    """The last number again gives what it granted, with the same fences, and grants nothing more."""
    session = bed.session()
    session.push(*(entry(i) for i in range(10)))
    grants = session.lease(want=4)
    before = bed.dump()
    assert session.lease(want=4, n=1) == grants
    assert bed.dump() == before


def test_a_repeated_lease_leaves_out_what_is_gone(bed: Bed) -> None:
    """What was settled since, or is another's now, is not granted by a repeat; the rest keeps its fences."""
    session, other = bed.session("a"), bed.session("b")
    session.push(*(entry(i) for i in range(4)))
    grants = session.lease()
    session.settle(settlement(grants[0]), settlement(grants[1], "back", 0))
    other.lease()
    assert session.lease(n=1) == grants[2:]


def test_an_older_lease_is_refused(bed: Bed) -> None:
    """A number before the last is a stray and grants nothing; nor does a repeat of one that granted nothing."""
    session = bed.session()
    bed.client.hset(bed.scope.namespace.control, "pause:shop", 1)
    for _ in range(2):
        assert session.lease() == []
    bed.client.hdel(bed.scope.namespace.control, "pause:shop")
    session.push(entry(1))
    with pytest.raises(StoreRefused, match="older"):
        session.lease(n=1)
    assert session.lease(n=2) == []


def test_a_paused_job_grants_nothing(bed: Bed) -> None:
    """While the job is paused its backlog waits; afterwards it goes on."""
    session = bed.session()
    session.push(entry(1))
    bed.client.hset(bed.scope.namespace.control, "pause:shop", 1)
    standing, grants = session.look()
    assert (standing.paused, standing.ready, grants) == (True, 1, [])
    bed.client.hdel(bed.scope.namespace.control, "pause:shop")
    assert names(session.lease()) == ["1"]


def test_the_standing_counts_every_state(bed: Bed) -> None:
    """Ready, delayed and leased add up to what is not over, through every transition; due is the next delayed item."""
    session = bed.session()
    session.push(*(entry(i) for i in range(10)))
    grants = session.lease(want=6)
    session.settle(
        settlement(grants[0]), settlement(grants[1], "back", 0), settlement(grants[2], "back", 5000),
        settlement(grants[3], "failed", 9000, 3, "r", ""), settlement(grants[4], "dead", "r", ""),
    )  # fmt: skip
    standing = session.standing()
    assert (standing.ready, standing.delayed, standing.leased) == (5, 2, 1)
    assert 4000 < standing.due <= 5000
    assert not standing.drained


def test_a_delayed_item_is_pending_when_its_time_has_come(bed: Bed) -> None:
    """A delay runs on the lease clock; then the item takes its old place."""
    session = bed.session()
    session.push(*(entry(i) for i in range(3)))
    session.settle(settlement(session.lease(want=1)[0], "back", 5000))
    bed.pass_time(4000)
    assert names(session.lease(want=1)) == ["1"]
    bed.pass_time(1000)
    assert names(session.lease(want=2)) == ["0", "2"]


def test_a_step_of_the_server_clock_moves_leases_by_a_second(bed: Bed) -> None:
    """The wall clock an hour ahead or back costs the lease clock at most a second a call, and never takes time back."""
    session = bed.session(ttl=10_000)
    clock = bed.scope.namespace.clock
    for step in (-3_600_000, 3_600_000):
        before = int(bed.client.hget(clock, "now"))
        bed.client.hincrby(clock, "wall", step)
        session.standing()
        assert 0 <= int(bed.client.hget(clock, "now")) - before <= 1000
    assert session.beat().live == 1


def test_a_real_clock_that_steps(make_server: Callable[..., Server]) -> None:
    """A server whose clock really steps by an hour each way keeps session and leases; fences still rise."""
    with Bed(make_server(clock=True)) as bed:
        session = bed.session()
        session.push(entry(1), entry(2), entry(3))
        fences = []
        for offset in (3600, -3600, 0):
            bed.server.set_clock(offset)
            assert session.beat().live == 1
            fences += [grant.fence for grant in session.lease(want=1)]
        assert fences == sorted(set(fences))
        assert len(fences) == 3
