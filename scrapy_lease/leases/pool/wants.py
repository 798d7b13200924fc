"""Who waits for a lease in this process, and what is to be asked of the store for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

from scrapy_lease.leases.pool.options import PoolOptions, Taken
from scrapy_lease.leases.pool.shelf import Lease, Shelf, Use
from scrapy_lease.leases.pool.sites import Sites
from scrapy_lease.leases.pool.ties import Own, Tie

#: Sites, and sticky keys, of one call.
SITES, KEYS = 100, 100


class Waiter:
    """A request that waits for its lease.

    ``is_asked``: the store is being asked for it; ``is_tried``: it has been, so what is to be avoided is better than
    nothing; ``is_deferred``: what its sticky key is tied to is not here, and the store says when it may be.
    """

    __slots__ = ("avoid", "future", "is_asked", "is_deferred", "is_tried", "keep", "make", "site", "sticky", "want")

    def __init__(
        self, site: str, sticky: str, avoid: Set[str], keep: str = "", make: Callable[[], Own] | None = None
    ) -> None:
        self.site = site
        self.sticky = sticky
        #: The id that serves it and no other while it is here.
        self.keep = keep
        #: Makes what its sticky key is tied to, and to nothing else.
        self.make = make
        #: By what those are named that want the same.
        self.want = want_of(site, f"\0{keep}" if keep else sticky)
        self.avoid = avoid
        self.future: asyncio.Future[Use] = asyncio.get_running_loop().create_future()
        self.is_asked = self.is_tried = self.is_deferred = False

    @property
    def avoided(self) -> Set[str]:
        """The ids that it must not get now."""
        return frozenset() if self.is_tried else self.avoid


def want_of(site: str, sticky: str) -> str:
    """Return the name of what a request wants: a lease for *site*, or the one of its sticky key."""
    return f"{site}\0{sticky}" if sticky else site


class Line:
    """The waiters, those who came first at the front."""

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}
        self._sticky = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(list(self._waiters))

    def add(self, waiter: Waiter) -> None:
        """Stand at the end."""
        self._waiters[waiter] = None
        self._sticky += bool(waiter.sticky)

    def discard(self, waiter: Waiter) -> None:
        """Leave, wherever one stands."""
        if waiter in self._waiters:
            del self._waiters[waiter]
            self._sticky -= bool(waiter.sticky)

    def has_key(self, key: str) -> bool:
        """Does anybody wait for the resource of a sticky key?"""
        return self._sticky > 0 and any(waiter.sticky == key for waiter in self._waiters)

    def loose(self, shelf: Shelf) -> list[Waiter]:
        """Return those whose sticky key is tied to no lease that is here and may serve them."""
        if not self._sticky:
            return []
        keyed = [waiter for waiter in self._waiters if waiter.sticky]
        return [waiter for waiter in keyed if shelf.bound(waiter.sticky, waiter.site, waiter.avoided) is None]

    def mark_asked(self) -> None:
        """The store is being asked for all who wait."""
        for waiter in self._waiters:
            waiter.is_asked = True

    def mark_tried(self, deferred: Mapping[str, bool]) -> None:
        """The store has answered; *deferred*: of sticky keys, whether there is no use in asking again at once."""
        for waiter in self._waiters:
            waiter.is_tried = waiter.is_tried or waiter.is_asked
            waiter.is_deferred = deferred.get(waiter.sticky, waiter.is_deferred)


@dataclass(frozen=True, slots=True)
class Asks:
    """What the store is asked for: leases for each site, as (site, number), and one more for each key of *ties*.

    And what it is told along: how many ms ago the last answer came through the pool here, -1: none did.

    :param more: leases of accounts, as (id, fence), that need permits.
    """

    sites: list[tuple[str, int]]
    ties: list[Tie]
    answered: int = -1
    more: tuple[tuple[str, int], ...] = ()

    @property
    def wants(self) -> set[str]:
        """What something is asked for, by the names of :func:`want_of`."""
        keys = {want_of(tie.site, tie.key) for tie in self.ties if tie.site is not None}
        return {site for site, number in self.sites if number} | keys

    def unmet(self, taken: Taken) -> int:
        """Return for how many leases more, those for keys aside, the store knows this session to wait.

        For a paused site it waits for none, for one that is probed for one.
        """
        pauses = zip(self.sites, taken.pauses, strict=True)
        wanted = sum(min(number, 1) if left < 0 else number for (_, number), left in pauses if left <= 0)
        for_keys = {id_ for tie, id_ in zip(self.ties, taken.tied, strict=True) if tie.site is not None}
        return max(0, wanted - sum(lease.id not in for_keys for lease in taken.leases))


def asks_for(line: Line, demand: Mapping[str, int], shelf: Shelf, sites: Sites, options: PoolOptions) -> Asks:
    """Return the leases missing for each site: for who waits, then for *demand* beyond the free places there are.

    A lease has places for ``concurrency`` requests, of whatever sites; a paused site is not asked for.
    """
    needs: dict[str, int] = {}
    for waiter in line:
        if not waiter.sticky and shelf.kept(waiter.keep, waiter.site, waiter.avoided) is None:
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
    ties = _ties(line, shelf, sites, options, None if room is None else room - before)
    missing = {tie.site: 0 for tie in ties if tie.site is not None}
    return Asks(list((missing | dict(asks)).items()), ties)


class Offers:
    """What leases here can do for sticky keys that are tied to nothing.

    A new key gets a free place. Of those for which there was nothing in the store either, one at a time waits for each
    lease: those after it may find another by then.
    """

    def __init__(self, line: Line, shelf: Shelf, options: PoolOptions) -> None:
        self._shelf = shelf
        self._places: dict[Lease, int] = {}
        for lease in shelf:
            self._places[lease] = (1 if lease.strikes else options.concurrency) - lease.uses
        for waiter in line if self._places else ():
            bound = shelf.bound(waiter.sticky, waiter.site, waiter.avoided) if waiter.sticky else None
            if bound is not None:
                self._places[bound] -= 1

    def take(self, waiter: Waiter) -> str:
        """Return the id of a lease for the key of one more waiter; "": there is none."""
        best: Lease | None = None
        most = 0
        for lease, free in reversed(self._places.items()):
            places = free + waiter.is_tried
            if places > most and self._shelf.suits(lease, waiter.site, waiter.avoided):
                best, most = lease, places
        if best is None:
            return ""
        self._places[best] -= 1
        return best.id


def can_be_offered(line: Line, shelf: Shelf, sites: Sites, options: PoolOptions) -> set[str]:
    """Return the wants of keys for which there was nothing in the store and that can be tied to what is here."""
    loose = [each for each in line.loose(shelf) if each.is_tried and not each.is_deferred and each.make is None]
    offers = Offers(line, shelf, options) if loose else None
    return {
        waiter.want
        for waiter in loose
        if offers is not None and not sites.is_paused(waiter.site) and offers.take(waiter)
    }


def _ties(line: Line, shelf: Shelf, sites: Sites, options: PoolOptions, room: int | None) -> list[Tie]:
    """What is asked for sticky keys; *room*: for how many of them that can be offered nothing, None: for any number."""
    waiters = sorted(line.loose(shelf), key=lambda waiter: waiter.is_deferred)
    offers = Offers(line, shelf, options) if waiters else None
    ties: dict[str, Tie] = {}
    for waiter in waiters:
        if len(ties) == KEYS:
            break
        if offers is None or waiter.sticky in ties or sites.is_paused(waiter.site):
            continue
        offer = offers.take(waiter) if waiter.make is None else ""
        if not offer and room is not None:
            if room <= 0:
                continue
            room -= 1
        # One that was made before may have been found to be of no use meanwhile.
        own = waiter.make() if waiter.make is not None else None
        ties[waiter.sticky] = Tie(waiter.sticky, waiter.site, offer, frozenset(waiter.avoided), own)
    return list(ties.values())


def learn_ties(ties: list[Tie], taken: Taken, asked: float, shelf: Shelf, sites: Sites) -> dict[str, bool]:
    """Take in what sticky keys are tied to. Return those that still want: is there no use in asking at once?"""
    wanting = {}
    for tie, id_ in zip(ties, taken.tied, strict=True):
        lease = shelf.get(id_)
        if lease is not None and lease.farewell is None:
            shelf.ties.tie(tie.key, id_, asked)
        else:
            shelf.ties.untie(tie.key)
        if tie.site is None or sites.is_paused(tie.site) or shelf.bound(tie.key, tie.site) is not None:
            continue
        wanting[tie.key] = bool(id_ or tie.offer)
    return wanting


def _missing(demand: Mapping[str, int], shelf: Shelf, concurrency: int) -> dict[str, int]:
    """What *demand* lacks when the free places are given to whom they can serve."""
    leases = [lease for lease in shelf.open.values() if not shelf.is_ending(lease)]
    places = [lease.places(concurrency) for lease in leases]
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
