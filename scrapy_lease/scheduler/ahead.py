"""Requests that a host has taken out of its own queue to lease their items, and what came of asking.

A *candidate* is new (never asked for), asked (the answer is on its way) or aside (another session has its item, or the
wait after a fault is not over: it is asked for again). New ones are asked for by priority; among equals every host has
an order of its own, by a hash of session and item, so that hosts with the same list do not walk it side by side.

=============  ===========================================================================================
answer         what becomes of the candidate
=============  ===========================================================================================
granted        into the window, under its lease
contended      aside, for a second; with ``LEASE_ON_CONTENDED = "skip"`` dropped
waiting        aside, for as long as the fault's wait lasts
over           dropped
leads          into the window once without a lease: each host must see where such a page leads
=============  ===========================================================================================

Of those aside no more than :data:`ASIDE` windows are kept here; the oldest go back into the queue, behind the others.
Whoever lost an item, failed with it or handed it back asks for it too, until it is over: it may lead on.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Protocol

from scrapy import Request

from scrapy_lease.backlog.lanes import Ask
from scrapy_lease.scheduler.own_queue import Known
from scrapy_lease.store.messages import Entry

#: Windows of requests that are taken out of the queue before they are asked for, and that are kept aside.
LOOK, ASIDE = 4, 10
#: First and longest wait (s) before a contended item is asked for again; it doubles.
AGAIN = (0.1, 0.9)


class Candidate(Ask):
    """A request whose item is to be leased.

    :param times: how often it was put aside.
    :param attempts: how often this process failed to look at its page, which led on and is another session's.
    """

    __slots__ = ("at", "attempts", "request", "times")

    def __init__(self, request: Request, entry: Entry, times: int = 0, attempts: int = 0) -> None:
        super().__init__(entry)
        self.request = request
        #: Clock time (s) at which it is asked for again.
        self.at = 0.0
        self.times = times
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"<Candidate {self.request}>"

    @property
    def known(self) -> Known:
        """What a queue is to keep with its request."""
        return Known(self.entry.digest, self.entry.mark, self.request.priority, self.times)


#: Priority (the least first), was it asked for before, place in the host's own order, order of coming.
Place = tuple[int, bool, int, int, Candidate]


class Queue(Protocol):
    """What requests are taken from."""

    def put_back(self, request: Request, known: Known) -> None: ...

    def take(self) -> tuple[Request, Known | None] | None: ...


class Ahead:
    """See the module's docstring.

    :param consider: makes a candidate of a request that was taken out; None: it needs no lease, or is dropped.
    :param window: how many requests the window holds.
    :param order: gives the place of an item among those of equal priority; the least first.
    """

    def __init__(
        self,
        queue: Queue,
        consider: Callable[[Request, Known | None], Candidate | None],
        window: int,
        order: Callable[[bytes], int],
    ) -> None:
        self._queue = queue
        self._consider = consider
        self._window = window
        self._order = order
        self._count = itertools.count()
        #: By download slot.
        self._new: dict[str, list[Place]] = {}
        self._news = 0
        self._all: dict[bytes, Candidate] = {}
        self._aside: dict[bytes, Candidate] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all.values())

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._all

    def __repr__(self) -> str:
        return f"<Ahead: {self._news} new, {len(self._aside)} aside of {len(self._all)}>"

    @property
    def has_new(self) -> bool:
        """Is there any that was never asked for?"""
        return self._news > 0

    def fill(self) -> None:
        """Take requests out of the queue until enough are here to choose from."""
        for _ in range(self._window * LOOK * 4):
            if self._news >= self._window * LOOK:
                return
            taken = self._queue.take()
            if taken is None:
                return
            candidate = self._consider(*taken)
            if candidate is not None:
                self.put(candidate)

    def put(self, candidate: Candidate) -> None:
        """Take in a new candidate, the only one of its item."""
        digest = candidate.entry.digest
        self._all[digest] = candidate
        place = (-candidate.request.priority, candidate.times > 0, self._order(digest), next(self._count))
        heapq.heappush(self._new.setdefault(candidate.entry.slot, []), (*place, candidate))
        self._news += 1

    def renew(self, asks: Iterable[Ask]) -> None:
        """Take those of *asks* that still wait for their answer for new ones: it does not come."""
        for ask in asks:
            candidate = self._all.get(ask.entry.digest)
            if candidate is ask:
                self.put(candidate)

    def ask(self, free: int, rooms: dict[str, int], limit: int) -> list[Ask]:
        """Return whom to ask for: those aside whose time has come, then new ones, as many as the window has room for.

        :param rooms: how many more each download slot may take; an unlisted one three quarters of what is left.
        """
        now = time.monotonic()
        asks: list[Ask] = []
        left = dict(rooms)

        def has_room(slot: str) -> bool:
            room = left.setdefault(slot, max(1, int((free - len(asks)) * 0.75)))
            if room > 0:
                left[slot] = room - 1
            return room > 0

        free = min(free, limit)
        # Many that are not to be had must not keep the node from those that nobody has.
        most = max(1, free // 2) if self._new else free
        for digest, candidate in list(self._aside.items()):
            if len(asks) >= min(most, free):
                break
            if candidate.at <= now and has_room(candidate.entry.slot):
                del self._aside[digest]
                asks.append(candidate)
        heads = [(places[0], slot) for slot, places in self._new.items()]
        heapq.heapify(heads)
        while heads and len(asks) < free:
            _, slot = heapq.heappop(heads)
            best = self._pop_new(slot) if has_room(slot) else None
            if best is not None:
                asks.append(best)
                if slot in self._new:
                    heapq.heappush(heads, (self._new[slot][0], slot))
        return asks

    def _pop_new(self, slot: str) -> Candidate | None:
        """Remove and return the best new one of a slot; None: all it had were dropped."""
        places = self._new[slot]
        found = None
        while places and found is None:
            candidate = heapq.heappop(places)[-1]
            self._news -= 1
            found = candidate if self._all.get(candidate.entry.digest) is candidate else None
        if not places:
            del self._new[slot]
        return found

    def drop(self, digest: bytes) -> Candidate | None:
        """Forget the candidate of an item and return it; None: there is none."""
        self._aside.pop(digest, None)
        return self._all.pop(digest, None)

    def add(self, candidate: Candidate, wait: float | None) -> None:
        """Ask for *candidate*, which this process had, again: see `put_aside`."""
        if candidate.entry.digest not in self._all:
            self._all[candidate.entry.digest] = candidate
            self.put_aside(candidate, wait)

    def put_aside(self, candidate: Candidate, wait: float | None = None) -> None:
        """Ask for *candidate* again: after *wait* s; None: another has it, so within a second."""
        digest = candidate.entry.digest
        if digest not in self._all:
            return
        if wait is None:
            wait = float(min(AGAIN[0] * 2 ** min(candidate.times, 10), AGAIN[1])) * random.uniform(0.8, 1.1)
        candidate.times += 1
        candidate.at = time.monotonic() + wait
        self._aside[digest] = candidate
        while len(self._aside) > self._window * ASIDE:
            oldest, candidate = next(iter(self._aside.items()))
            self._queue.put_back(candidate.request, candidate.known)
            self.drop(oldest)

    def soonest(self) -> float | None:
        """Return the seconds until the next of those aside is asked for, None if there is none."""
        times = [candidate.at for candidate in self._aside.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None


def own_order(session: str, digest: bytes) -> int:
    """Return the place of an item in the order of *session*."""
    return int.from_bytes(blake2b(digest, key=session.encode()[:64], digest_size=8).digest(), "big")
