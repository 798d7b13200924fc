"""push: each request once, in the order of priority and discovery."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import StoreRefused
from tests.lua.bed import Bed, entry, names, settlement


def test_each_request_once(bed: Bed) -> None:
    """What is pending or leased is a duplicate, also within one call; the rest is accepted."""
    session = bed.session()
    assert session.push(entry(1), entry(2), entry(1)) == "++="
    session.lease(want=1)
    assert session.push(entry(1), entry(2), entry(3)) == "==+"
    assert (bed.counter("accepted"), bed.counter("duplicate")) == (3, 3)


def test_a_push_from_outside(bed: Bed) -> None:
    """Without a session a push is not numbered and still accepts each request once."""
    assert [bed.push(entry(1)), bed.push(entry(1), entry(2))] == ["+", "=+"]
    assert names(bed.session().lease()) == ["1", "2"]


def test_a_repeated_push_changes_nothing(bed: Bed) -> None:
    """The last number again gives the stored reply, whatever happened since; an older one is refused."""
    session = bed.session()
    assert session.push(entry(1), entry(2)) == "++"
    session.settle(*map(settlement, session.lease()))
    before = bed.dump()
    assert session.push(entry(1), entry(2), n=1) == "++"
    assert bed.dump() == before
    assert session.push(entry(3)) == "+"
    with pytest.raises(StoreRefused, match="older"):
        session.push(entry(1), entry(2), n=1)


def test_order_is_priority_then_discovery(bed: Bed) -> None:
    """The higher priority first, then first come first served, over calls and within one; extremes are clamped."""
    session = bed.session()
    session.push(entry("a"), entry("b", priority=5), entry("c"), entry("d", priority=-(10**6)))
    session.push(entry("e", priority=5), entry("f"), entry("g", priority=10**6))
    assert names(session.lease()) == ["g", "b", "e", "a", "c", "f", "d"]


@pytest.mark.parametrize("number", [63, 64, 65, 400])
def test_many_of_one_slot_keep_their_order(bed: Bed, number: int) -> None:
    """Discovery order holds over any number of requests of one call and any size of leases."""
    session = bed.session()
    session.push(*(entry(i) for i in range(number)))
    assert session.standing().ready == number
    got, size = [], 1
    while grants := session.lease(want=size):
        assert len(grants) == min(size, number - len(got))
        got += names(grants)
        size += 7
    assert got == [str(i) for i in range(number)]


def test_a_record_tells_what_was_pushed(bed: Bed) -> None:
    """The record holds slot, priority, mark and payload, whatever bytes are in them."""
    slot = "münchen.example:8080|\x01"
    bed.push(entry("x", slot=slot, priority=7, mark="run"))
    record = bed.record("x")
    assert record is not None
    assert (record.slot, record.priority, record.mark, record.payload) == (slot, 7, "run", b"payload of x")
    assert (record.attempts, record.deaths, record.session, record.state) == (0, 0, "", "pending")


def test_a_dead_item_begins_anew(bed: Bed) -> None:
    """A push of a dead letter is accepted; the letter goes, attempts and deaths begin at 0."""
    session = bed.session()
    session.push(entry(1))
    session.settle(settlement(session.lease()[0], "dead", "target", "trace"))
    assert session.push(entry(1)) == "+"
    assert bed.dead(1) is None
    assert not bed.client.hlen(bed.scope.key("payload"))
    (grant,) = session.lease()
    assert (grant.attempts, grant.deaths, grant.payload) == (0, 0, b"payload of 1")


def test_what_is_not_an_item_leaves_no_mark(bed: Bed) -> None:
    """A request that is not an item is once in the backlog at a time, and may come again afterwards."""
    session = bed.session()
    for _ in range(2):
        assert session.push(entry(1, mark="none"), entry(1, mark="none")) == "+="
        assert session.settle(settlement(session.lease()[0], "done", "none")) == "+"
    assert bed.mark(1) is None


def test_a_forgotten_mark_never_doubles_what_is_pending(bed: Bed) -> None:
    """A mark removed by an operator does not bring an item into the backlog twice."""
    session = bed.session()
    session.push(entry(1))
    bed.client.delete(bed.scope.mark(entry(1).digest)[0])
    assert session.push(entry(1)) == "="
    assert len(session.lease()) == 1
