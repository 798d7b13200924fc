"""Who reads ``start()``, and how fast.

With ``LEASE_START = "one"`` a single session of the run reads it, as fast as it can while there are others; they
wait, and one takes over if the reader dies. With ``"each"`` all do, and the n-th occurrence of a request counts once
over all hosts. A session is *producing* until ``start()`` has ended and all it yielded is in the backlog; nobody
leaves a run in which somebody is producing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum

from scrapy import Request
from scrapy.utils.request import RequestFingerprinterProtocol

from scrapy_lease.exceptions import StoreError
from scrapy_lease.feeds.entries import is_fed
from scrapy_lease.fingerprints import fingerprint_by
from scrapy_lease.leases.session import Session
from scrapy_lease.store.scripts import Scripts

logger = logging.getLogger(__name__)

#: Seconds that start() may run without giving the reactor a turn.
SLICE = 0.005
#: Requests that start() may be ahead of what is pushed.
BUFFER = 1000
#: Seconds between the first questions whether ``start()`` is to be read here; doubling up to 1.
FIRST_WAIT = 0.05


class _State(Enum):
    READING = "reading"
    READ = "read"
    FINISHED = "finished"


class Start:
    """See the module's docstring.

    :param mode: ``one`` or ``each``.
    :param ahead: ``start()`` pauses while more requests than this are pending.
    :param backlog_size: gives (requests pending in the backlog, requests waiting here to be pushed).
    """

    def __init__(
        self,
        session: Session,
        scripts: Scripts,
        fingerprinter: RequestFingerprinterProtocol,
        mode: str,
        ahead: int,
        backlog_size: Callable[[], tuple[int, int]],
    ) -> None:
        self._session = session
        self._scripts = scripts
        self._fingerprint_of = fingerprint_by(fingerprinter)
        self._mode = mode
        self._ahead = ahead
        self._backlog_size = backlog_size
        self._state = _State.READING
        self._is_reader = False
        self._occurrences: Counter[int] = Counter()
        self._waiting: dict[Request, int] = {}
        self._yielded_at = time.monotonic()
        self._told = (0, "")
        #: Had another session read ``start()`` to its end before this one asked?
        self.was_over = False

    def __repr__(self) -> str:
        return f"<Start {self._mode}: {self._state.value}>"

    @property
    def is_finished(self) -> bool:
        """Has this session told the store that it produces nothing more?"""
        return self._state is _State.FINISHED and self._told == self._standpoint()

    @property
    def has_ended(self) -> bool:
        """Has ``start()`` ended without this session having told the store yet?"""
        return self._state is not _State.READING and not self.is_finished

    async def is_mine(self) -> bool:
        """Wait until this session is to read ``start()`` (True), or until another has (False)."""
        wait = FIRST_WAIT
        while True:
            try:
                answer = await self._scripts.start(self._session.sid, "claim", self._mode)
            except StoreError:
                answer = "wait"
            if answer != "wait" and not self._session.is_lost:
                self._is_reader = answer == "yours"
                self.was_over = answer == "over" and wait == FIRST_WAIT
                return self._is_reader
            await asyncio.sleep(wait)
            wait = min(1.0, wait * 2)

    @property
    def is_awaited(self) -> bool:
        """Do other sessions wait for what ``start()`` yields here?"""
        return self._mode == "one" and self._session.live > 1

    def yielded(self, request: Request) -> None:
        """Note that ``start()`` yielded *request*, before the engine schedules it."""
        if is_fed(request):
            return
        number = 1
        if request.dont_filter:
            try:
                known = int.from_bytes(self._fingerprint_of(request)[:8], "big")
            except Exception:
                known = hash(request.url)
            self._occurrences[known] += 1
            number = self._occurrences[known]
        self._waiting[request] = number

    def occurrence_of(self, request: Request) -> int:
        """Return the how-manieth of its kind *request* is, 0 if ``start()`` did not yield it; asked once."""
        return self._waiting.pop(request, 0)

    async def pace(self) -> None:
        """Give the reactor a turn now and then, and wait while enough is pending."""
        if time.monotonic() - self._yielded_at > SLICE:
            await asyncio.sleep(0)
            self._yielded_at = time.monotonic()
        while True:
            pending, here = self._backlog_size()
            if pending <= self._ahead and here <= BUFFER:
                return
            await asyncio.sleep(0.05)
            self._yielded_at = time.monotonic()

    def ended(self) -> None:
        """``start()`` has ended, or another session has read it."""
        self._state = _State.READ
        self._occurrences.clear()

    async def finish(self) -> None:
        """Tell the store that this session produces nothing more; all it yielded is in the backlog.

        Nothing happens before ``start()`` has ended, and nothing twice in one session. Store errors pass through.
        """
        if self._state is _State.READING or self.is_finished:
            return
        verb = "finish" if self._is_reader else "leave"
        told = self._standpoint()
        await self._scripts.start(self._session.sid, verb, self._mode)
        self._state, self._told = _State.FINISHED, told

    def _standpoint(self) -> tuple[int, str]:
        """Another session must say it again, and so must this one to a server that may have forgotten it.

        The server's own id tells it: the number of a generation may be given out again, if its first use was lost.
        """
        return self._session.epoch, self._scripts.server_id
