"""Scrapy's own scheduler, as the queue of one host: memory or JOBDIR, its duplicate filter, its queue classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.job import job_dir

from scrapy_lease.fingerprints import ShortWay

#: In the meta of a request that was put back, until it is taken again: a `Known`.
KNOWN = "_lease_known"
#: The file in JOBDIR that tells which pages that led on were fetched here: 8 bytes of each digest.
LED = "lease.led"


class Known(NamedTuple):
    """What is known of a request that was taken out of the queue before.

    :param digest: of its item; empty: it has none.
    :param mark: of its item, as in :class:`~scrapy_lease.store.messages.Entry`.
    :param priority: its own; it may wait behind others.
    :param times: how often its item was not to be had.
    """

    digest: bytes
    mark: str
    priority: int
    times: int = 0


class HostQueue(Protocol):
    """Where a host keeps the requests that it discovers; see `OwnQueue`."""

    @property
    def is_persistent(self) -> bool: ...

    def __len__(self) -> int: ...

    async def open(self, spider: Spider) -> set[int]: ...

    async def close(self, reason: str, led: set[int]) -> None: ...

    def put(self, request: Request, known: Known | None = None) -> bool: ...

    def put_again(self, request: Request, known: Known | None = None) -> None: ...

    def put_back(self, request: Request, known: Known) -> None: ...

    def take(self) -> tuple[Request, Known | None] | None: ...


class OwnQueue:
    """Composes Scrapy's scheduler; what was taken out may be put back past the duplicate filter.

    :param directory: JOBDIR, None without one.
    """

    def __init__(self, scheduler: Scheduler, directory: str | None) -> None:
        self._scheduler = scheduler
        self._filter = scheduler.df = _Passing(scheduler.df)  # type: ignore[assignment]
        self._led_path = Path(directory, LED) if directory else None
        #: Of new requests in memory. On disk it might outlive the settings that it was found with.
        self._known: dict[Request, Known] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        scheduler = Scheduler.from_crawler(crawler)
        if type(scheduler.df) is RFPDupeFilter:
            scheduler.df.fingerprinter = ShortWay(scheduler.df.fingerprinter)
        return cls(scheduler, job_dir(crawler.settings))

    def __len__(self) -> int:
        return len(self._scheduler)

    def __repr__(self) -> str:
        return f"<OwnQueue: {len(self)} requests>"

    @property
    def is_persistent(self) -> bool:
        """Does it outlive the process (JOBDIR)?"""
        return self._led_path is not None

    async def open(self, spider: Spider) -> set[int]:
        """Open the queues and the duplicate filter; return the pages that led on, as they were given to `close`."""
        await ensure_awaitable(self._scheduler.open(spider))
        if self._led_path is None or not self._led_path.exists():
            return set()
        packed = self._led_path.read_bytes()
        # A process that is killed leaves no queue to go on from: what it saw must be seen again.
        self._led_path.unlink()
        return {int.from_bytes(packed[at : at + 8], "big") for at in range(0, len(packed), 8)}

    async def close(self, reason: str, led: set[int]) -> None:
        """Write what is left, and *led*, to JOBDIR, if there is one."""
        if self._led_path is not None:
            self._led_path.write_bytes(b"".join(number.to_bytes(8, "big") for number in led))
        await ensure_awaitable(self._scheduler.close(reason))

    def put(self, request: Request, known: Known | None = None) -> bool:
        """Take a new request in; False: the duplicate filter knows it.

        :param known: comes out with it, unless it goes to disk.
        """
        if not self._scheduler.enqueue_request(request):
            return False
        if known is not None and not self.is_persistent:
            self._known[request] = known
        return True

    def put_again(self, request: Request, known: Known | None = None) -> None:
        """Take a request in, whatever the duplicate filter knows of it."""
        if known is not None:
            request.meta[KNOWN] = tuple(known)
        self._filter.passing = request
        try:
            self._scheduler.enqueue_request(request)
        finally:
            self._filter.passing = None

    def put_back(self, request: Request, known: Known) -> None:
        """Take a request in again, behind the others: a queue that gives the last first would give it back at once."""
        self.put_again(request.replace(priority=known.priority - 1 - known.times), known)

    def take(self) -> tuple[Request, Known | None] | None:
        """Remove and return the next request, and what is known of it; None: there is none."""
        request = self._scheduler.next_request()
        if request is None:
            return None
        if KNOWN not in request.meta:
            return request, self._known.pop(request, None)
        known = Known(*request.meta.pop(KNOWN))
        return request.replace(priority=known.priority), known


class _Passing:
    """A duplicate filter that lets one request pass, whatever it knows of it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.passing: Request | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def request_seen(self, request: Request) -> bool:
        return request is not self.passing and bool(self._inner.request_seen(request))
