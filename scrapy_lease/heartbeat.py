"""The one heartbeat of a session, the measure of how late the reactor is, and the watchdog for when it is blocked.

The heartbeat is a Twisted ``LoopingCall`` whose function returns a Deferred, so beats never overlap; it has a
connection of its own, which no queue of other calls delays. A callback or pipeline that blocks the reactor stops it.
Then a thread, with an event loop and a connection of its own, beats in its place, for LEASE_BLOCK_GRACE seconds at
most: longer, and the session is lost like that of a frozen process.

What it cannot do: beat while code in C holds the interpreter lock.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from scrapy.utils.asyncio import AsyncioLoopingCall
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet.task import LoopingCall

from scrapy_lease.exceptions import StoreError
from scrapy_lease.leases.session import Beat, Session
from scrapy_lease.store.scripts import Scripts

logger = logging.getLogger(__name__)

#: Seconds after which a beat that failed is tried again: waiting for the next would cost the session its certainty.
RETRY = 0.1
#: Seconds of lateness from which on the process was frozen or blocked: it cannot say who was silent meanwhile.
ABSENT = 1.0
#: Seconds over which the worst lag counts.
LAG_MEMORY = 300.0


class Lag:
    """How late the reactor is: a timer that should fire every :attr:`STEP` seconds tells.

    :attr:`worst` is the longest lateness of the last five minutes, :attr:`worst_ever` of all, :attr:`recent` of late:
    of what it was, half counts a third of a second later; all in s.
    """

    STEP = 0.1

    def __init__(self) -> None:
        self.last_tick = time.monotonic()
        self.worst_ever = self.recent = 0.0
        self._awake_since = self.last_tick
        self._maxima: deque[tuple[float, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def worst(self) -> float:
        """Longest lateness within :data:`LAG_MEMORY`, in s."""
        horizon = time.monotonic() - LAG_MEMORY
        while self._maxima and self._maxima[0][0] < horizon:
            self._maxima.popleft()
        return self._maxima[0][1] if self._maxima else 0.0

    @property
    def blocked_for(self) -> float:
        """Seconds since the reactor gave a sign of life; readable from any thread."""
        return time.monotonic() - self.last_tick

    @property
    def awake_since(self) -> float:
        """Clock time (s) since which the reactor was never late for :data:`ABSENT` seconds."""
        return self._awake_since if self.blocked_for < ABSENT else time.monotonic()

    def start(self) -> None:
        """Begin to measure, on the running loop."""
        self.last_tick = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self.STEP, self._tick)

    def stop(self) -> None:
        """Measure no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = time.monotonic()
        self._note(now, max(0.0, now - self.last_tick - self.STEP))
        self.last_tick = now
        self._timer = asyncio.get_running_loop().call_later(self.STEP, self._tick)

    def _note(self, now: float, late: float) -> None:
        if late >= ABSENT:
            self._awake_since = now
        self.worst_ever = max(self.worst_ever, late)
        self.recent = max(late, 0.8 * self.recent)
        # A maximum queue: only what is greater than all that came later can still be the worst.
        while self._maxima and self._maxima[-1][1] <= late:
            self._maxima.pop()
        self._maxima.append((now, late))


class _Looping(Protocol):
    interval: float | None

    def stop(self) -> Any: ...


class Heartbeat:
    """Renews a session every third of its time to live.

    :param scripts: over a connection of the heartbeat's own.
    :param on_beat: called after each beat, with its answer; None: the session is lost.
    """

    def __init__(self, session: Session, scripts: Scripts, lag: Lag, on_beat: Callable[[Beat | None], None]) -> None:
        self._session = session
        self._scripts = scripts
        self._lag = lag
        self._on_beat = on_beat
        self._timeout = scripts.channel.timeout
        #: Clock time (s) of the first beat of those that have no answer; None: the last was answered.
        self.unanswered_since: float | None = None
        self._call: _Looping | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to beat, at once."""
        interval = self._session.ttl / 3
        if is_reactor_installed():
            call = LoopingCall(lambda: deferred_from_coro(self._beat_safely()))
            self._call = call
            call.start(interval, now=True)
        else:
            self._call = AsyncioLoopingCall(self._beat_in_task)
            self._call.start(interval, now=True)

    async def stop(self) -> None:
        """Beat no longer."""
        if self._call is not None:
            self._call.stop()
            self._call = None
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _beat_safely(self) -> None:
        """A looping call stops at the first failure; a session must not die of a bug in what listens to it."""
        try:
            await self._beat()
        except Exception:
            logger.exception("A heartbeat failed; the next follows in its time")

    async def _beat(self) -> None:
        # A beat that got stuck must not keep the next one from being sent over a new connection.
        self._scripts.channel.timeout = max(0.5, min(self._timeout, self._session.ttl / 3))
        until = time.monotonic() + self._session.ttl / 3 - RETRY
        while True:
            if self.unanswered_since is None:
                self.unanswered_since = time.monotonic()
            try:
                answer = await self._session.beat(self._scripts, worst_lag=self._lag.worst)
                self.unanswered_since = None
                break
            except StoreError:
                if self._call is None or time.monotonic() > until:
                    return
                await asyncio.sleep(RETRY)
        self._on_beat(answer)
        if self._call is not None:
            self._call.interval = self._session.ttl / 3

    def _beat_in_task(self) -> None:
        """Reactorless: Scrapy's looping call takes no coroutine, and would not wait for one."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._beat_safely())


class Watchdog:
    """Beats from a thread while the reactor is blocked; see the module's docstring.

    :param connect: makes scripts over a new connection, on the loop of the thread.
    :param grace: seconds of one blockage for which it beats.
    """

    def __init__(self, session: Session, connect: Callable[[], Scripts], lag: Lag, grace: float) -> None:
        self._session = session
        self._connect = connect
        self._lag = lag
        self._grace = grace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrapy-lease-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        if self._grace > 0:
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer; does not wait for the thread."""
        self._stop.set()

    def _run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        scripts = self._connect()
        while not self._stop.is_set():
            await asyncio.sleep(min(0.25, self._session.ttl / 12))
            if self._is_due():
                try:
                    await self._session.beat(scripts, worst_lag=self._lag.blocked_for)
                except StoreError as error:
                    logger.debug("A heartbeat of the watchdog had no answer: %s", error)
        await scripts.channel.close()

    def _is_due(self) -> bool:
        """Has the reactor missed a beat, within the grace?"""
        ttl = self._session.ttl
        return ttl / 4 < self._lag.blocked_for < self._grace and self._session.confirmed_for < ttl * 0.55
