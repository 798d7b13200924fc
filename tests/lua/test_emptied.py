"""A store that was flushed or replaced is told from one in which a session expired."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.emptied import REMEMBERED, was_emptied
from tests.lua.bed import TTL, Bed, entry


def verdict(bed: Bed, between: Callable[[Bed], object], lost_for: float = 1.0) -> bool:
    """Open a session, let *between* happen, let the session find out that it is lost and another open; then ask."""
    session = bed.session("a")
    session.push(entry(1))
    session.lease()
    between(bed)
    for call in (session.beat, session.lease):
        with pytest.raises(SessionLost):
            call()
    bed.session("b")
    return bed.run(was_emptied(bed.scripts, "a", lost_for))


def take_over(bed: Bed) -> None:
    bed.pass_time(TTL + 1)
    assert bed.reclaim("a") == (1, 0)


EMPTYING = {
    "flushed": lambda bed: bed.client.flushall(),
    "our keys deleted": lambda bed: bed.client.delete(*bed.client.keys("{test:0}*")),
}


@pytest.mark.parametrize("between", EMPTYING.values(), ids=EMPTYING)
def test_an_emptied_store_is_told(bed: Bed, between: Callable[[Bed], object]) -> None:
    """Nothing is known of the session, although others have opened theirs and called since."""
    assert verdict(bed, between)


@pytest.mark.parametrize("between", [lambda bed: bed.pass_time(TTL + 1), take_over], ids=["expired", "taken over"])
def test_a_session_that_is_over_is_remembered(bed: Bed, between: Callable[[Bed], object]) -> None:
    """A deadline that passed is an ordinary loss, whether others took the items over or not, for an hour."""
    assert not verdict(bed, between)
    assert bed.client.pttl(bed.scope.namespace.session("a")) > (REMEMBERED - 60) * 1000


def test_after_an_hour_a_missing_record_says_nothing(bed: Bed) -> None:
    """The store forgets a session that is over: who slept for longer than that cannot tell."""
    assert not verdict(bed, EMPTYING["flushed"], REMEMBERED + 1)
