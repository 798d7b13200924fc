"""What became of each request that a scheduler handed to the engine, told exactly once.

Scrapy has no signal for this. Two asyncio tasks tell: the one in which the downloader-middleware chain of a request
runs (its result is the final response, another request, or the exception) and the one in which its response is
scraped (it ends once the output is exhausted, the children are enqueued and the items have left the pipelines). What
happened in between comes from an outermost and an innermost middleware on either side, from the item processor and
from the signal of spider errors.

These facts of Scrapy 2.19 are undocumented and are used here and nowhere else; the rows `Facts` and `Concurrency` of
`tests/integration/test_outcomes.py` fail when one of them moves:

- `next_request` is followed, synchronously and in the same context, by the start of the chain's task;
- each middleware of one chain runs in that task; `process_spider_input` runs in the scrape's task;
- all that follows from a handed-out request (the chain, errbacks, the scrape, its output, pipelines) inherits the
  context of `next_request`. So a number put into a ContextVar there names the request everywhere;
- the final response of the chain is the object that the spider middlewares get.

What this cannot see: the end of an errback (a download error is reported before its errback runs), items that a
spider middleware further out than `OuterMiddleware` filters, and the exception of a downloader middleware further out
than `TrackMiddleware`. Neither can a crawl end, by Scrapy's own fault, when a downloader middleware or a plain
callback raises `asyncio.CancelledError`; the outcome is told all the same.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from twisted.python.failure import Failure

from scrapy_lease.outcomes import decisions
from scrapy_lease.outcomes.decisions import Kind, Outcome, Seen

__all__ = ["Kind", "Outcome", "Tracker", "complete_request", "current_request"]

_numbers = itertools.count(1)
_number: ContextVar[int] = ContextVar("scrapy_lease_request", default=0)


class Tracker:
    """Tells what became of the requests of one crawl; use `Tracker.of`.

    The owner (the scheduler) sets these attributes:

    - `on_outcome(request, outcome)`: called once for each `track`;
    - `on_abandoned(request)`: called before that where the chain was cancelled: Scrapy leaves the download where it is,
      under way or in the queue of its slot;
    - `on_downloaded(request)`: called once for each `track`, when the downloader is done with the request;
    - `is_stale(request)`: whether this process no longer holds the lease of a tracked request;
    - `takes_items(request)`: whether the items of its page may leave: not those of a page that another host has;
    - `is_certain()` and `certainty(request)`: whether it can know that now, and what to wait for if not: results wait
      for it, neither dropped for a mere outage nor passed on against another holder's;
    - `done_when`: `items`, `response` or `manual`, as LEASE_DONE_WHEN.

    They are reset when the engine stops, so that nothing of a finished crawl is kept alive.

    Order, for CONTINUES: the engine calls `scheduler.enqueue_request(next_request)` *before* the outcome that names
    it, in the same turn of the loop. The scheduler keeps such a request aside and claims it by identity when the
    outcome comes; no `next_request` can come between the two.

    Order, at the end: the engine may call `scheduler.close` one turn before the outcome of the last response. A
    `close` that hands back what is left first lets the loop turn once (`await asyncio.sleep(0)`); `in_flight` tells
    whether all are told.
    """

    def __init__(self, retry_codes: frozenset[int]) -> None:
        self._retry_codes = retry_codes
        self._entries: dict[int, Seen] = {}
        self._by_request: dict[Request, Seen] = {}
        self.done_when: Literal["items", "response", "manual"] = "items"
        self._forget_owner()

    @classmethod
    def of(cls, crawler: Crawler) -> Tracker:
        """Return the tracker of `crawler`, made and connected to its signals on first use."""
        tracker = _trackers.get(crawler)
        if tracker is None:
            tracker = cls(frozenset(int(code) for code in crawler.settings.getlist("RETRY_HTTP_CODES")))
            _trackers[crawler] = tracker
            connect = crawler.signals.connect
            connect(tracker._spider_failed, signals.spider_error)
            connect(tracker._engine_stopped, signals.engine_stopped)
        return tracker

    def __repr__(self) -> str:
        return f"<Tracker done_when={self.done_when} in_flight={self.in_flight}>"

    @property
    def in_flight(self) -> int:
        """How many tracked requests have no outcome yet."""
        return len(self._entries)

    def track(self, request: Request) -> None:
        """Expect an outcome for `request`; `next_request` calls it for each one that it is about to return.

        One object must not be handed out while it is in flight: Scrapy keeps requests in sets and would end the crawl
        under the other's callback. Where a callback yields its own request (`enqueue_request` gets `current()`
        itself), keep a copy.

        One that is returned untracked runs in the context of some other request; nothing of it is attributed there,
        except what its errback yields.
        """
        number = next(_numbers)
        self._entries[number] = self._by_request[request] = Seen(request)
        _number.set(number)

    def current(self) -> Request | None:
        """Return the tracked request whose callback, output or pipelines run in the present context.

        None elsewhere: in downloader middlewares, errbacks of download errors, `start()`, and once the
        outcome was told. `enqueue_request` is called in that context too: there it names the parent.
        """
        entry = self._scraped_here()
        return None if entry is None else entry.request

    def complete(self, request: Request) -> bool:
        """Mark `request`, or the one whose response has it as `response.request`, as completed ("manual").

        Return False when neither is tracked, or its outcome was told already.
        """
        here = self._scraped_here()
        for entry in self._entries.values() if here is None else (here, *self._entries.values()):
            if entry.request is request or (entry.response is not None and entry.response.request is request):
                entry.completed = True
                return True
        return False

    # downloader side

    def chain_started(self, request: Request) -> None:
        """The downloader-middleware chain of `request` begins in the present task."""
        entry = self._entries.get(_number.get())
        if entry is not None and entry.request is request and entry.chain is None:
            entry.chain = _present_task()
            entry.chain.add_done_callback(partial(self._chain_ended, _number.get()))

    def sent(self, request: Request) -> None:
        """`request` is with its download handler, in whatever task."""
        if (entry := self._by_request.get(request)) is not None:
            entry.sent = True

    def answered(self, request: Request) -> None:
        """The download handler has a response to `request`."""
        if (entry := self._by_request.get(request)) is not None:
            entry.sent = False

    def is_handed_out(self, request: Request) -> bool:
        """Whether the present task is the chain of `request` as the scheduler handed it out.

        False for `engine.download_async` (media, robots.txt): only a scheduled request can go back to a
        scheduler.
        """
        return self._chained_here(request) is not None

    def is_tracked(self, request: Request) -> bool:
        """Did a scheduler hand `request` out, and is its outcome still to come?"""
        return request in self._by_request

    def continued(self, request: Request) -> Request | None:
        """Return the tracked request whose chain has just ended with *request*: a redirect, a retry, or itself.

        To be asked where the engine schedules *request*, before the outcome is told. None for any other request.
        """
        entry = self._entries.get(_number.get())
        chain = entry.chain if entry is not None else None
        if entry is None or chain is None or not chain.done() or chain.cancelled() or chain.exception() is not None:
            return None
        return entry.request if chain.result() is request else None

    # spider side

    def scrape_started(self, response: Response) -> None:
        """The scrape of `response` begins in the present task."""
        number = _number.get()
        entry = self._entries.get(number)
        if entry is not None and entry.response is response and not entry.scraping:
            entry.scraping = True
            _present_task().add_done_callback(partial(self._scrape_ended, number))
        elif number:
            _number.set(0)

    def accepted(self) -> None:
        """No spider middleware has refused the response: its callback is next."""
        if (entry := self._scraped_here()) is not None:
            entry.accepted = True

    def raised(self, error: BaseException) -> None:
        """The callback raised `error`, or a middleware refused the response with it."""
        if (entry := self._scraped_here()) is not None:
            entry.raised = type(error)

    def unhandled(self, error: BaseException) -> None:
        """No spider middleware has recovered from `error`."""
        if isinstance(error, CloseSpider) and (entry := self._scraped_here()) is not None:
            entry.closing = True

    async def certain(self) -> None:
        """Wait until it can be known whether the present output may leave."""
        entry = self._scraped_here()
        if entry is not None and not self.is_certain():
            await self.certainty(entry.request)

    def admitting(self) -> Callable[[Any], bool]:
        """Return what tells whether an output of the present page may leave the spider middlewares."""
        entry = self._scraped_here()
        return _admit_all if entry is None else partial(self._admits, entry)

    def _admits(self, entry: Seen, output: Any) -> bool:
        """Not once the lease is gone, or the outcome was told without it."""
        if self._is_stale(entry):
            return False
        if output is not None and not isinstance(output, Request):
            if not self.takes_items(entry.request):
                return False
            entry.items += 1
        return True

    def is_refused(self) -> bool:
        """Whether the lease of the present page is gone, so that nothing of it may go on."""
        entry = self._scraped_here()
        return entry is not None and self._is_stale(entry)

    def _is_stale(self, entry: Seen) -> bool:
        if not self.is_stale(entry.request):
            return False
        entry.stale = True
        return True

    def exhausted(self) -> None:
        """The output of the present scrape came to its end without an exception."""
        if (entry := self._scraped_here()) is not None:
            entry.exhausted = True

    def item_settled(self) -> None:
        """An item of the present page has left the pipelines, scraped or dropped."""
        if (entry := self._scraped_here()) is not None:
            entry.settled += 1

    def item_failed(self, error: Exception) -> None:
        """A pipeline has failed on an item of the present page."""
        if (entry := self._scraped_here()) is not None:
            entry.settled += 1
            entry.pipeline_trace = entry.pipeline_trace or decisions.tail(error)

    def _spider_failed(self, failure: Failure) -> None:
        entry = self._scraped_here()
        if entry is not None and entry.error is None:
            entry.error = decisions.error_outcome(entry, failure.value)

    def _engine_stopped(self) -> None:
        self._entries.clear()
        self._by_request.clear()
        self._forget_owner()

    def _chain_ended(self, number: int, task: asyncio.Task[Any]) -> None:
        if (entry := self._entries.get(number)) is None:
            return
        if task.cancelled():
            self.on_abandoned(entry.request)
        self.on_downloaded(entry.request)
        if task.cancelled():
            self._tell(number, decisions.cancelled_outcome(task, "middleware"))
        elif (error := task.exception()) is not None:
            self._tell(number, decisions.download_outcome(entry, error))
        elif isinstance(result := task.result(), Request):
            self._tell(number, Outcome(Kind.CONTINUES, next_request=result))
        else:
            entry.response = result

    def _scrape_ended(self, number: int, task: asyncio.Task[Any]) -> None:
        if (entry := self._entries.get(number)) is not None:
            outcome = decisions.scrape_outcome(entry, task, self._retry_codes, self.done_when)
            if entry.items:
                outcome = Outcome(outcome.kind, outcome.reason, outcome.trace, entry.items)
            self._tell(number, outcome)

    def _tell(self, number: int, outcome: Outcome) -> None:
        request = self._entries.pop(number).request
        del self._by_request[request]
        self.on_outcome(request, outcome)

    def _chained_here(self, request: Request) -> Seen | None:
        entry = self._entries.get(_number.get())
        if entry is None or entry.request is not request or entry.chain is not asyncio.current_task():
            return None
        return entry

    def _scraped_here(self) -> Seen | None:
        entry = self._entries.get(_number.get())
        return entry if entry is not None and entry.scraping else None

    def _forget_owner(self) -> None:
        self.on_outcome: Callable[[Request, Outcome], None] = lambda request, outcome: None
        self.on_abandoned: Callable[[Request], None] = lambda request: None
        self.on_downloaded: Callable[[Request], None] = lambda request: None
        self.is_stale: Callable[[Request], bool] = lambda request: False
        self.takes_items: Callable[[Request], bool] = lambda request: True
        self.is_certain: Callable[[], bool] = lambda: True
        self.certainty: Callable[[Request], Awaitable[None]] = _at_once


_trackers: WeakKeyDictionary[Crawler, Tracker] = WeakKeyDictionary()


def current_request() -> Request | None:
    """Return what `Tracker.current` of the crawl that runs in the present context returns."""
    return next((found for tracker in _trackers.values() if (found := tracker.current()) is not None), None)


def complete_request(request: Request) -> bool:
    """Do what `Tracker.complete` does, in whichever crawl has `request`; False: crawls are tracked, and none has it."""
    return not _trackers or any(tracker.complete(request) for tracker in _trackers.values())


def _admit_all(output: Any) -> bool:
    return True


async def _at_once(request: Request) -> None:
    pass


def _present_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("scrapy-lease needs the asyncio reactor or none: TWISTED_REACTOR names another")
    return task
