"""Requests that will have to wait for their permits for long wait outside of the window of those held ready.

So they keep no place there from others, and none in the downloader. They stay leased; whatever gives the window back
gives them back too. They return in their order, a moment before there may be permits for them.
"""

from __future__ import annotations

import time
from collections import Counter as Bag
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_lease.leases.rates import Counter
from scrapy_lease.rates.charges import Charge
from scrapy_lease.rates.line import Row, wait_of

if TYPE_CHECKING:
    from scrapy_lease.scheduler.tries import Tries

#: Requests of one process that may be parked; the others keep their places in the window.
PARKED = 1000


class Parking:
    """See the module's docstring.

    :param charge_of: returns what a request costs.
    :param patience: seconds of waiting in the window.
    :ivar is_denied: could a request not start for want of a permit since the last look?
    """

    def __init__(self, tries: Tries, charge_of: Callable[[Request], Charge], patience: float) -> None:
        self._tries = tries
        self._window = tries.window
        self._charge_of = charge_of
        self._patience = patience
        self.is_denied = False

    def __repr__(self) -> str:
        return f"<Parking: {self._window.parked} requests>"

    @property
    def is_busy(self) -> bool:
        """Does anything wait?"""
        return self.is_denied or self._window.parked > 0

    def park(self) -> list[Charge]:
        """Take those out of the window that will have to wait for long; return what they cost."""
        self._go_on()
        if not self.is_denied:
            return []
        self.is_denied = False
        ahead: Bag[Counter] = Bag()
        parked: list[Charge] = []
        for found in self._window.in_order():
            if self._window.parked >= PARKED:
                break
            charge = self._charge_of(found.request)
            if wait_of(charge, ahead) > self._patience:
                self._window.park(found, charge.group)
                parked.append(charge)
        return parked

    def put_back(self) -> bool:
        """Let those return that need not wait for long any more, as far as there is room; were there any?"""
        if not self._window.parked:
            return False
        ahead: Bag[Counter] = Bag()
        for found in self._window.in_order():
            wait_of(self._charge_of(found.request), ahead)
        has_any = False
        for group in self._window.groups():
            while self._window.has_room and (first := self._window.first_of(group)) is not None:
                if wait_of(self._charge_of(first.request), ahead) > self._patience:
                    break
                self._window.put_back(group)
                has_any = True
        return has_any

    def rows(self) -> Iterator[Row]:
        """Yield what requests held ready cost, and of those that are parked the first of each group for all."""
        yield from ((self._charge_of(found.request), 1) for found in self._window.in_order())
        for group, number in self._window.groups().items():
            first = self._window.first_of(group)
            if first is not None:
                yield self._charge_of(first.request), number

    def _go_on(self) -> None:
        """To wait for permits is no want of progress."""
        now = time.monotonic()
        for found in self._window:
            if found.hold is not None:
                found.hold.progress = now
