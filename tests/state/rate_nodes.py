"""Nodes that take permits of one counter: what they are granted, spend, give back; their calls may go astray."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.leases.rates import Counter, CounterName, Limit, RateAsk, RateOptions
from scrapy_lease.store.calls import Call
from scrapy_lease.store.rate_scripts import RateScripts
from scrapy_lease.store.scripts import Scripts
from tests.helpers.timed import TimedWire
from tests.state.pool_wire import run

TTL = 5000
NAME = CounterName("api", "api shop", "api:shop")


class Recorder:
    """A wire that keeps what is sent through it, so that a copy can arrive later."""

    def __init__(self, wire: TimedWire) -> None:
        self.wire = wire
        self.sent: list[Call] = []

    async def call(self, call: Call) -> Any:
        self.sent.append(call)
        return await self.wire.call(call)


class RateNode:
    """One process; *drift*: how fast its clock runs."""

    _sids = itertools.count(1)
    _numbers = itertools.count(1)

    def __init__(
        self, recorder: Recorder, scripts: Scripts, limit: Limit, options: RateOptions, boot: Callable[[], float],
        drift: float,
    ) -> None:  # fmt: skip
        self._scripts = scripts
        self._rates = RateScripts(recorder, scripts.scope.namespace)  # type: ignore[arg-type]
        self._clock = lambda: boot() * drift
        self.counter = Counter(NAME, limit, options, 0, self._numbers.__next__, self._clock)
        self.sid = ""
        self.open()

    def open(self) -> None:
        """Open a session, in the place of one that was lost."""
        self.sid = f"s{next(self._sids)}"
        run(self._scripts.open(self.sid, ttl=TTL, config="c", fresh=True, info={"node": "n"}))

    def lose(self) -> None:
        """The session is over, the process is not."""
        run(self._scripts.close(self.sid))
        self.open()

    def beat(self) -> None:
        try:
            run(self._scripts.beat(self.sid, ttl=TTL, node="n"))
        except SessionLost:
            self.open()

    def ask(self, want: int, fate: str, delay: Callable[[int], None], ways: tuple[int, int]) -> None:
        """Ask for permits, without patience; *ways*: ms that the call and its answer take."""
        self.counter.wanted = want
        self.counter.lanes[0].next_try = float("-inf")
        if self.counter.due() is not None:
            self._exchange(self.counter.ask(0, ()), fate, delay, ways)

    def give_back(self, fate: str, delay: Callable[[int], None], ways: tuple[int, int]) -> None:
        ask = self.counter.give_back(0, ())
        if ask is not None:
            self._exchange(ask, fate, delay, ways)

    def _exchange(self, ask: RateAsk, fate: str, delay: Callable[[int], None], ways: tuple[int, int]) -> None:
        """*fate*: "ok", or who loses it: "call" (it never arrives) or "reply"."""
        lane, asked = self.counter.lanes[0], self._clock()
        delay(ways[0])
        if fate == "call":
            self.counter.failed(0, 0.0)
            return
        previous = lane.sid if lane.sid != self.sid else ""
        try:
            granted = run(self._rates.take(self.sid, lane.n, NAME, ask, previous=previous))
        except SessionLost:
            self.counter.failed(0, 0.0)
            self.open()
            return
        except StoreRefused:
            lane.unanswered = None
            self.counter.failed(0, 0.0)
            return
        delay(ways[1])
        if fate == "reply":
            self.counter.failed(0, 0.0)
            return
        lane.sid = self.sid
        self.counter.answered(0, asked, granted)

    def spend(self, permits: int) -> int:
        """Spend up to so many; return how many there were."""
        spent = min(permits, self.counter.purse.permits)
        if spent:
            self.counter.spend(spent, self._clock())
        return spent
