"""Requests on their way into the backlog: from the engine's call to an entry for the store.

The engine's call only appends here; keys and payloads are made in a later turn, some milliseconds' worth at a time.
Until the push of a request is answered, the item whose response led to it is not done.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from copy import copy
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from scrapy import Request

from scrapy_lease.backlog.lanes import Outgoing
from scrapy_lease.exceptions import LeaseError, Unserialisable
from scrapy_lease.feeds.entries import Fed, take_origin
from scrapy_lease.leases.items import Hold, Ledger, Verdict
from scrapy_lease.meta import ItemKeys, digest_of, done_ttl, explicit_key
from scrapy_lease.payload import Codec
from scrapy_lease.stats import Stats
from scrapy_lease.store.scripts import Entry

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds of one turn that may be spent making entries: the reactor has other work.
BUDGET = 0.005


class Arrival(NamedTuple):
    """A request as the engine gave it.

    *parent* and *page*: the item, and the request of it, whose response led here; or the entry of a feed, and no page.
    *occurrence*: the how-manieth of its kind in start(), or of its entry; 0: of a page.
    """

    request: Request
    parent: Hold | None
    occurrence: int
    page: Request | None


class Owner(Protocol):
    """Who uses the intake: the scheduler."""

    def keep(self, request: Request, parent: Hold | None) -> None:
        """*request* stays with this node: it continues *parent*, or cannot be stored."""


class Identity(msgspec.Struct, frozen=True, gc=False):
    """What a request is in the backlog: its digest, whether and how long its mark counts."""

    digest: bytes
    mark: str


class Intake:
    """See the module's docstring.

    :param slot_of: gives the download slot of a request.
    :param done_ttl: seconds for which a mark counts where the request says nothing else; 0: for ever.
    """

    def __init__(
        self,
        owner: Owner,
        ledger: Ledger,
        codec: Codec,
        keys: ItemKeys,
        slot_of: Callable[[Request], str],
        stats: Stats,
        done_ttl: int,
    ) -> None:
        self._owner = owner
        self._ledger = ledger
        self._codec = codec
        self._keys = keys
        self._slot_of = slot_of
        self._stats = stats
        self._done_ttl = done_ttl
        self._arrivals: dict[Request, Arrival] = {}
        self._is_warned = False

    def __len__(self) -> int:
        return len(self._arrivals)

    def __repr__(self) -> str:
        return f"<Intake: {len(self._arrivals)} requests waiting to be pushed>"

    def add(self, request: Request, parent: Hold | None, occurrence: int, page: Request | None = None) -> None:
        """Take *request* in; *parent* is not done before it is safe."""
        if request in self._arrivals:
            request = copy(request)
        origin = take_origin(request) if page is None else None
        if origin is not None:
            parent, occurrence = origin
            if parent.is_settled:
                return
        if parent is not None:
            self._ledger.child_queued(parent)
        self._arrivals[request] = Arrival(request, parent, occurrence, page)

    def claim(self, request: Request) -> bool:
        """Take *request* out again, because it continues an item; False: it is not here."""
        arrival = self._arrivals.pop(request, None)
        if arrival is None:
            return False
        if arrival.parent is not None:
            self._ledger.child_safe(arrival.parent)
        return True

    def outgoing(self, limit: int) -> list[Outgoing]:
        """Make the entries of some of the requests, oldest first, for as long as :data:`BUDGET` allows."""
        entries: list[Outgoing] = []
        until = time.monotonic() + BUDGET
        while self._arrivals and len(entries) < limit and time.monotonic() < until:
            arrival = self._arrivals.pop(next(iter(self._arrivals)))
            entry = self._entry_of(arrival)
            if entry is not None:
                entries.append(Outgoing(entry, arrival.parent))
        return entries

    def sort_out(self, accept: Callable[[Arrival, Identity], bool]) -> None:
        """Tell what continues an item from what is new, which *accept* takes: for a host with a queue of its own."""
        while self._arrivals:
            arrival = self._arrivals.pop(next(iter(self._arrivals)))
            if self.made(arrival, accept) is not None and arrival.parent is not None:
                self._ledger.child_safe(arrival.parent)

    def check(self, request: Request) -> None:
        """Raise `RequestRefused`, or whatever the request raises, for one of which no entry could be made."""
        done_ttl(request)
        self._slot_of(request)

    def entry(self, request: Request, identity: Identity) -> Entry:
        """Return what the store gets of *request*. Raises `Unserialisable`, and whatever the request raises."""
        ttl = done_ttl(request)
        return Entry(
            identity.digest,
            self._slot_of(request),
            request.priority,
            self._codec.encode(request),
            identity.mark,
            self._done_ttl if ttl is None else ttl,
        )

    def _entry_of(self, arrival: Arrival) -> Entry | None:
        return self.made(arrival, lambda arrival, identity: self.entry(arrival.request, identity))

    def made(
        self, arrival: Arrival, make: Callable[[Arrival, Identity], T], identity: Identity | None = None
    ) -> T | None:
        """Return what *make* makes of a request; None: it continues its parent, cannot be stored, or was refused.

        :param identity: what it is, where that is known.
        """
        request, parent = arrival.request, arrival.parent
        try:
            identity = identity or self._identify(arrival)
            if parent is not None and identity.digest == parent.digest:
                if self._repeats(arrival, parent):
                    self._stats.count("items/duplicate")
                    self._ledger.child_safe(parent)
                else:
                    self._keep(request, parent)
                return None
            return make(arrival, identity)
        except Unserialisable as error:
            if isinstance(parent, Fed):
                # Kept here it would go with this process, and its entry would be gone already.
                self._refuse(request, parent, "unserialisable", error)
                return None
            self._stats.count("queue/local_only")
            if not self._is_warned:
                self._is_warned = True
                logger.warning("A request stays with this node because it cannot be stored: %s", error)
            self._keep(request, parent)
        except LeaseError as error:
            self._refuse(request, parent, "item_key", error)
        except Exception as error:
            # Of what the user put into it, such as a download slot that is no string: the others must not suffer.
            self._refuse(request, parent, "unusable", error)
        return None

    def _identify(self, arrival: Arrival) -> Identity:
        request, parent, occurrence, page = arrival
        if isinstance(parent, Fed):
            return self._identify_fed(request, parent, occurrence)
        key = self._keys.key_of(request, is_start=bool(occurrence), occurrence=max(0, occurrence - 1))
        if key is None and parent is not None and page is not None and self._asks_again(request, page):
            return Identity(parent.digest, parent.mark)
        if key is None:
            return Identity(secrets.token_bytes(16), "none")
        # A start request that is fetched each run although it may be known is marked for its run only.
        once_a_run = occurrence and request.dont_filter and explicit_key(request) is None
        return Identity(digest_of(key), "run" if once_a_run else "auto")

    def _identify_fed(self, request: Request, fed: Fed, place: int) -> Identity:
        """Without a key of its own it is what this entry led to: made again by who takes over, it is the same item."""
        key = self._keys.key_of(request)
        return Identity(digest_of(fed.key(place)), "run") if key is None else Identity(digest_of(key), "auto")

    def _asks_again(self, request: Request, page: Request) -> bool:
        """Is *request* its page once more, as get_retry_request makes it, with dont_filter?"""
        if request.url != page.url or not request.dont_filter or explicit_key(request) is not None:
            return False
        return self._keys.fingerprint_of(request) == self._keys.fingerprint_of(page)

    def _repeats(self, arrival: Arrival, parent: Hold) -> bool:
        """Was this asked for under its item before? A page that links to itself would never end.

        Who names the key in meta, or sets dont_filter, means it.
        """
        request, page = arrival.request, arrival.page
        if request.dont_filter or explicit_key(request) is not None:
            return False
        fingerprint = self._keys.fingerprint_of(request)
        if parent.asked is None:
            parent.asked = set()
        if page is not None:
            parent.asked.add(self._keys.fingerprint_of(page))
        if fingerprint in parent.asked or digest_of(fingerprint) == parent.digest:
            return True
        parent.asked.add(fingerprint)
        return False

    def _keep(self, request: Request, parent: Hold | None) -> None:
        self._owner.keep(request, parent)
        if parent is not None:
            self._ledger.child_safe(parent)

    def _refuse(self, request: Request, parent: Hold | None, reason: str, error: Exception) -> None:
        """Without a key nothing may be fetched: it is a fault of the item that led to the request."""
        logger.error("%s is not fetched: %s", request, error)
        if parent is not None:
            parent.judge(Verdict.FAILED, reason, str(error))
            self._ledger.child_safe(parent)
