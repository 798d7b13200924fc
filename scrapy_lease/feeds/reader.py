"""Reads a feed: entries into requests, and each entry settled when its requests are in the backlog.

Nothing else waits for either server: while one is away the reader asks again, and goes on when it is back. What is
unclear after a call without an answer, the account of the session on the feed's server tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from scrapy import Request
from scrapy.exceptions import CloseSpider

from scrapy_lease.exceptions import StoreError, StoreRefused, StoreUnavailable
from scrapy_lease.feeds.entries import ORIGIN, Fed, Origin
from scrapy_lease.feeds.sessions import Sessions
from scrapy_lease.leases.items import Verdict
from scrapy_lease.leases.session import Session
from scrapy_lease.settings import redacted_url
from scrapy_lease.store.feed_scripts import FeedScripts, Taken

logger = logging.getLogger(__name__)

#: First and longest pause between looks at a feed that has nothing, in s.
PAUSE = (0.05, 1.0)
#: Entries on a session's account from which on it takes no more: none is far from its place in the backlog.
MOST_OPEN = 300
#: Seconds between questions whether other readers are over, and whether there is work anywhere.
ROUND = 1.0
#: Seconds that settling may take when the crawl ends: others take over what is left.
LEAVING = 1.0

#: Bytes of an entry that a message shows.
SHOWN = 200

Make = Callable[[bytes], Any]


class Reader:
    """See the module's docstring.

    :param make: what the spider makes of an entry: a request, several, or None.
    :param connect: returns the scripts of the feed; called when reading begins, and again until it succeeds.
    :param batch: entries taken at a time.
    :param max_idle: seconds without work after which reading ends; 0: never.
    """

    def __init__(
        self, session: Session, sessions: Sessions, connect: Callable[[str], FeedScripts], make: Make, *,
        batch: int, max_idle: float,
    ) -> None:  # fmt: skip
        self._session = session
        self._sessions = sessions
        self._connect = connect
        self._make = make
        self._batch = batch
        self._max_idle = max_idle
        self._feed: FeedScripts | None = None
        #: All entries that this process has and that are not settled, by account and id; those not yet passed on.
        self._open: dict[tuple[str, str], Fed] = {}
        self._waiting: deque[Fed] = deque()
        self._is_certain = True
        self._is_leaving = False
        #: One conversation with the feed's server at a time: leaving waits for the one under way.
        self._lock = asyncio.Lock()
        self._looked_at = self._worked_at = time.monotonic()

    def __repr__(self) -> str:
        return f"<Reader: {len(self._open)} entries open{', leaving' if self._is_leaving else ''}>"

    async def begin_again(self) -> None:
        """Let the feed be read in a named run that is resumed: it was idle, which is no end."""
        with contextlib.suppress(StoreError):
            await self._sessions.begin_again()

    async def requests(self) -> AsyncIterator[Request]:
        """Yield the requests of what is fed, until there was no work for long enough.

        A crawl that leaves is no end of the feed, which another is to read on: then this waits to be cancelled.

        :raises CloseSpider: the feed, or its server, cannot be used as it is; the log says why.
        """
        self._looked_at = self._worked_at = time.monotonic()
        pause = PAUSE[0]
        while True:
            await self._next()
            if self._is_idle_for_long():
                break
            if not self._waiting or self._is_leaving:
                await asyncio.sleep(pause)
                pause = PAUSE[0] if self._open else min(PAUSE[1], pause * 2)
                continue
            pause = PAUSE[0]
            while self._waiting and not self._is_leaving:
                fed = self._waiting.popleft()
                for request in self._requests_of(fed):
                    yield request
                fed.is_passed_on = True
        logger.info("There was no work for %g s (max_idle_time): this crawl reads its feed no more", self._max_idle)

    async def leave(self) -> None:
        """Settle what is in the backlog, give back what is untouched; the session is open, what arrived is pushed.

        As far as the feed's server answers within :data:`LEAVING`: others take over what is left on the account.
        """
        self._is_leaving = True
        try:
            async with asyncio.timeout(LEAVING), self._lock:
                if self._feed is not None:
                    await self._give_back(self._feed)
        except (StoreError, TimeoutError) as error:
            if not self._open:
                return
            logger.warning(
                "%d entries of the feed could not be settled (%s): the next crawl that reads it takes them over",
                len(self._open), str(error) or "no answer in time",
            )  # fmt: skip

    async def close(self) -> None:
        """Close the connections."""
        self._is_leaving = True
        if self._feed is not None:
            await self._feed.channel.close()
        await self._sessions.close()

    # what is next

    async def _next(self) -> None:
        """Settle what is safe and look for what is to be passed on; nothing happens while a server is away."""
        try:
            async with self._lock:
                if not self._is_leaving:
                    await self._converse()
        except StoreUnavailable:
            self._worked_at = time.monotonic()
        except StoreRefused as error:
            logger.error("%s", error)
            raise CloseSpider("lease_feed_refused") from None

    async def _converse(self) -> None:
        if self._feed is None:
            self._feed = self._connect(await self._sessions.store_id())
        feed, sid = self._feed, self._session.sid
        await self._settle(feed)
        taken = await self._take(feed, sid)
        self._await(sid, taken.entries)
        if taken.held > sum(fed.reader == sid for fed in self._open.values()):
            self._await(sid, await feed.taken_by(sid))
        if time.monotonic() - self._looked_at > ROUND or self._is_idle_for_long():
            self._looked_at = time.monotonic()
            others = [reader for reader in taken.readers if reader != sid]
            await self._inherit(feed, others)
            await self._look_for_work(others)

    async def _take(self, feed: FeedScripts, sid: str) -> Taken:
        # After a call without an answer what it took comes first, so that no more than a batch is under way.
        room = max(0, min(self._batch, MOST_OPEN - len(self._open)))
        want, self._is_certain = (room if self._is_certain else 0), False
        taken = await feed.take(sid, want)
        self._is_certain = True
        return taken

    async def _inherit(self, feed: FeedScripts, others: Iterable[str]) -> None:
        """Take over what sessions that are over have left."""
        for sid in await self._sessions.over(others):
            number = self._await(sid, await feed.taken_by(sid))
            if number:
                logger.info("Took over %d entries of the feed from session %s, which is over", number, sid)

    def _await(self, sid: str, entries: Mapping[str, bytes]) -> int:
        """Let those of *entries*, of the account of *sid*, that are new here be passed on; return how many are."""
        new = [Fed.of(sid, entry, raw) for entry, raw in entries.items() if (sid, entry) not in self._open]
        self._open.update(((sid, fed.entry), fed) for fed in new)
        self._waiting += new
        if new:
            self._worked_at = time.monotonic()
        return len(new)

    async def _look_for_work(self, others: Collection[str]) -> None:
        """Work is also what others have from the feed, and whatever waits or is under way anywhere."""
        if self._max_idle and (others or self._open or await self._sessions.have_work()):
            self._worked_at = time.monotonic()

    def _is_idle_for_long(self) -> bool:
        return not self._is_leaving and bool(self._max_idle) and time.monotonic() - self._worked_at >= self._max_idle

    # from entry to requests

    def _requests_of(self, fed: Fed) -> Iterator[Request]:
        requests = self._made_of(fed)
        fed.made = len(requests)
        for place, request in enumerate(requests, 1):
            request.meta[ORIGIN] = Origin(fed, place)
            yield request

    def _made_of(self, fed: Fed) -> list[Request]:
        """Return what the spider makes of an entry: all of it or, where something is wrong, nothing."""
        try:
            made = self._make(fed.payload)
            requests = [] if made is None else list(made) if isinstance(made, Iterable) else [made]
            for request in requests:
                if not isinstance(request, Request):
                    raise TypeError(f"make_request_from_data gave {request!r}, which is no Request")
            return requests
        except Exception as error:
            logger.debug("No request can be made of an entry of the feed", exc_info=True)
            fed.judge(Verdict.FAILED, "entry", f"{type(error).__name__}: {error}")
            return []

    # what becomes of entries

    async def _settle(self, feed: FeedScripts) -> None:
        await self._settle_as(feed, [(fed, _verb(fed)) for fed in self._open.values() if fed.is_safe])

    async def _give_back(self, feed: FeedScripts) -> None:
        await self._settle(feed)
        sid = self._session.sid
        self._await(sid, await feed.taken_by(sid))
        # On any other account somebody may be making requests of it: given back it would be fetched twice.
        if self._session.is_confirmed:
            mine = [fed for fed in self._open.values() if fed.reader == sid and fed.is_untouched]
            for fed in mine:
                # A request of it that arrives only now is not taken in any more.
                fed.is_settled = True
            await self._settle_as(feed, [(fed, "back") for fed in mine])

    async def _settle_as(self, feed: FeedScripts, settled: list[tuple[Fed, str]]) -> None:
        by_reader: dict[str, list[tuple[Fed, str]]] = defaultdict(list)
        for fed, verb in settled:
            by_reader[fed.reader].append((fed, verb))
        for reader, entries in by_reader.items():
            await feed.settle(reader, [(fed.entry, verb) for fed, verb in entries])
            for fed, verb in entries:
                del self._open[fed.reader, fed.entry]
                if verb == "failed":
                    logger.error(
                        "An entry of the feed cannot be requested (%s), and is put aside in the list %r: %s",
                        redacted_url(fed.trace), feed.keys.failed, redacted_url(repr(fed.payload[:SHOWN])),
                    )  # fmt: skip


def _verb(fed: Fed) -> str:
    return "failed" if fed.has_failed else "done"
