"""The parts of one crawl, built once and shared by its components.

Building is synchronous and checks everything that can be wrong before the first request: the settings, the server and
its session. For the store, which speaks asyncio only, that happens on a loop of its own in a thread: the reactor does
not run yet.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.job import job_dir

from scrapy_lease.accounts import checks as account_checks
from scrapy_lease.accounts.sealing import Sealer, check_key
from scrapy_lease.addon import has_foreign_scheduler
from scrapy_lease.exceptions import LeaseError, StoreUnavailable
from scrapy_lease.gate import Gate
from scrapy_lease.heartbeat import Heartbeat, Lag, Watchdog
from scrapy_lease.leases.session import Beat, Session
from scrapy_lease.proxies.checks import check_accounts, check_scrapy
from scrapy_lease.refusal import told
from scrapy_lease.runs import keep_newest
from scrapy_lease.settings import LeaseSettings, redacted_url
from scrapy_lease.spider_notices import spider_notices
from scrapy_lease.stats import Stats
from scrapy_lease.store.client import Channel
from scrapy_lease.store.embedded import EmbeddedServer, acquire, directory_of
from scrapy_lease.store.keys import Namespace, Scope
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import Availability, StoreStats
from scrapy_lease.store.tools import Tools

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: New objects after which Python's garbage collector looks for cycles; some 40 pages' worth.
YOUNG = 10_000
#: What its thresholds are where nobody chose others, from Python 3.11 on.
_COLLECTOR_DEFAULTS = {(700, 10, 10), (2000, 10, 10), (2000, 10, 0)}


class Part(Protocol):
    """Something that lives as long as the session: a pool of proxies, for one."""

    def start(self) -> None:
        """The session is open and the reactor runs."""

    def beaten(self, beat: Beat | None) -> None:
        """A heartbeat was answered; None: the session is lost."""

    async def leave(self) -> None:
        """Give back what hangs on the session, before it closes. Not called where the store is away by then."""

    async def stop(self) -> None:
        """End, whether it was left or not."""


class Runtime:
    """See the module's docstring; use :meth:`of`.

    :raises LeaseError: refusing to start; the message has been logged.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.settings = LeaseSettings.from_crawler(crawler)
        if self.settings.pools:
            check_scrapy(crawler.settings, self.settings.pools)
            check_accounts(crawler.settings, self.settings)
        if self.settings.account_pools_by_name:
            account_checks.check_scrapy(crawler.settings, self.settings.account_pools_by_name)
        #: Who keeps the requests: ``redis``, ``local``, or ``foreign`` for a scheduler that the user chose.
        self.queue = "foreign" if has_foreign_scheduler(crawler.settings) else self.settings.queue
        for notice in (*self.settings.notices, *_unheeded(crawler, self.queue)):
            logger.warning("%s", notice)
        self.crawler = crawler
        self.stats = Stats(crawler.stats)
        self.lag = Lag()
        self.is_gated = False
        #: Called after each heartbeat; set by the scheduler.
        self.on_beat: Callable[[Beat | None], None] = lambda beat: None
        #: Called with True when the store is back, with False when it went.
        self.on_store: Callable[[bool], None] = lambda up: None
        #: Awaited before the session closes, when all that was taken in is in the backlog.
        self.leavers: list[Callable[[], Awaitable[None]]] = []
        self.parts: list[Part] = []
        self._server: EmbeddedServer | None = None
        self._url = self.settings.redis_url
        if self._url.startswith("embedded:"):
            self._server = acquire(directory_of(self._url))
            self._url = self._server.url
        self.shown = redacted_url(self.settings.redis_url)
        self.store_stats = StoreStats()
        self.availability = Availability(self.shown, self.store_stats, lambda up: self.on_store(up))
        if self.settings.on_store_down == "unsafe_local":
            self.availability.meanwhile = "this crawl goes on without it, unless it is back at once"
        self.scope = Namespace(self.settings.namespace).scope(
            self.settings.job, self.settings.run, self.settings.expected_items
        )
        self.session = self._make_session()
        self.gate = Gate(self.session)
        scope = self.scope = _run_apart(self._open_session)
        #: Was no other session of the job alive when this one opened?
        self.opened_alone = self.session.live == 1
        #: The same, and has none been there since?
        self.was_alone = self.opened_alone
        self.scripts = Scripts(self._channel(self.availability), scope)
        self._beats = Scripts(self._channel(None), scope)
        self._heartbeat = Heartbeat(self.session, self._beats, self.lag, self._beaten)
        self._watchdog = Watchdog(
            self.session, lambda: Scripts(self._channel(None), scope), self.lag, self.settings.block_grace
        )
        self._watchdog.start()
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Return the runtime of *crawler*, built on first use."""
        runtime = _runtimes.get(crawler)
        if runtime is None:
            try:
                runtime = cls(crawler)
            except LeaseError as error:
                raise told(error, crawler, logger).with_traceback(None) from None
            _runtimes[crawler] = runtime
        return runtime  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<Runtime of job {self.scope.name}: {self.session}>"

    def is_leaving(self) -> bool:
        """Has the engine begun to close the spider? Scrapy has no public word for it."""
        engine = self.crawler.engine
        slot = engine._slot if engine is not None else None
        return slot is not None and slot.closing is not None

    def store_silent_for(self) -> float:
        """Return the seconds for which the store has left unanswered what was asked, and this process was awake.

        0 while it answers. A process that was frozen or blocked for long cannot tell who was silent: it counts anew.
        """
        unanswered = [since for since in (self.availability.down_since, self._heartbeat.unanswered_since) if since]
        return max(0.0, time.monotonic() - max(min(unanswered), self.lag.awake_since)) if unanswered else 0.0

    def connect(self) -> Channel:
        """Return a connection to the store for one who needs it for itself, and closes it."""
        return self._channel(None)

    async def on_leave(self) -> None:
        """Let go what hangs on the session, before it closes; store errors pass through."""
        for leave in (*self.leavers, *(part.leave for part in self.parts)):
            await leave()

    def start(self) -> None:
        """Begin to beat; the reactor runs."""
        _spare_the_collector()
        self.lag.start()
        self._heartbeat.start()
        for part in self.parts:
            part.start()
        if self.settings.run:
            tools = Tools(self._channel(None), self.scope.namespace)
            self._keeping = asyncio.ensure_future(keep_newest(tools, self.scope, self.settings.runs_keep))

    async def stop(self) -> None:
        """Beat no longer and leave the store; the session has been closed, as far as the store could be reached."""
        self._watchdog.stop()
        self.gate.close()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        for part in self.parts:
            await part.stop()
        await self._heartbeat.stop()
        self.lag.stop()
        self._count()
        await self._beats.channel.close()
        await self.scripts.channel.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.release)
        _runtimes.pop(self.crawler, None)

    def _beaten(self, beat: Beat | None) -> None:
        if beat is not None and beat.live > 1:
            self.was_alone = False
        self.on_beat(beat)
        for part in self.parts:
            part.beaten(beat)

    def _count(self) -> None:
        store, stats = self.store_stats, self.stats
        stats.flush()
        stats.put("store/commands", store.commands)
        stats.put("store/roundtrips", store.roundtrips)
        stats.put("store/errors", store.errors)
        stats.put("store/down_seconds", round(store.down_seconds, 1))
        stats.put("session/renewed", self.session.renewed)
        stats.put("session/lost", self.session.losses)
        stats.put("session/lag_max", round(self.lag.worst_ever, 3))

    def _resumes(self) -> bool:
        """Is this the same crawl as one before, which left requests in JOBDIR?"""
        directory = job_dir(self.crawler.settings) if self.queue != "redis" else None
        return directory is not None and Path(directory, "requests.queue", "active.json").exists()

    def _make_session(self) -> Session:
        settings = self.settings
        return Session(
            node=settings.node,
            ttl=None if settings.ttl == "auto" else float(settings.ttl),
            config=f"LEASE_QUEUE={self.queue} LEASE_ITEM_KEY={settings.item_key} LEASE_START={settings.start}",
            fresh=not settings.run and not self._resumes(),
            info={"node": settings.node, "job": self.scope.name, "pid": str(os.getpid())},
        )

    def _channel(self, availability: Availability | None) -> Channel:
        channel = Channel(self._url, self.shown, self.settings.store_timeout, self.store_stats, availability)
        server = self._server
        if server is not None:
            channel.before_connect = lambda: asyncio.to_thread(server.ensure_running)
        return channel

    async def _open_session(self) -> Scope:
        channel = self._channel(None)
        try:
            tools = Tools(channel, self.scope.namespace)
            scope = await tools.sized(self.scope, create=True)
            if self.settings.account_pools_by_name:
                await check_key(tools, Sealer(self.settings.account_key or ""))
            await self.session.open(Scripts(channel, scope))
            return scope
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error}; nothing is fetched without it: see to the server, or correct LEASE_REDIS_URL "
                f"(LEASE_STORE_TIMEOUT = {self.settings.store_timeout:g} s)"
            ) from None
        finally:
            await channel.close()


def _unheeded(crawler: Crawler, queue: str) -> Iterator[str]:
    """Yield what an operator should know of Scrapy settings that mean something else, or nothing, under leases."""
    settings = crawler.settings
    if crawler.spider is not None:
        yield from spider_notices(crawler.spider, offers_feeds=queue == "redis")
    own = ("JOBDIR", "DUPEFILTER_CLASS", "SCHEDULER_DISK_QUEUE", "SCHEDULER_MEMORY_QUEUE")
    for name in own if queue == "redis" else ():
        if settings[name] and (settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["default"]:
            yield f"{name} = {settings[name]!r} keeps no requests here: the shared backlog does, and knows duplicates"
    if settings.getdict("FEEDS"):
        yield (
            "FEEDS: an item is done when it has left the pipelines, and a feed writes it later; what a process that is "
            "killed has not written is done, and in no feed. Store items in a pipeline where that matters"
        )


def _spare_the_collector() -> None:
    """Let Python's garbage collector take less of each page; thresholds that the user chose stay.

    All modules and components live as long as the crawl, so it need not walk them in every round. And a page makes some
    250 objects that outlive one call and few cycles: by default a tenth of a crawl's time goes into looking for them.
    """
    gc.collect()
    gc.freeze()
    if gc.isenabled() and gc.get_threshold() in _COLLECTOR_DEFAULTS:
        gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


_runtimes: WeakKeyDictionary[Crawler, Runtime] = WeakKeyDictionary()


def _run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function on a loop of its own, in a thread, and wait for it."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="scrapy-lease-start")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
