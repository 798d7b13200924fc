"""Who waits for a lease in this process, and what is to be asked of the store for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Set

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.shelf import Shelf, Use
from scrapy_lease.leases.pool.sites import Sites

#: Sites of one call.
SITES = 100


class Waiter:
    """A request that waits for its lease.

    ``is_asked``: the store is being asked for it; ``is_tried``: it has been, so what is to be avoided is better than
    nothing.
    """

    __slots__ = ("avoid", "future", "is_asked", "is_tried", "site", "sticky")

    def __init__(self, site: str, sticky: str, avoid: Set[str]) -> None:
        self.site = site
        self.sticky = sticky
        self.avoid = avoid
        self.future: asyncio.Future[Use] = asyncio.get_running_loop().create_future()
        self.is_asked = self.is_tried = False


class Line:
    """The waiters, those who came first at the front."""

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(list(self._waiters))

    def add(self, waiter: Waiter) -> None:
        """Stand at the end."""
        self._waiters[waiter] = None

    def discard(self, waiter: Waiter) -> None:
        """Leave, wherever one stands."""
        self._waiters.pop(waiter, None)

    def mark_asked(self) -> None:
        """The store is being asked for all who wait."""
        for waiter in self._waiters:
            waiter.is_asked = True

    def mark_tried(self) -> None:
        """The store has answered."""
        for waiter in self._waiters:
            waiter.is_tried = waiter.is_tried or waiter.is_asked


def asks_for(
    line: Line, demand: Mapping[str, int], shelf: Shelf, sites: Sites, options: PoolOptions
) -> list[tuple[str, int]]:
    """Return the leases missing for each site: for who waits, then for *demand* beyond the free places there are.

    A lease has places for ``concurrency`` requests, of whatever sites; a paused site is not asked for.
    """
    needs: dict[str, int] = {}
    for waiter in line:
        if not waiter.sticky or shelf.bound(waiter.sticky, waiter.site, waiter.avoid) is None:
            needs[waiter.site] = needs.get(waiter.site, 0) + 1
    for site, count in _missing(demand, shelf, options.concurrency).items():
        needs[site] = needs.get(site, 0) + count
    room = max(0, options.most - len(shelf)) if options.most else None
    asks: list[tuple[str, int]] = []
    before = total = 0
    for site, count in needs.items():
        if sites.is_paused(site) or len(asks) == SITES:
            continue
        # Rounded up once for all sites together.
        total += count
        after = -(-total // options.concurrency)
        if room is not None:
            after = min(after, room)
        if after > before:
            asks.append((site, after - before))
            before = after
    return asks


def _missing(demand: Mapping[str, int], shelf: Shelf, concurrency: int) -> dict[str, int]:
    """What *demand* lacks when the free places are given to whom they can serve."""
    leases = [lease for lease in shelf.open.values() if not shelf.is_ending(lease)]
    places = [1 if lease.strikes else concurrency - lease.uses for lease in leases]
    missing = {}
    for site, count in demand.items():
        for number, lease in enumerate(leases):
            if count and places[number] and lease.may_serve(site):
                taken = min(count, places[number])
                places[number] -= taken
                count -= taken
        if count > 0:
            missing[site] = count
    return missing
