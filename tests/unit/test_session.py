"""A session's arithmetic: how long it lives, how long it is confirmed, what loss and closing mean."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.leases.session import Session, auto_ttl, boot_time
from tests.state.memory import Answering, Memory


class World:
    """A session, its store, and the clocks of both."""

    def __init__(self, ttl: float | None) -> None:
        self.boot = 100.0
        self.memory = Memory()
        self.store: Any = Answering(self.memory)
        self.session = Session(node="node", ttl=ttl, config="c", fresh=True, info={}, clock=lambda: self.boot)

    def go_on(self, seconds: float) -> None:
        self.boot += seconds
        self.memory.go_on(int(seconds * 1000))

    def open(self) -> None:
        asyncio.run(self.session.open(self.store))

    def beat(self, **options: Any) -> Any:
        return asyncio.run(self.session.beat(self.store, **options))


@pytest.mark.parametrize(
    ("live", "lag", "ttl"),
    [
        (0, 0, 5), (1, 0, 5), (10, 0, 5), (11, 0, 10), (50, 0, 10), (51, 0, 30), (200, 0, 30), (201, 0, 60),
        (100_000, 0, 60), (1, 1.25, 5), (1, 1.5, 6), (11, 5, 20), (51, 5, 30), (1, 14, 56), (1, 15.1, 60),
        (201, 90, 60),
    ],
)  # fmt: skip
def test_auto_ttl(live: int, lag: float, ttl: float) -> None:
    """LEASE_TTL "auto": by live sessions, never under four times the worst lag, never over 60 s."""
    assert auto_ttl(live, lag) == ttl


@pytest.mark.parametrize(("ttl", "confirmed"), [(2, 0.98), (5, 3.95), (10, 8.9), (60, 58.4)])
def test_confirmed_for_the_time_to_live_less_a_second_and_a_percent(ttl: float, confirmed: float) -> None:
    """Opening and each answered beat confirm from before they were sent, for TTL - 1 s - 1 %; not a moment longer."""
    world = World(ttl)
    world.open()
    assert world.session.confirmed_for == pytest.approx(confirmed)
    world.go_on(confirmed / 2)
    world.beat()
    assert world.session.confirmed_for == pytest.approx(confirmed)
    world.go_on(confirmed - 0.001)
    assert world.session.is_confirmed
    world.go_on(0.002)
    assert not world.session.is_confirmed
    assert world.session.confirmed_for < 0


def test_a_late_answer_counts_from_before_the_sending() -> None:
    """However long an answer takes, the session is confirmed from when the beat was sent."""
    world = World(5)
    world.open()
    world.go_on(1)
    beat: Coroutine[Any, Any, Any] = world.session.beat(world.memory)
    call = beat.send(None)
    call.run()
    world.go_on(3)
    with pytest.raises(StopIteration):
        beat.send(call.reply)
    assert world.session.confirmed_for == pytest.approx(0.95)


def test_an_answer_for_another_session_confirms_nothing() -> None:
    """A beat of the old session that is answered after another was opened changes nothing."""
    world = World(60)
    world.open()
    beat: Coroutine[Any, Any, Any] = world.session.beat(world.memory)
    call = beat.send(None)
    call.run()
    world.session.lose()
    world.session.ttl = 2
    world.open()
    with pytest.raises(StopIteration):
        beat.send(call.reply)
    assert world.session.confirmed_for == pytest.approx(0.98)


def test_a_new_session_is_not_confirmed_by_the_old_one() -> None:
    """A store that forgot a session of 60 s: the one opened in its place is confirmed for its own 5 s only."""
    world = World(None)
    world.memory.others = 300
    world.open()
    world.beat()
    world.memory.others = 0
    world.beat()
    assert world.session.confirmed_for == pytest.approx(58.4)
    world.memory.forget()
    assert world.beat() is None
    world.open()
    assert world.session.confirmed_for == pytest.approx(3.95)


def test_lost_is_lost_for_good_until_another_is_opened() -> None:
    """A beat after the deadline loses the session; opening gives a new id and epoch, and the old as previous."""
    world = World(5)
    world.open()
    session, first = world.session, world.session.sid
    assert [session.number("push"), session.number("push"), session.number("lease")] == [1, 2, 1]
    world.go_on(6)
    assert world.beat() is None
    assert (session.is_lost, session.is_confirmed, session.losses) == (True, False, 1)
    assert world.beat() is None, "a lost session was asked for again"
    session.lose()
    assert session.losses == 1, "one loss was counted twice"
    world.open()
    assert session.sid != first
    assert (session.previous, session.epoch, session.is_lost, session.is_confirmed) == (first, 2, False, True)
    assert session.number("push") == 1


def test_closed_is_not_confirmed_whatever_the_store_answers() -> None:
    """From the call of close() on the session is not confirmed, also if the store does not hear of it."""
    world = World(5)
    world.open()
    closing: Coroutine[Any, Any, Any] = world.session.close(world.memory)
    closing.send(None)
    assert not world.session.is_confirmed
    with pytest.raises(StoreUnavailable):
        closing.throw(StoreUnavailable("gone"))
    assert not world.session.is_confirmed
    assert world.beat() is None
    world.session.lose()
    assert (world.session.is_lost, world.session.losses) == (False, 0)


def test_a_session_that_was_never_opened_has_nothing_to_end() -> None:
    """beat() and close() before open() do not call the store."""
    world = World(5)
    assert world.beat() is None
    asyncio.run(world.session.close(world.store))
    assert world.memory.deadlines == {}


def test_an_opening_without_an_answer_changes_nothing() -> None:
    """Store errors pass through open(), and the session is what it was."""
    world = World(5)
    opening: Coroutine[Any, Any, Any] = world.session.open(world.memory)
    opening.send(None)
    with pytest.raises(StoreUnavailable):
        opening.throw(StoreUnavailable("gone"))
    assert (world.session.sid, world.session.epoch, world.session.is_confirmed) == ("", 0, False)


def test_the_time_to_live_follows_live_sessions_and_lag() -> None:
    """With "auto" each beat asks for what the last answer and the lag call for; a fixed one stays."""
    world, fixed = World(None), World(7)
    for each in (world, fixed):
        each.memory.others = 20
        each.open()
        each.beat()
        each.beat(worst_lag=4.0)
    assert (world.session.ttl, fixed.session.ttl) == (16, 7)


def test_its_repr_tells_the_state() -> None:
    """New, confirmed, not confirmed, lost and closed can be told apart."""
    world = World(5)
    shown = [repr(world.session)]
    world.open()
    sid = world.session.sid
    shown.append(repr(world.session))
    world.go_on(4.5)
    shown.append(repr(world.session))
    world.session.lose()
    shown.append(repr(world.session))
    asyncio.run(world.session.close(world.store))
    shown.append(repr(world.session))
    states = ("not confirmed", "confirmed for 4.0 s", "not confirmed", "lost", "closed")
    assert shown[0] == "<Session new of node: not confirmed>"
    assert shown[1:] == [f"<Session {sid} of node: {state}>" for state in states[1:]]


def test_the_boot_clock_is_monotonic() -> None:
    """boot_time() never goes back."""
    readings = [boot_time() for _ in range(100)]
    assert readings == sorted(readings)
