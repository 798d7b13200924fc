"""The leases of a pool that this process has, and their uses.

A lease is *open* while another request may start on it. Of those that are open, the one used last is used first: what
is not needed stays idle and can be given back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from scrapy_lease.leases.pool.lease import Lease, Record, Rest, Use
from scrapy_lease.leases.pool.options import Granted, PoolOptions
from scrapy_lease.leases.pool.past import Pasts
from scrapy_lease.leases.pool.purse import Purse
from scrapy_lease.leases.pool.ties import Ties
from scrapy_lease.leases.session import Session, boot_time

__all__ = ["Lease", "Rest", "Shelf", "Use", "Word"]

#: Sites of one lease that it is remembered to have been used at.
SITES = 64
#: Seconds, at least, before a place is used again whose download was cut off: proxy and site may still be at it.
AFTER_CUT = 1.0
#: The ends of a lease, those that say more first.
_GRAVITY = {"gone": 3, "demote": 2, "broken": 1, "cool": 1, "back": 0}


@dataclass(frozen=True, slots=True)
class Word:
    """What is to be said of a lease in the store, with the verbs of a settlement."""

    lease: Lease
    verb: str
    args: tuple[Any, ...]

    @property
    def id(self) -> str:
        return self.lease.id

    @property
    def fence(self) -> int:
        return self.lease.fence

    @property
    def is_ban(self) -> bool:
        """Does it let the resource rest for a site, or have it replaced?"""
        return self.verb in ("ban", "hang") or (self.verb == "gone" and self.args[0] in ("banned", "broken"))

    @property
    def is_end(self) -> bool:
        """Does it end the lease?"""
        return self.verb in _GRAVITY


class Shelf:
    """See the module's docstring.

    :param clock: the boot-time clock, in s.
    """

    def __init__(self, options: PoolOptions, session: Session, clock: Callable[[], float] = boot_time) -> None:
        self._concurrency, self._reuse, self._margin = options.concurrency, options.reuse, options.margin
        self._name = options.name
        self._session = session
        self._clock = clock
        self._account = options.account
        self._leases: dict[str, Lease] = {}
        self._open: dict[str, Lease] = {}
        self._pasts = Pasts()
        #: Which of the leases serve which sticky keys.
        self.ties = Ties(options, clock)

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._leases.values()))

    def __repr__(self) -> str:
        return f"<Shelf of {self._name}: {len(self._leases)} leases, {len(self._open)} open>"

    @property
    def open(self) -> Mapping[str, Lease]:
        """Leases on which another request may start, the one used last at the end."""
        return self._open

    def get(self, id_: str) -> Lease | None:
        """Return the lease of a resource, if there is one."""
        return self._leases.get(id_)

    def used_sites(self) -> set[str]:
        """Return the sites at which the leases were used lately."""
        return set().union(*(lease.sites for lease in self._leases.values()))

    def bound(self, key: str, site: str, avoid: Set[str] = frozenset()) -> Lease | None:
        """Return the lease that a sticky key is tied to, if a request to *site* may go through it, now or later."""
        lease = self._leases.get(self.ties.id_of(key))
        return lease if lease is not None and self.suits(lease, site, avoid) else None

    def add(self, granted: Granted, asked: float) -> Lease:
        """Take in what the store granted at clock time *asked* (s); an older lease of the same resource is over."""
        if (older := self._leases.get(granted.id)) is not None:
            self.remove(older)
        lease = Lease(granted, self._pasts.of(granted.id), self._session, asked)
        if self._account is not None:
            lease.health = Record()
            if self._account.has_purse and granted.permits is not None:
                lease.purse = Purse(self._account, granted.permits, asked, self._clock)
        self._leases[lease.id] = self._open[lease.id] = lease
        return lease

    def kept(self, keep: str, site: str, avoid: Set[str] = frozenset()) -> Lease | None:
        """Return the lease of this id, if a request to *site* may go through it, now or later."""
        lease = self._leases.get(keep) if keep else None
        return lease if lease is not None and self.suits(lease, site, avoid) else None

    def find(self, site: str, sticky: str = "", avoid: Set[str] = frozenset(), keep: str = "") -> Lease | None:
        """Return an open lease for a request to *site*, none of *avoid*; a sticky key has its own or none.

        :param keep: while the lease of this id is here, that one or none.
        """
        if self._account is not None:
            return self._find_account(site, avoid, keep)
        if sticky:
            bound = self.bound(sticky, site, avoid)
            return bound if bound is not None and bound.id in self._open else None
        for lease in reversed(self._open.values()):
            # The way of nearly all, without a call.
            if lease.rests and not lease.may_serve(site):
                continue
            if lease.id not in avoid and (lease.until is None or lease.until > self._margin + self._clock()):
                return lease
        return None

    def _find_account(self, site: str, avoid: Set[str], keep: str) -> Lease | None:
        """Of accounts the one that was used least lately is used first, so that all are used alike."""
        kept = self.kept(keep, site, avoid)
        for lease in self._open.values() if kept is None else (kept,):
            if lease.id in self._open and lease.id not in avoid and self.places_on(lease, site) > 0:
                return lease
        return None

    def is_ending(self, lease: Lease) -> bool:
        """Has it too little life left for a request to start on it?"""
        return lease.until is not None and lease.until <= self._margin + self._clock()

    def places_on(self, lease: Lease, site: str) -> int:
        """Return how many requests to *site* may start on an open lease, one after the other; a probe is one."""
        return lease.places(1 + lease.uses if site in lease.rests else self._concurrency)

    def begin(self, lease: Lease, site: str, sticky: str = "") -> bool:
        """Let a request start on an open lease; True: it is a probe."""
        lease.uses += 1
        lease.used += 1
        if self._account is not None:
            self._open[lease.id] = self._open.pop(lease.id)
            if lease.purse is not None:
                lease.purse.begin()
        if site not in lease.sites:
            if len(lease.sites) == SITES:
                lease.sites.clear()
            lease.sites.add(site)
        if sticky:
            self.ties.use(sticky)
        if lease.used == self._reuse and lease.farewell is None:
            lease.farewell = ("back", (0,))
            del self._open[lease.id]
        # After it broke, one request at a time tells whether it works again.
        elif lease.uses >= self._concurrency or lease.strikes:
            del self._open[lease.id]
        if lease.rests and site in lease.rests:
            lease.probes.add(site)
            return True
        return lease.strikes > 0

    def end(self, lease: Lease) -> bool:
        """A request on it has ended; True: so has the lease with it, and is to be settled by its farewell."""
        lease.uses -= 1
        if not lease.uses:
            lease.idle_since = time.monotonic()
        if not lease.is_held:
            return False
        if lease.farewell is not None:
            return not lease.uses
        if lease.id not in self._open:
            self._open[lease.id] = lease
        return False

    def part(self, lease: Lease, verb: str, args: tuple[Any, ...] = (0,)) -> bool:
        """Let no further request start on it; True: it is idle, and to be settled by its farewell."""
        if lease.farewell is None or _GRAVITY[verb] > _GRAVITY[lease.farewell[0]]:
            lease.farewell = (verb, args)
        self._open.pop(lease.id, None)
        return lease.is_held and not lease.uses

    def remove(self, lease: Lease) -> None:
        """The lease is over: what uses it still has are not valid."""
        lease.is_held = False
        if self._leases.get(lease.id) is lease:
            del self._leases[lease.id]
            self._open.pop(lease.id, None)
            self.ties.leave(lease.id)

    def suits(self, lease: Lease, site: str, avoid: Set[str] = frozenset()) -> bool:
        """May a request to *site* go through a lease, now or when it is open?"""
        rest = lease.rests.get(site)
        is_resting = rest is not None and rest.until > self._clock()
        return lease.farewell is None and lease.id not in avoid and not is_resting and not self.is_ending(lease)
