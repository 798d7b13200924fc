"""Done marks: for how long an item that is over is not fetched again."""

from __future__ import annotations

import time

import pytest

from tests.lua.bed import Bed, Session, entry, settlement

EPOCH = 1577836800


def finish(session: Session, name: str, *, verb: str = "done", mark: str = "auto", args: tuple = ()) -> None:
    """Push, lease and settle one item."""
    assert session.push(entry(name, mark=mark)) == "+"
    assert session.settle(settlement(session.lease()[0], verb, *args)) == "+"


def next_run(bed: Bed, session: Session) -> Session:
    """Close the session and begin the next run."""
    session.close()
    return bed.session(session.sid + "'")


def test_done_is_not_fetched_again(bed: Bed) -> None:
    """A page that yielded items counts as done in this run and all later ones."""
    session = bed.session()
    finish(session, "x")
    assert bed.record("x") is None
    assert session.push(entry("x")) == "."
    assert next_run(bed, session).push(entry("x")) == "."


@pytest.mark.parametrize("mark", ["auto", "run"])
@pytest.mark.parametrize(("verb", "args"), [("done", ("run",)), ("rejected", ())])
def test_what_counts_for_a_run(bed: Bed, mark: str, verb: str, args: tuple) -> None:
    """A page without items, a start request, a rejected page are over for this run, and new in the next."""
    session = bed.session()
    finish(session, "x", verb=verb, mark=mark, args=args)
    assert session.push(entry("x", mark=mark)) == "."
    later = next_run(bed, session)
    assert later.push(entry("x", mark=mark)) == "+"
    assert later.push(entry("x", mark=mark)) == "="


def test_a_rejected_request_that_is_no_item(bed: Bed) -> None:
    """Rejecting what is not an item leaves no mark."""
    session = bed.session()
    finish(session, "x", verb="rejected", mark="none", args=("none",))
    assert bed.mark("x") is None
    assert bed.counter("rejected") == 1


def test_a_timed_mark_counts_from_completion(bed: Bed) -> None:
    """With a time to live the mark holds the second of completion, and counts for that long."""
    session = bed.session()
    session.push(entry("x", ttl=100))
    bucket, field = bed.scope.mark(entry("x").digest)
    bed.client.hset(bucket, field, int(time.time()) - EPOCH - 5000)
    session.settle(settlement(session.lease()[0]))
    mark = bed.mark("x")
    assert mark is not None
    assert abs(mark - (time.time() - EPOCH)) < 5
    assert session.push(entry("x", ttl=100)) == "."
    bed.client.hset(bucket, field, mark - 101)
    assert session.push(entry("x", ttl=0)) == "."
    assert session.push(entry("x", ttl=100)) == "+"
    assert session.push(entry("x", ttl=100)) == "="


def test_a_time_to_live_that_comes_later(bed: Bed) -> None:
    """An item done while marks counted for ever is fetched again under a time to live that has passed."""
    session = bed.session()
    finish(session, "x")
    bucket, field = bed.scope.mark(entry("x").digest)
    bed.client.hincrby(bucket, field, -50)
    assert session.push(entry("x", ttl=100)) == "."
    assert session.push(entry("x", ttl=10)) == "+"


@pytest.mark.parametrize(("verb", "args"), [("back", (0,)), ("failed", (0, 3, "target", ""))])
def test_what_comes_back_is_not_done(bed: Bed, verb: str, args: tuple) -> None:
    """An item that failed or was handed back is pending: its mark hides it from nobody."""
    session = bed.session()
    session.push(entry("x"))
    session.settle(settlement(session.lease()[0], verb, *args))
    assert session.push(entry("x")) == "="
    assert session.settle(settlement(session.lease()[0])) == "+"
    assert session.push(entry("x")) == "."


def test_done_items_share_few_keys(bed: Bed) -> None:
    """The number of keys follows the expected number of items, and each is in the server's compact encoding."""
    session = bed.session()
    for first in range(0, 1000, 250):
        session.push(*(entry(i) for i in range(first, first + 250)))
        session.settle(*map(settlement, session.lease()))
    keys = [key for key in bed.client.scan_iter() if b":done:" in key]
    assert len(keys) <= 10
    assert sum(bed.client.hlen(key) for key in keys) == 1000
    assert session.push(*(entry(i) for i in range(250))) == "." * 250
