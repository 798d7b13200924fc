"""Every use of a lease by a request, of whatever kind: how it begins, how it is waited for, and each way it can end.

A use begins when a request comes by on its way to the downloader, and ends exactly once, with the first of

- its answer or exception, judged innermost, before any cache, redirect or retry sees it;
- the end of its downloader-middleware chain, where a middleware answered early, raised, or replaced the request, or
  the download was cut off;
- the end of the crawl.

What goes out again is the same request, returned by a middleware, so that no other sees the answer. After its tries, or
a wait in vain, its item goes back to the backlog; a request that no scheduler gave (media, robots.txt) fails.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.exceptions import LeaseError, NoResource
from scrapy_lease.gate import Gate
from scrapy_lease.leases.pool.options import Judgement
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.outcomes import Tracker
from scrapy_lease.pools.goods import Goods
from scrapy_lease.pools.keeper import Keeper, Plan
from scrapy_lease.pools.routing import Router
from scrapy_lease.pools.trip import Trip
from scrapy_lease.pools.waiting_room import WaitingRoom
from scrapy_lease.pools.watch import Watch
from scrapy_lease.refusal import told
from scrapy_lease.runtime import Part, Runtime

if TYPE_CHECKING:
    from scrapy_lease.scheduler.tries import Tries

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Trip)

_BACK = Judgement("back")


class Uses(Generic[T]):
    """See the module's docstring; use :meth:`of` of its kinds.

    :param waits: pool -> LEASE_…_WAIT.
    :ivar waiting_room: what the scheduler asks and tells.
    """

    goods: ClassVar[Goods]

    def __init__(self, crawler: Crawler, runtime: Runtime, router: Router, plans: Mapping[str, Plan]) -> None:
        self._tracker = Tracker.of(crawler)
        self._router = router
        #: Those that outlive a use, of requests that went out again at least.
        self._trips: WeakKeyDictionary[Request, T] = WeakKeyDictionary()
        #: Those whose request has a lease now.
        self._active: dict[Request, T] = {}
        self._watch = Watch(self.goods, self._active, lambda pool: self._pools[pool].options.wait)
        #: Pages that were asked for again, past the scheduler, and went by without a lease as what no scheduler gave.
        self._beside: WeakSet[Request] = WeakSet()
        #: Uses that have not ended, of pages that came by again meanwhile, with their pools.
        self._overtaken: dict[Request, list[tuple[str, Use]]] = {}
        #: Does the scheduler tell when the way of a request through the downloader has ended?
        self._hears_of_ends = False
        self._turn_back: Callable[[Request], None] = lambda request: None
        self._cut: Callable[[Request], None] = lambda request: None
        #: Called with a request and its answer, by which the site asks for a pause.
        self.on_limited: Callable[[Request, Response], None] = lambda request, response: None
        #: Returns the ids of resources that have no permits left for now; None: rates do not limit these.
        self.spent: Callable[[], Iterable[str]] | None = None
        self.keeper = Keeper(
            self.goods, crawler, runtime, plans, demand=lambda pool: self.waiting_room.demand(pool), on_look=self._look,
            is_under_way=self._watch.is_under_way,
        )  # fmt: skip
        self.waiting_room = WaitingRoom(router, self._trips, self.keeper)
        self._pools = self.keeper.pools
        for name, pool in self._pools.items():
            pool.watched_by(partial(self.waiting_room.has_untried, name))

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Return those of *crawler*, made on first use.

        :raises LeaseError: refusing to start; the message has been logged.
        """
        made = _made.setdefault(crawler, {})
        if cls not in made:
            runtime = Runtime.of(crawler)
            try:
                made[cls] = cls(crawler, runtime)  # type: ignore[call-arg]
            except LeaseError as error:
                raise told(error, crawler, logger).with_traceback(None) from None
            runtime.parts.append(made[cls].part)
        return cast("Self", made[cls])

    @property
    def part(self) -> Part:
        """What the runtime starts and stops."""
        return self.keeper

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.keeper}>"

    def attach(self, tries: Tries, gate: Gate, wake: Callable[[], None]) -> None:
        """Stand between the scheduler, which holds requests ready, and the gate, which lets them be sent.

        What was attached before is asked first.

        :param wake: lets the engine ask for requests.
        """
        room = self.waiting_room
        tries.conditions.append(room.may_start)
        tries.refusals.append(room.was_refused)
        tries.on_out.append(room.handed_out)
        tries.on_in.append(self._came_in)
        self._hears_of_ends = True
        room.ready, room.held = tries.ready, lambda: (found.request for found in tries.window)
        self._turn_back, self._watch.cut, self._cut = tries.turn_back, gate.cut, gate.cut
        gate.guards.append(self)
        self.keeper.on_room = wake

    def use_of(self, request: Request) -> Use | None:
        """Return the use with which *request* goes now, None where it goes with none."""
        trip = self._active.get(request)
        return None if trip is None else trip.use

    # what the gate asks

    def has_use(self, request: Request) -> bool:
        """Does *request* go with a lease of this kind now?"""
        return request in self._active

    def may_send(self, request: Request) -> bool:
        """May it be sent at this instant, as far as its lease goes? Not without one, if it needs one."""
        trip = self._active.get(request)
        return trip.may_go_on if trip is not None else self._may_go_without(request)

    def sent(self, request: Request) -> None:
        """*request* is sent at this instant."""
        trip = self._active.get(request)
        if trip is not None:
            trip.is_sent = True

    def cut_off(self, request: Request) -> None:
        """The download of *request* is being cut off."""
        if (trip := self._active.get(request)) is not None:
            trip.was_cut = True

    # inside

    @abstractmethod
    def _needs_use(self, request: Request) -> bool:
        """Must a request that goes without a lease not go so, as far as its scheduler and its meta tell?"""

    def _may_go_without(self, request: Request) -> bool:
        return request in self._beside or not self._needs_use(request)

    def _goes_without(self, request: Request) -> None:
        """*request* is on its way to the downloader, and goes without a lease."""
        if self._tracker.is_tracked(request) and not self._tracker.is_handed_out(request):
            self._beside.add(request)

    @abstractmethod
    def _give_up_use(self, request: Request, trip: T) -> None:
        """The chain of *request* has ended, and nobody has judged its use."""

    @abstractmethod
    def _missing(self, request: Request, reason: str) -> LeaseError:
        """Return what *request* fails with that got none and that nobody can take back."""

    @abstractmethod
    def _tries_of(self, trip: T) -> int:
        """How often may a request go out again?"""

    def _begin(self, request: Request, trip: T, name: str, use: Use) -> None:
        if trip.use is not None and self._tracker.is_tracked(request):
            self._overtaken.setdefault(request, []).append((trip.pool, trip.use))
        trip.begin(request, use, name)
        self._active[request] = trip
        self.keeper.serves(name)
        # Whatever the other middlewares do, this ends with the chain. Its scheduler tells of that; others have none.
        if not (trip.is_scheduled and self._hears_of_ends):
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(partial(self._chain_ended, request, trip, name, use))

    def _came_in(self, request: Request) -> None:
        """The scheduler tells that the chain of *request* has ended."""
        self.waiting_room.left(request)
        trip = self._active.get(request)
        if trip is not None:
            self._let_go(request, trip)
        for name, use in self._overtaken.pop(request, ()) if self._overtaken else ():
            self._pools[name].end(use, _BACK)

    def _chain_ended(self, request: Request, trip: T, name: str, use: Use, task: asyncio.Task[Any]) -> None:
        if trip.use is use:
            self._let_go(request, trip)
        elif not use.is_over:
            # The same request came by again before it had ended, and goes with a later use.
            self._pools[name].end(use, _BACK)

    def _let_go(self, request: Request, trip: T) -> None:
        """The chain of *request* has ended, and nobody has judged its use: an early answer, an error, a cancel.

        Scrapy leaves the download of a chain that was cancelled where it is: under way, or in the queue of its slot.
        """
        if trip.is_sent:
            self._cut(request)
        self._give_up_use(request, trip)

    async def _taken(self, request: Request, trip: T, name: str, site: str, **how: Any) -> Use | None:
        """Wait for a lease; None: in vain, and *request* has to go back."""
        try:
            return await self.keeper.wait(name, site, **how)
        except NoResource as error:
            if error.reason != "closed":
                self.keeper.count(name, "refused")
            self._give_up(request, trip, f"no {self.goods.kind}: {error.reason}")
            return None

    def _look(self) -> None:
        """Called a few times a second."""
        self._watch.look()

    def _again(self, request: Request, trip: T, reason: str) -> Request:
        trip.retries += 1
        if trip.retries <= self._tries_of(trip):
            self._trips[request] = trip
            return request
        return self._give_up(request, trip, f"after {trip.retries} tries: {reason}")

    def _give_up(self, request: Request, trip: T, reason: str) -> Request:
        """Let *request* go back to its scheduler, from where it begins anew; what has none fails."""
        self._trips.pop(request, None)
        if not trip.is_scheduled:
            raise self._missing(request, reason)
        logger.debug("%s goes back to the backlog: %s", request, reason)
        self._turn_back(request)
        return request


#: Kind -> what was made of it, for each crawl.
_made: WeakKeyDictionary[Crawler, dict[type, Any]] = WeakKeyDictionary()
