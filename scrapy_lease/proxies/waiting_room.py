"""Requests that the scheduler holds ready: which may start, and what they want of the pools.

A request that would wait in the downloader for its proxy takes a place there that others could use. So the scheduler
asks first, and hands out only what finds a proxy. It tells what it hands out, too: of those that follow at once none
takes what an earlier one is coming for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakSet

from scrapy import Request

from scrapy_lease.meta import RequestRefused
from scrapy_lease.proxies.keeper import Keeper
from scrapy_lease.proxies.routing import Router, site_of
from scrapy_lease.proxies.trips import Trip


def name_in(way: tuple[str, ...], trip: Trip | None) -> str:
    """Return the pool of *way* whose turn it is for a request."""
    return way[0] if trip is None or len(way) == 1 else way[min(trip.bans, len(way) - 1)]


class WaitingRoom:
    """See the module's docstring.

    :ivar ready: returns the requests that are held ready and that their download slots could send now; set by the
        scheduler.
    :ivar held: returns all that are held ready; likewise.
    """

    def __init__(self, router: Router, trips: Mapping[Request, Trip], keeper: Keeper) -> None:
        self.ready: Callable[[], Iterable[Request]] = tuple
        self.held: Callable[[], Iterable[Request]] = tuple
        self._router = router
        self._trips = trips
        self._keeper = keeper
        self._held_up: WeakSet[Request] = WeakSet()
        #: Requests that were handed out and have not come for their proxy yet -> pool; how many for each pool.
        self._expected: dict[Request, str] = {}
        self._coming: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<WaitingRoom: {len(self._expected)} handed out>"

    def may_start(self, request: Request) -> bool:
        """Would a request that is held ready get a proxy at once? True too for one that goes directly."""
        need = self._need_of(request)
        if need is None or self._keeper.has_room(*need, self._coming[need[0]]):
            return True
        self._held_up.add(request)
        return False

    def handed_out(self, request: Request) -> None:
        """A request that may start goes to the engine."""
        need = self._need_of(request)
        if need is None:
            return
        name = self._expected[request] = need[0]
        self._coming[name] += 1
        if request in self._held_up:
            self._held_up.discard(request)
            self._keeper.count(name, "waited")

    def left(self, request: Request) -> None:
        """A request that was handed out comes for its proxy, or its way through the downloader has ended before."""
        name = self._expected.pop(request, None)
        if name is not None:
            self._coming[name] -= 1

    def is_hopeless(self, request: Request) -> bool:
        """Did a request held ready wait for LEASE_PROXY_WAIT while nobody got a proxy of its pool? Told once."""
        need = self._need_of(request)
        if need is None or request not in self._held_up or not self._keeper.is_dry(need[0]):
            return False
        self._held_up.discard(request)
        self._keeper.count(need[0], "refused")
        return True

    def demand(self, pool: str) -> Counter[str]:
        """For each site, the requests held ready that want a proxy of *pool*."""
        needs = filter(None, map(self._need_of, self.ready()))
        return Counter(site for name, site in needs if name == pool)

    def has_untried(self, pool: str, site: str) -> bool:
        """Is a request to *site* held ready that wants a proxy of *pool* and was not refused through one yet?"""
        return any(self._need_of(request) == (pool, site) and not self._was_refused(request) for request in self.held())

    def _was_refused(self, request: Request) -> bool:
        trip = self._trips.get(request)
        return trip is not None and bool(trip.refusals.ids)

    def _need_of(self, request: Request) -> tuple[str, str] | None:
        """Return pool and site of a request; None: it goes directly, or will be refused."""
        try:
            way = self._router.way_of(request, is_media=False)
        except RequestRefused:
            return None
        return None if way is None else (name_in(way, self._trips.get(request)), site_of(request))
