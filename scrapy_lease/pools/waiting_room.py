"""Requests that the scheduler holds ready: which may start, and what they want of the pools.

A request that would wait in the downloader for its proxy or account takes a place there that others could use. So the
scheduler asks first, and hands out only what finds one. It tells what it hands out, too: of those that follow at once
none takes what an earlier one is coming for. Of requests that are kept on one resource by a key, as many may start as
that takes; together they want one. Where each account has its own, a request may start: it finds that when it goes as
the account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakSet

from scrapy import Request

from scrapy_lease.meta import RequestRefused
from scrapy_lease.pools.keeper import Keeper
from scrapy_lease.pools.routing import Router, site_of
from scrapy_lease.pools.trip import Trip


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
        #: Requests that were handed out and have not come for their resource yet -> pool, site and key; how many for
        #: each pool, and for each key there.
        self._expected: dict[Request, tuple[str, str, str]] = {}
        #: What was asked for last, and what it needs: who may start is handed out next.
        self._asked: tuple[Request, tuple[str, str, str] | None] | None = None
        self._coming: Counter[str] = Counter()
        self._coming_of_key: Counter[tuple[str, str]] = Counter()

    def __repr__(self) -> str:
        return f"<WaitingRoom: {len(self._expected)} handed out>"

    def may_start(self, request: Request) -> bool:
        """Would a request that is held ready get its resource at once? True too for one that goes without."""
        need = self._want_of(request)
        self._asked = request, need
        if need is None:
            return True
        name, _, key = need
        if self._keeper.has_room(*need, self._coming[name], self._coming_of_key[name, key] if key else 0):
            return True
        self._held_up.add(request)
        return False

    def handed_out(self, request: Request) -> None:
        """A request that may start goes to the engine."""
        asked, self._asked = self._asked, None
        need = asked[1] if asked is not None and asked[0] is request else self._want_of(request)
        if need is None:
            return
        name, _, key = need
        self._expected[request] = need
        self._coming[name] += 1
        if key:
            self._coming_of_key[name, key] += 1
        if request in self._held_up:
            self._held_up.discard(request)
            self._keeper.count(name, "waited")

    def left(self, request: Request) -> str | None:
        """A request that was handed out comes for its resource, or its way through the downloader has ended before.

        :returns: its site, None if it has left before.
        """
        expected = self._expected.pop(request, None)
        if expected is None:
            return None
        name, site, key = expected
        self._coming[name] -= 1
        if key:
            self._coming_of_key[name, key] -= 1
            if not self._coming_of_key[name, key]:
                del self._coming_of_key[name, key]
        return site

    def is_hopeless(self, request: Request) -> bool:
        """Did a request held ready wait for LEASE_…_WAIT while nobody got one of its pool? Told once."""
        need = self._want_of(request)
        if need is None or request not in self._held_up or not self._keeper.is_dry(need[0]):
            return False
        self._held_up.discard(request)
        self._keeper.count(need[0], "refused")
        return True

    def need_of(self, request: Request) -> tuple[str, str, int] | None:
        """Return pool and site of a request, and how many are about to take one; None: it goes without."""
        need = self._want_of(request)
        return None if need is None else (*need[:2], self._coming[need[0]])

    def demand(self, pool: str) -> Counter[str]:
        """For each site, how many of *pool* the requests held ready want; those of one key want one."""
        wanted: Counter[str] = Counter()
        keys: set[str] = set()
        for need in map(self._want_of, self.ready()):
            if need is None or need[0] != pool or need[2] in keys:
                continue
            _, site, key = need
            if key:
                keys.add(key)
                if not self._keeper.lacks(pool, site, key):
                    continue
            wanted[site] += 1
        return wanted

    def has_untried(self, pool: str, site: str) -> bool:
        """Is a request to *site* held ready that wants one of *pool* and was not refused yet?"""
        for request in self.held():
            need = self._need_of(request)
            if need is not None and need[:2] == (pool, site) and not self.was_refused(request):
                return True
        return False

    def was_refused(self, request: Request) -> bool:
        """Was the request refused on a lease before?"""
        trip = self._trips.get(request)
        return trip is not None and trip.was_refused

    def _need_of(self, request: Request) -> tuple[str, str, str] | None:
        """Return pool, site and key ("": none) of a request; None: it goes without, or will be refused."""
        try:
            way = self._router.way_of(request, is_media=False)
            if way is None:
                return None
            # The way of nearly all, without a look for a trip.
            name = way[0] if len(way) == 1 else name_in(way, self._trips.get(request))
            return name, site_of(request), self._router.key_of(request, name)
        except RequestRefused:
            return None

    def _want_of(self, request: Request) -> tuple[str, str, str] | None:
        """The same, of what others could want too."""
        need = self._need_of(request)
        return None if need is None or need[0] in self._router.owned else need
