"""The requests between a lease and its outcome: those held ready, those that the engine has, and what of them counts.

A *try* is one request on its way; an item has one or, after a callback asked for its page again, several. A try is
*void* when its result may not count any more: its session was lost meanwhile, or the item was given up. The item of a
void try begins anew from its original request, if it is still this process's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from scrapy import Request

from scrapy_lease.leases.items import Hold, Look
from scrapy_lease.leases.window import Window
from scrapy_lease.outcomes import Tracker
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.slots import Slots
from scrapy_lease.store.messages import Entry, Grant


class Try:
    """One request on its way; *hold* is its item's, None for one that could not be stored and has no item."""

    __slots__ = ("epoch", "goes_back", "hold", "is_void", "request")

    def __init__(self, request: Request, hold: Hold | None, epoch: int) -> None:
        self.request = request
        self.hold = hold
        self.epoch = epoch
        self.is_void = False
        #: Is its item to go back to the backlog, because there is nothing to send it with?
        self.goes_back = False

    @property
    def takes_items(self) -> bool:
        """Do the items of its page count? Not if another host has them."""
        return not isinstance(self.hold, Look)

    def __repr__(self) -> str:
        return f"<Try {self.request}{' void' if self.is_void else ''}>"


def new_hold(item: Entry | Grant, fence: int, epoch: int, attempts: int = 0, deaths: int = 0) -> Hold:
    """Return the hold of *item*."""
    return Hold(item.digest, fence, epoch, item.slot, item.mark, item.payload, attempts, deaths)


class UnderWay:
    """See the module's docstring. Gate and tracker ask it about the requests that they see."""

    def __init__(self, runtime: Runtime, slots: Slots, tracker: Tracker) -> None:
        self.window: Window[Try] = Window(runtime.settings.window)
        self._session = runtime.session
        self._gate = runtime.gate
        self._is_leaving = runtime.is_leaving
        self._slots = slots
        self._out: dict[Request, Try] = {}
        tracker.is_stale = self.is_stale
        tracker.takes_items = self._takes_items
        tracker.is_certain = lambda: self._gate.is_open
        tracker.certainty = self.certainty
        tracker.on_abandoned = self._gate.abandon
        self._gate.is_leased = self._out.__contains__
        self._gate.may_send = self._may_send

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.window}, {len(self._out)} with the engine>"

    @property
    def is_idle(self) -> bool:
        """Is no request here or with the engine?"""
        return not self._out and not len(self.window)

    @property
    def moving(self) -> int:
        """How many requests held ready do not wait for a slot that has been full for a while."""
        return self.window.moving(self._slots.can_send)

    def has(self, request: Request) -> bool:
        """Does the engine have *request*, under a lease or without an item?"""
        return request in self._out

    def hold_of(self, request: Request | None) -> Hold | None:
        """Return the hold of a request that the engine has."""
        found = self._out.get(request) if request is not None else None
        return found.hold if found is not None else None

    def with_engine(self) -> set[Hold]:
        """Return the holds of which the engine has a request."""
        return {found.hold for found in self._out.values() if found.hold is not None}

    def ready(self) -> Iterator[Request]:
        """Yield the requests held ready that their slots could send now."""
        return (found.request for found in self.window.best(self._slots.room))

    def everything(self) -> list[Try]:
        """Return what is held ready, and what the engine has."""
        return [*self.window, *self._out.values()]

    def is_stale(self, request: Request) -> bool:
        """May the result of this request not count any more?"""
        found = self._out.get(request)
        return found is not None and self._is_stale(found)

    async def certainty(self, request: Request) -> None:
        """Wait until it is certain whether the result of *request* may count: confirmed again, or stale.

        A crawl that is closing does not wait: what is uncertain then does not count.
        """
        while not self._gate.is_open and not self.is_stale(request) and not self._session.is_closed:
            found = self._out.get(request)
            if found is not None and self._is_leaving():
                found.is_void = True
                return
            await asyncio.sleep(0.05)

    def void(self, hold: Hold) -> int:
        """Let nothing that is under way of an item count; return how many of its requests the engine has."""
        self.window.remove(lambda found: found.hold is hold)
        under_way = [found for found in self._out.values() if found.hold is hold]
        for found in under_way:
            found.is_void = True
            self._gate.cut(found.request)
        return len(under_way)

    def put_again(self, found: Try, *, goes_first: bool = True) -> None:
        """Hold ready what was under way before; *goes_first*: it goes out before what never was, else behind that."""
        self.window.put(self._slots.key_of(found.request), found.request.priority, found, again=goes_first)

    def _may_send(self, request: Request) -> bool:
        found = self._out.get(request)
        return found is None or not self._is_stale(found)

    def _takes_items(self, request: Request) -> bool:
        found = self._out.get(request)
        return found is None or found.takes_items

    def _is_stale(self, found: Try) -> bool:
        hold = found.hold
        if found.is_void or (hold is not None and not hold.fence and not isinstance(hold, Look)):
            # What this process granted itself does not depend on the session.
            return found.is_void
        return found.epoch != self._session.epoch or self._session.is_lost

    def _progress(self, request: Request) -> None:
        hold = self.hold_of(request)
        if hold is not None:
            hold.progress = time.monotonic()
