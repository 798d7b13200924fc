"""Every use of a leased proxy: how a request gets it, what its answer says of it, and each way it can end.

A use begins when a request comes by on its way to the downloader, and ends exactly once, with the first of

- its answer or exception, judged innermost, before any cache, cookie, redirect or retry sees it;
- the end of its downloader-middleware chain, where a middleware answered early, raised, or replaced the request, or
  the download was cut off;
- the end of the crawl.

What is refused through one proxy goes out again on another: the same request is returned, so that no other middleware
sees the answer. After LEASE_PROXY_RETRIES of these, or a wait of LEASE_PROXY_WAIT, its item goes back to the backlog;
a request that no scheduler gave (media, robots.txt) fails with `NoProxy`. None ever goes directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_lease.exceptions import LeaseError, LeaseLost, NoResource
from scrapy_lease.gate import Gate
from scrapy_lease.leases.pool.options import Judgement, Kind, Sentence
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.meta import read_record
from scrapy_lease.outcomes import Tracker
from scrapy_lease.policy import UNUSED, Judge, Verdict, words_of
from scrapy_lease.providers.identity import shown
from scrapy_lease.proxies.keeper import Keeper
from scrapy_lease.proxies.routing import Router, site_of
from scrapy_lease.proxies.trips import Trip, clean, strip, url_of
from scrapy_lease.proxies.waiting_room import WaitingRoom, name_in
from scrapy_lease.proxies.watch import Watch
from scrapy_lease.runtime import Runtime
from scrapy_lease.unfetched import no_proxy

if TYPE_CHECKING:
    from scrapy_lease.scheduler.tries import Tries

logger = logging.getLogger(__name__)

_TARGET = Judgement("target")


class Proxies:
    """See the module's docstring; use :meth:`of`.

    :ivar waiting_room: what the scheduler asks and tells.
    """

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        settings = runtime.settings
        self._settings = settings.pools
        self._tracker = Tracker.of(crawler)
        self._router = Router(settings.proxy_pool, settings.pools)
        self._judge = Judge.from_crawler(crawler, settings.verdicts, settings.policy)
        self._trips: WeakKeyDictionary[Request, Trip] = WeakKeyDictionary()
        #: Those whose request has a proxy now.
        self._active: dict[Request, Trip] = {}
        self._watch = Watch(self._active, self._settings)
        self._turn_back: Callable[[Request], None] = lambda request: None
        #: Called with a request and its answer, by which the site asks for a pause.
        self.on_limited: Callable[[Request, Response], None] = lambda request, response: None
        #: Returns the ids of proxies whose addresses have no permits left for now; None: rates do not limit addresses.
        self.spent: Callable[[], Set[str]] | None = None
        self.keeper = Keeper(
            crawler, runtime, lambda pool: self.waiting_room.demand(pool), self._watch.look, self._watch.is_under_way
        )
        self.waiting_room = WaitingRoom(self._router, self._trips, self.keeper)
        self._pools = self.keeper.pools
        for name, pool in self._pools.items():
            pool.watched_by(partial(self.waiting_room.has_untried, name))

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Return the proxies of *crawler*, made on first use.

        :raises LeaseError: refusing to start; the message has been logged.
        """
        proxies = _proxies.get(crawler)
        if proxies is None:
            runtime = Runtime.of(crawler)
            try:
                proxies = _proxies[crawler] = cls(crawler, runtime)
            except LeaseError as error:
                logger.error("%s", error, extra={"crawler": crawler})
                raise error.with_traceback(None) from None
            runtime.parts.append(proxies.keeper)
        return proxies  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<Proxies: {self.keeper}>"

    def attach(self, tries: Tries, gate: Gate, wake: Callable[[], None]) -> None:
        """Stand between the scheduler, which holds requests ready, and the gate, which lets them be sent.

        :param wake: lets the engine ask for requests.
        """
        room = self.waiting_room
        tries.may_start, tries.on_out, tries.on_in = room.may_start, room.handed_out, room.left
        room.ready, room.held = tries.ready, lambda: (found.request for found in tries.window)
        self._turn_back, self._watch.cut = tries.turn_back, gate.cut
        gate.has_proxy, gate.may_use, gate.on_cut = self.has_use, self.may_send, self._cut_off
        self.keeper.on_room = wake

    def use_of(self, request: Request) -> Use | None:
        """Return the use of a leased proxy through which *request* goes now, None where it goes through none."""
        trip = self._active.get(request)
        return None if trip is None else trip.use

    # what the gate asks

    def has_use(self, request: Request) -> bool:
        """Does *request* go through a leased proxy now?"""
        return request in self._active

    def may_send(self, request: Request) -> bool:
        """May it be sent at this instant, as far as its proxy goes? True where it goes directly."""
        trip = self._active.get(request)
        return trip is None or trip.may_go_on

    def _cut_off(self, request: Request) -> None:
        """The download of *request* is being cut off."""
        if (trip := self._active.get(request)) is not None:
            trip.was_cut = True

    # what the middlewares see

    def enters(self, request: Request) -> Request | Awaitable[Request | None] | None:
        """*request* is on its way to the downloader: give it a proxy.

        :returns: None, or what to wait for; a request: it has to go back.
        :raises RequestRefused: its meta asks for what there is not.
        """
        self.waiting_room.left(request)
        is_scheduled = self._tracker.is_handed_out(request)
        way = self._router.way_of(request, is_media=not is_scheduled)
        trip = self._trips.get(request)
        if way is None:
            if trip is not None:
                strip(request)
            return None
        if trip is None:
            trip = self._trips[request] = Trip()
        trip.is_scheduled = is_scheduled
        name = name_in(way, trip)
        key = self._router.key_of(request, name)
        site = site_of(request)
        avoid = trip.avoid | self.spent() if self.spent is not None else trip.avoid
        use = self._pools[name].take_now(site, sticky=key, avoid=avoid)
        if use is None:
            return self._wait(request, trip, name, site, key, avoid)
        self._begin(request, trip, name, use)
        return None

    def passed(self, request: Request) -> None:
        """*request* has passed the middlewares that could have answered it."""
        trip = self._active.get(request)
        if trip is not None:
            trip.passed = True

    def answered(self, request: Request, response: Response) -> Response | Request:
        """Judge the answer to *request*; return it, or the request where it goes out again.

        :raises IgnoreRequest: its URL is refused, whoever asks.
        :raises NoProxy: it cannot go out again.
        """
        trip = self._active.get(request)
        if trip is None:
            return response
        verdict = UNUSED
        if trip.passed:
            verdict = self._judge.response(request, response, is_scheduled=trip.is_scheduled)
            if verdict.word == "limited":
                self.on_limited(request, response)
        why = f"status {response.status}"
        sentence = self._end(request, trip, verdict, why)
        if sentence == "pass":
            return response
        if sentence == "rejected":
            raise IgnoreRequest(f"{request} is refused through every proxy ({why})")
        return self._again(request, trip, f"{verdict.word} ({why})")

    def failed(self, request: Request, error: Exception) -> Request | None:
        """Judge the want of an answer to *request*; return it where it goes out again.

        :raises IgnoreRequest: its URL is refused, whoever asks.
        :raises NoProxy: it cannot go out again.
        """
        trip = self._active.get(request)
        if trip is None or trip.use is None:
            return None
        if isinstance(error, LeaseLost):
            # The session, not the proxy; whoever has a scheduler has gone back to it already.
            self._end(request, trip, UNUSED)
            return self._again(request, trip, "the lease was lost")
        verdict, url = UNUSED, url_of(trip.use.lease.body)
        if trip.passed:
            verdict = self._judge.exception(request, error, is_scheduled=trip.is_scheduled)
        why = words_of(error)
        sentence = self._end(request, trip, verdict, why)
        if sentence == "pass":
            if (cleaned := clean(error, url)) is not None:
                raise cleaned from None
            return None
        if sentence == "rejected":
            raise IgnoreRequest(f"{request} is refused through every proxy ({why})")
        return self._again(request, trip, f"{verdict.word} ({why})")

    # inside

    async def _wait(
        self, request: Request, trip: Trip, name: str, site: str, key: str, avoid: frozenset[str]
    ) -> Request | None:
        try:
            use = await self.keeper.wait(name, site, key, avoid)
        except NoResource as error:
            if error.reason != "closed":
                self.keeper.count(name, "refused")
            return self._give_up(request, trip, f"no proxy: {error.reason}")
        self._begin(request, trip, name, use)
        return None

    def _begin(self, request: Request, trip: Trip, name: str, use: Use) -> None:
        trip.begin(request, use, name)
        self._active[request] = trip
        self.keeper.serves(name)
        record = read_record(request.meta)
        if record is not None:
            record["proxy"] = shown(use.lease.id)
        task = asyncio.current_task()
        assert task is not None
        # Whatever the other middlewares do, this ends with the chain.
        task.add_done_callback(partial(self._chain_ended, request, trip, use))

    def _chain_ended(self, request: Request, trip: Trip, use: Use, task: asyncio.Task[Any]) -> None:
        if trip.use is use:
            self._end(request, trip, UNUSED)

    def _end(self, request: Request, trip: Trip, verdict: Verdict, why: str = "") -> Sentence:
        """End the present use; *verdict* UNUSED of a request that was sent says that nobody knows what became of it."""
        use = trip.finish(request)
        assert use is not None
        del self._active[request]
        word, url, pool = verdict.word, request.url, self._pools[trip.pool]
        if word == "rejected":
            pool.end(use, _TARGET)
            return "rejected"
        if word == "unused" and trip.passed:
            word = "cut" if trip.was_cut else "back"
        judgement = Judgement(cast(Kind, word), url, verdict.wait or 0.0)
        sentence = pool.end(use, judgement, trip.refusals)
        if sentence == "again":
            trip.avoid |= {use.lease.id}
            trip.bans += word in ("ban", "limited")
            self.keeper.failures.note(trip.pool, why)
            logger.debug("%s through %s: %s (%s)", request, shown(use.lease.id), word, why)
        return sentence

    def _again(self, request: Request, trip: Trip, reason: str) -> Request:
        trip.retries += 1
        if trip.retries <= self._settings[trip.pool].retries:
            return request
        return self._give_up(request, trip, f"after {trip.retries} tries (LEASE_PROXY_RETRIES): {reason}")

    def _give_up(self, request: Request, trip: Trip, reason: str) -> Request:
        """Let *request* go back to its scheduler, from where it begins anew; what has none fails."""
        self._trips.pop(request, None)
        if not trip.is_scheduled:
            raise no_proxy(request, reason)
        logger.debug("%s goes back to the backlog: %s", request, reason)
        self._turn_back(request)
        return request


_proxies: WeakKeyDictionary[Crawler, Proxies] = WeakKeyDictionary()
