"""A lease of a pool as this process has it, and one request's use of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from scrapy_lease.leases.pool.options import Granted
from scrapy_lease.leases.pool.past import Past
from scrapy_lease.leases.pool.purse import Purse
from scrapy_lease.leases.session import Session, boot_time


@dataclass(slots=True)
class Rest:
    """A lease serves a site not before *until* (clock time, s), and then one request at a time: a probe."""

    until: float
    strikes: int


@dataclass(slots=True)
class Record:
    """How an account did since the store was told last (clock time, s).

    :param results: ``+`` or ``-`` for each use.
    :param samples: answers, as (site, clock time in s, ms that it took).
    :param logouts: how many pages in a row showed it as logged out.
    :param refused: key of the URL that it was refused last, with nothing served since.
    """

    results: str = ""
    samples: list[tuple[str, float, int]] = field(default_factory=list)
    logouts: int = 0
    refused: str | None = None
    told: float = 0.0


class Lease:
    """A resource that is leased to this process.

    ``id``, ``body``, ``exit``, ``fence`` as the store gives them; ``until``: clock time (s) at which its provider takes
    it back, None: never. Of an account: ``jar`` as its last holder left it, ``purse`` if its uses need permits, and
    ``health``.
    """

    __slots__ = (
        "body", "exit", "farewell", "fence", "health", "id", "idle_since", "is_held", "jar", "probes", "purse", "rests",
        "served", "serves", "session", "since", "sites", "strikes", "suspects", "told", "until", "used", "uses",
    )  # fmt: skip

    def __init__(self, granted: Granted, past: Past, session: Session, asked: float) -> None:
        self.id = granted.id
        self.body = granted.body
        self.exit = granted.exit
        self.fence = granted.fence
        self.until = asked + granted.life / 1000 if granted.life is not None else None
        self.strikes = granted.strikes
        self.rests = {site: Rest(asked + rest.left / 1000, rest.strikes) for site, rest in granted.rests.items()}
        self.serves = past.serves
        self.served = past.served
        self.suspects = past.suspects
        #: Sites that the store knows it to serve; when (clock time, s) it said so at the latest.
        self.told = past.learn(granted.views)
        self.since = asked
        self.session = session
        self.jar = granted.jar
        self.purse: Purse | None = None
        self.health = _UNTOLD
        #: Is it leased to this process, as far as it knows?
        self.is_held = True
        #: How it ends with its last request, as (verb, arguments); None: it stays.
        self.farewell: tuple[str, tuple[Any, ...]] | None = None
        #: Requests on it now, and since it was leased.
        self.uses = self.used = 0
        #: By the monotonic clock, which is the cheapest.
        self.idle_since = time.monotonic()
        #: Sites at which a probe of it is under way.
        self.probes: set[str] = set()
        #: Where it was used, lately.
        self.sites: set[str] = set()

    def __repr__(self) -> str:
        state = f"{self.uses} uses" if self.is_held else "over"
        return f"<Lease of {self.id}, fence {self.fence}: {state}>"

    @property
    def logouts(self) -> int:
        """How many pages in a row showed the account as logged out."""
        return self.health.logouts

    @property
    def life_left(self) -> float | None:
        """Seconds until its provider takes it back; None: it never does."""
        return None if self.until is None else self.until - boot_time()

    def places(self, concurrency: int) -> int:
        """Return how many more requests may start on it, whatever their site."""
        places = 1 if self.strikes else concurrency - self.uses
        if self.purse is None or (permits := self.purse.places) is None:
            return places
        return min(places, permits)

    def has_served(self, site: str) -> bool:
        """Did it ever serve the site, as far as this process remembers?"""
        return site in self.serves or site in self.served

    def refused(self, site: str) -> None:
        """The site has refused it; it serves the site again with the next page that it gets."""
        if site in self.serves:
            self.serves.discard(site)
            self.served.add(site)

    def rest_at(self, site: str) -> float:
        """Return for how many seconds it will not serve *site*, as far as is known; 0: it does."""
        if self.farewell is not None and self.farewell[0] == "broken":
            return float(self.farewell[1][0]) / 1000
        rest = self.rests.get(site)
        return 0.0 if rest is None else max(0.0, rest.until - boot_time())

    def may_serve(self, site: str) -> bool:
        """Does it not rest for *site*, and is no probe of it under way there?"""
        rest = self.rests.get(site)
        return rest is None or (site not in self.probes and rest.until <= boot_time())


#: Of what is no account.
_UNTOLD = Record()


class Use:
    """One request's use of a lease.

    ``lease``, ``site``; ``is_probe``: the lease, or the site, is being tried after a rest; ``is_over``: it has ended;
    ``is_sent``: its permit is spent.
    """

    __slots__ = ("epoch", "is_over", "is_probe", "is_sent", "lease", "site")

    def __init__(self, lease: Lease, site: str, epoch: int, is_probe: bool) -> None:
        self.lease = lease
        self.site = site
        self.epoch = epoch
        self.is_probe = is_probe
        self.is_over = self.is_sent = False

    def __repr__(self) -> str:
        state = "over" if self.is_over else "valid" if self.is_valid else "void"
        return f"<Use of {self.lease.id} at {self.site}: {state}>"

    @property
    def life_left(self) -> float | None:
        """Seconds until the provider takes the resource back; None: it never does."""
        return self.lease.life_left

    @property
    def is_valid(self) -> bool:
        """Is the resource still leased, by the session under which the use began?"""
        session = self.lease.session
        return self.lease.is_held and self.epoch == session.epoch and not session.is_lost

    @property
    def may_send(self) -> bool:
        """May its request be sent at this instant, as far as the resource goes?"""
        purse = self.lease.purse
        return self.is_valid and (purse is None or self.is_sent or purse.may_send)

    def sent(self) -> None:
        """Its request is sent at this instant: that costs a permit, once."""
        if not self.is_sent:
            self.is_sent = True
            if self.lease.purse is not None:
                self.lease.purse.sent()

    def settle_up(self, purse: Purse, kind: str) -> None:
        """It has ended so: what was not sent has its permit of the *purse* back."""
        if not self.is_sent and kind in ("unused", "cold"):
            purse.unused()
        else:
            self.sent()
