"""Puts resources into a pool and makes sure that they are there: numbered calls, and again after a new server."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from scrapy_lease.exceptions import SessionLost, StoreUnavailable
from scrapy_lease.leases.pool.supply import RegisterStore
from scrapy_lease.leases.session import Session

R = TypeVar("R")

#: Resources of one call: some milliseconds of the server's time.
CHUNK = 500
#: Seconds between two tries of a call that got no answer.
RETRY = 1.0
#: Seconds whose writes a server that restarts may have lost, generously.
TAIL = 10.0


class Register(Generic[R]):
    """The register lane of one pool.

    :param lane: names the numbers of its calls.
    """

    def __init__(self, lane: str, store: RegisterStore[R], session: Session) -> None:
        self._lane = lane
        self._store = store
        self._session = session
        self._generation = session.generation
        self._recent: deque[tuple[float, Sequence[R]]] = deque()
        self._turn = asyncio.Lock()

    async def add(self, resources: Sequence[R]) -> str:
        """Register *resources*, however long the store or the session is away.

        :returns: one character each, as ``pool_register.lua`` says.
        :raises StoreRefused: the store will never take them.
        """
        reply = ""
        for first in range(0, len(resources), CHUNK):
            chunk = resources[first : first + CHUNK]
            async with self._turn:
                reply += await self._answered(chunk)
            self._recent.append((time.monotonic(), chunk))
        return reply

    async def again(self) -> None:
        """After the server was replaced, register what it may have lost; otherwise nothing. Store errors pass through.

        To be awaited before the session reports to the new server what it holds: of what that does not know it would
        be told that it is lost.
        """
        if self._generation == self._session.generation:
            self._forget_old()
            return
        async with self._turn:
            generation = self._session.generation
            for _, chunk in tuple(self._recent):
                await self._store.register(self._session.sid, self._number(), chunk)
            self._generation = generation

    async def _answered(self, chunk: Sequence[R]) -> str:
        sid, number = self._session.sid, self._number()
        while True:
            try:
                return await self._store.register(sid, number, chunk)
            except (StoreUnavailable, SessionLost):
                await asyncio.sleep(RETRY)
            if sid != self._session.sid:
                sid, number = self._session.sid, self._number()

    def _number(self) -> int:
        return self._session.number(self._lane)

    def _forget_old(self) -> None:
        """What is older than the tail of a server that died just after the last heartbeat is safe."""
        horizon = time.monotonic() - TAIL - self._session.ttl
        while self._session.is_confirmed and self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
