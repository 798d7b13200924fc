"""The heartbeat goes on whatever happens to one beat; the lag is measured; the watchdog knows when its time is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_lease import heartbeat
from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.heartbeat import LAG_MEMORY, Heartbeat, Lag, Watchdog
from scrapy_lease.leases.session import Session
from tests.state.memory import Answering, Memory
from tests.state.reactor import on_reactor


class Shaky:
    """A store in memory, slow or failing as a test says; *most* is the most beats that were ever under way at once."""

    def __init__(self, before: Callable[[int], Any]) -> None:
        self.channel = SimpleNamespace(timeout=5.0)
        self.beats = 0
        self.most = 0
        self.under_way = 0
        self._store = Answering(Memory())
        self._before = before

    async def open(self, *args: Any, **kwargs: Any) -> Any:
        return await self._store.open(*args, **kwargs)

    async def beat(self, *args: Any, **kwargs: Any) -> Any:
        self.beats += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self._before(self.beats)
            return await self._store.beat(*args, **kwargs)
        finally:
            self.under_way -= 1


async def nothing(number: int) -> None:
    """Do not disturb this beat."""


async def opened(store: Any, ttl: float = 0.15) -> Session:
    session = Session(node="n", ttl=ttl, config="c", fresh=True, info={})
    await session.open(store)
    return session


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("looping", [True, False], ids=["LoopingCall", "asyncio"])
@on_reactor
async def test_a_failing_listener_does_not_stop_the_heartbeat(
    looping: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """on_beat raises each time: each is logged, and the next beat comes in its time, not at once."""
    monkeypatch.setattr(heartbeat, "is_reactor_installed", lambda: looping)
    store: Any = Shaky(nothing)
    session = await opened(store)

    def on_beat(beat: Any) -> None:
        raise ValueError("a bug in what listens")

    beating = Heartbeat(session, store, Lag(), on_beat)
    began = time.monotonic()
    with caplog.at_level(logging.ERROR, "scrapy_lease.heartbeat"):
        beating.start()
        await until(lambda: store.beats >= 5)
        took = time.monotonic() - began
        await beating.stop()
    assert took >= 3.5 * 0.05, "a failure must not make it beat without a pause"
    assert len(caplog.records) >= 4
    assert "a bug in what listens" in caplog.text


@pytest.mark.parametrize("looping", [True, False], ids=["LoopingCall", "asyncio"])
@on_reactor
async def test_beats_never_overlap(looping: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that takes longer than the interval delays the next; both reactors' loops wait for it."""
    monkeypatch.setattr(heartbeat, "is_reactor_installed", lambda: looping)

    async def slow(number: int) -> None:
        await asyncio.sleep(0.12)

    store: Any = Shaky(slow)
    session = await opened(store, ttl=5.0)
    session.ttl = 0.15
    beating = Heartbeat(session, store, Lag(), lambda beat: None)
    beating.start()
    await until(lambda: store.beats >= 4)
    await beating.stop()
    assert store.most == 1


@on_reactor
async def test_a_store_that_is_away_does_not_stop_the_heartbeat() -> None:
    """Beats without an answer are followed by others, and the listener hears of the one that was answered."""

    async def away(number: int) -> None:
        if number < 4:
            raise StoreUnavailable("no answer")

    store: Any = Shaky(away)
    session = await opened(store, ttl=5.0)
    session.ttl = 0.15
    heard: list[Any] = []
    beating = Heartbeat(session, store, Lag(), heard.append)
    beating.start()
    await until(lambda: bool(heard))
    await beating.stop()
    assert store.beats >= 4
    assert heard[0].live == 1


@on_reactor
async def test_after_stop_nothing_beats() -> None:
    """stop() ends it for good, also while a beat is under way whose listener fails."""
    released = asyncio.Event()

    async def held(number: int) -> None:
        await released.wait()

    def on_beat(beat: Any) -> None:
        raise ValueError("late")

    store: Any = Shaky(held)
    beating = Heartbeat(await opened(store), store, Lag(), on_beat)
    beating.start()
    await until(lambda: store.beats == 1)
    await beating.stop()
    released.set()
    await asyncio.sleep(0.2)
    assert store.beats == 1


@given(st.lists(st.floats(0, 10), max_size=40), st.integers(0, 40))
def test_worst_is_the_greatest_lateness_that_is_remembered(lates: list[float], forgotten: int) -> None:
    """worst is the maximum of the last five minutes, worst_ever of all; what is older is forgotten."""
    lag = Lag()
    now = time.monotonic()
    for number, late in enumerate(lates):
        is_old = number < forgotten
        lag._note(now - LAG_MEMORY - 50 + number if is_old else now, late)
    assert lag.worst == max(lates[forgotten:], default=0.0)
    assert lag.worst_ever == max(lates, default=0.0)


@on_reactor
async def test_a_blocked_reactor_shows_in_the_lag() -> None:
    """A callback that blocks for 0.4 s is a lateness of about that; until the next tick blocked_for grows."""
    lag = Lag()
    lag.start()
    await until(lambda: lag.blocked_for < 0.05)
    time.sleep(0.4)
    assert lag.blocked_for >= 0.4
    await until(lambda: lag.worst >= 0.25)
    lag.stop()
    assert lag.worst_ever == lag.worst


@pytest.mark.parametrize(
    ("blocked", "confirmed", "is_due"),
    [
        (0.5, 1.0, False),
        (1.3, 1.0, True),
        (1.3, 2.7, True),
        (1.3, 2.8, False),
        (59.0, -5.0, True),
        (61.0, 1.0, False),
    ],
    ids=["not blocked", "blocked", "just due", "beat lately", "nearly at its end", "beyond the grace"],
)
def test_the_watchdog_beats_for_a_blocked_reactor_only(blocked: float, confirmed: float, is_due: bool) -> None:
    """Due: the reactor gave no sign for a quarter of the TTL, within the grace, and a beat was missed (TTL 5 s)."""
    session = Session(node="n", ttl=5.0, config="c", fresh=True, info={}, clock=lambda: 100.0)
    session._confirmed_until = 100.0 + confirmed
    lag = Lag()
    lag.last_tick = time.monotonic() - blocked
    watchdog = Watchdog(session, lambda: pytest.fail("no connection is needed"), lag, grace=60.0)
    assert watchdog._is_due() is is_due
