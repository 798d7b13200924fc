"""A session: one running crawl in one process, the one thing that is renewed.

States and what leads from one to the next::

    new -> open -> lost -> open (another id, the old one as *previous*) -> ... -> closed

A session is *confirmed* while this process knows, by its own boot-time clock, that its deadline in the store lies
ahead: from before the last answered heartbeat, for the time to live less 1 s and 1 %. Nothing leased is sent by a
session that is not confirmed. Not confirmed is not lost: lost it is when the store says so, and then for good.

What this cannot do: see the pause of a virtual machine whose boot-time clock was paused too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from scrapy_lease.exceptions import SessionLost

#: Live sessions up to which a time to live (s) is used where LEASE_TTL is "auto".
AUTO_TTL = ((10, 5.0), (50, 10.0), (200, 30.0))
MAX_TTL = 60.0


#: Returns seconds on a clock that nobody can step and that goes on while the machine sleeps. No function of ours, since
#: each step of a request reads it.
boot_time: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Opened(Protocol):
    """What opening tells: the server's generation, the number of the run, live sessions of the job."""

    @property
    def generation(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def live(self) -> int: ...


class Beat(Protocol):
    """What a heartbeat tells."""

    @property
    def generation(self) -> int: ...
    @property
    def live(self) -> int: ...
    @property
    def paused(self) -> bool: ...
    @property
    def draining(self) -> bool: ...
    @property
    def reported(self) -> bool: ...


class SessionStore(Protocol):
    """What a session needs of the store; see :class:`scrapy_lease.store.scripts.Scripts`."""

    async def open(self, sid: str, *, ttl: int, config: str, fresh: bool, info: Mapping[str, str]) -> Opened: ...
    async def beat(self, sid: str, *, ttl: int, node: str) -> Beat: ...
    async def close(self, sid: str) -> None: ...
    async def report(
        self, sid: str, n: int, holds: Sequence[tuple[bytes, int]], *, previous: str = ""
    ) -> list[int]: ...


def auto_ttl(live: int, worst_lag: float) -> float:
    """Return the time to live, in s, for *live* sessions of a namespace and a reactor that lagged *worst_lag* s."""
    by_size = next((ttl for limit, ttl in AUTO_TTL if live <= limit), MAX_TTL)
    return min(MAX_TTL, max(by_size, 4 * worst_lag))


class Session:
    """See the module's docstring.

    :param node: the node's name, shown to people and drained by.
    :param ttl: seconds to live without a heartbeat; None: by the number of live sessions.
    :param config: what the live sessions of a job must agree on.
    :param fresh: opening a job whose last run is over begins a new run.
    :param info: what people see of this session.
    :param clock: the boot-time clock, in s.
    """

    def __init__(
        self,
        *,
        node: str,
        ttl: float | None,
        config: str,
        fresh: bool,
        info: Mapping[str, str],
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self.node = node
        self.ttl = ttl if ttl is not None else AUTO_TTL[0][1]
        self.sid = ""
        self.previous = ""
        #: Rises with every session this process opens; work handed out under another epoch is stale.
        self.epoch = 0
        self.run = 0
        self.live = 1
        self.generation = 0
        self.is_lost = False
        self.is_closed = False
        self.renewed = 0
        self.losses = 0
        self._auto = ttl is None
        self._config = config
        self._fresh = fresh
        self._info = dict(info)
        self._clock = clock
        self._confirmed_until = float("-inf")
        self._numbers: dict[str, int] = {}

    def __repr__(self) -> str:
        if self.is_closed:
            state = "closed"
        elif self.is_lost:
            state = "lost"
        else:
            state = f"confirmed for {self.confirmed_for:.1f} s" if self.is_confirmed else "not confirmed"
        return f"<Session {self.sid or 'new'} of {self.node}: {state}>"

    @property
    def is_confirmed(self) -> bool:
        """Does this process know at this instant that the session lives?"""
        return not self.is_lost and not self.is_closed and self._clock() < self._confirmed_until

    @property
    def confirmed_for(self) -> float:
        """Seconds for which the session is confirmed; not positive when it is not."""
        return self._confirmed_until - self._clock()

    def number(self, verb: str) -> int:
        """Return the number of the next new call of *verb*."""
        number = self._numbers[verb] = self._numbers.get(verb, 0) + 1
        return number

    async def open(self, store: SessionStore) -> None:
        """Open a session under a new id; after a loss the old id becomes :attr:`previous`.

        Store errors pass through; call again to try again.
        """
        sid = secrets.token_hex(10)
        asked = self._clock()
        ttl = self.ttl
        opened = await store.open(sid, ttl=int(ttl * 1000), config=self._config, fresh=self._fresh, info=self._info)
        self.previous, self.sid = self.sid, sid
        self.epoch += 1
        self.run, self.live, self.generation = opened.run, opened.live, opened.generation
        self._numbers = {}
        self.is_lost = False
        # How long an earlier session was confirmed says nothing of this one: the store may have forgotten it early.
        self._confirmed_until = float("-inf")
        self._confirm(asked, ttl)

    async def beat(self, store: SessionStore, *, worst_lag: float = 0.0) -> Beat | None:
        """Renew the session; None: it is lost (or over) and was not renewed. Store errors pass through.

        :param worst_lag: the longest time, in s, that the reactor was late within the last minutes.
        """
        if not self.sid or self.is_lost or self.is_closed:
            return None
        if self._auto:
            self.ttl = auto_ttl(self.live, worst_lag)
        sid, ttl, asked = self.sid, self.ttl, self._clock()
        try:
            answer = await store.beat(sid, ttl=int(ttl * 1000), node=self.node)
        except SessionLost:
            if sid == self.sid:
                self.lose()
            return None
        if sid == self.sid and not self.is_lost:
            self._confirm(asked, ttl)
            self.renewed += 1
            self.live, self.generation = answer.live, answer.generation
        return answer

    def lose(self) -> None:
        """Note that the store says this session is over."""
        if not self.is_lost and not self.is_closed:
            self.is_lost = True
            self.losses += 1

    async def close(self, store: SessionStore) -> None:
        """End the session in the store. From here on it is not confirmed, whatever the store answers."""
        self.is_closed = True
        if self.sid:
            await store.close(self.sid)

    def _confirm(self, asked: float, ttl: float) -> None:
        self._confirmed_until = max(self._confirmed_until, asked + ttl * 0.99 - 1.0)
