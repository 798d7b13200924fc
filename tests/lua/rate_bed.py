"""Counters on a real server, whose clock is the test's, and sessions that take of them."""

from __future__ import annotations

from typing import Any

from scrapy_lease.leases.rates.words import CounterName, RateAsk
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.rate_scripts import Granted, RateScripts
from scrapy_lease.store.scripts import Scripts
from tests.helpers.servers import Server
from tests.helpers.timed import TimedWire
from tests.state.pool_wire import run

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NAME = CounterName("api", "api https://shop.example/", "api:shop:1000")


class RateBed:
    """See the module's docstring."""

    def __init__(self, server: Server) -> None:
        self.client = server.client()
        self.wire: Any = TimedWire(self.client)
        self.space = Namespace("test")
        self.scripts = Scripts(self.wire, self.space.scope("shop", expected_items=100))
        self.rates = RateScripts(self.wire, self.space)
        self.key = self.space.rate(NAME.label)

    def pass_time(self, milliseconds: float) -> None:
        """Let the server's clock go on."""
        self.wire.now += milliseconds

    def session(self, sid: str = "a", limit: int = 10, length: int = SECOND, **options: Any) -> Taker:
        """Open a session that asks for permits of one counter."""
        run(self.scripts.open(sid, ttl=HOUR, config="c", fresh=True, info={"node": sid}))
        return Taker(self, sid, limit, length, options)

    def counted(self) -> int:
        """Permits granted in the window of the counter."""
        return int(self.client.hget(self.key, "count") or 0)


class Taker:
    """One session; its calls are numbered unless a number is given."""

    def __init__(self, bed: RateBed, sid: str, limit: int, length: int, options: dict[str, Any]) -> None:
        self.sid = sid
        self.limit = limit
        self.n = 0
        self._bed = bed
        self._length = length
        self._name = options.pop("name", NAME)
        self._options = options

    def take(self, want: int = 1, *, n: int | None = None, previous: str = "", **more: Any) -> Granted:
        self.n += n is None
        ask = RateAsk(self.limit, self._length, want, **{**self._options, **more})
        number = self.n if n is None else n
        return run(self._bed.rates.take(self.sid, number, self._name, ask, previous=previous))

    def get(self, want: int = 1, **more: Any) -> int:
        """How many permits a call gives."""
        return self.take(want, **more).permits

    def beat(self) -> None:
        run(self._bed.scripts.beat(self.sid, ttl=HOUR, node=self.sid))

    def close(self) -> None:
        run(self._bed.scripts.close(self.sid))
