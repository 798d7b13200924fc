"""What is under way and ends here without an outcome: it goes back to the backlog, or to a queue of this host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from scrapy import Request

from scrapy_lease.exceptions import PayloadError
from scrapy_lease.leases.items import Hold, Ledger, Look
from scrapy_lease.payload import Codec
from scrapy_lease.scheduler.under_way import UnderWay


class GivingBack:
    """See the module's docstring; nothing of it counts as an attempt."""

    def __init__(self, under_way: UnderWay, ledger: Ledger, codec: Codec) -> None:
        self._under_way = under_way
        self._ledger = ledger
        self._codec = codec

    def __repr__(self) -> str:
        return f"<GivingBack of {self._under_way}>"

    def waiting(self, is_hopeless: Callable[[Request], bool]) -> None:
        """Hand back the items whose requests are held ready in vain; waiting here is no want of progress."""
        now = time.monotonic()
        for found in list(self._under_way.window):
            hold = found.hold
            if hold is None or isinstance(hold, Look):
                continue
            hold.progress = now
            if is_hopeless(found.request) and self._ledger.is_held(hold):
                self._under_way.void(hold)
                hold.open = 0
                self._ledger.hand_back(hold)

    def window(self) -> None:
        """Hand back what is held ready and never was with the engine."""
        for found in self._under_way.window.clear():
            hold = found.hold
            if hold is not None and hold.open == 1 and hold.verdict is None and self._ledger.is_held(hold):
                self._ledger.hand_back(hold)
            else:
                self._under_way.put_again(found)

    def everything(self) -> None:
        """Hand back what is held ready, and what is with the engine: the crawl ends."""
        self._under_way.window.clear()
        for hold in list(self._ledger):
            if hold.open or hold.verdict is None:
                self._under_way.void(hold)
                self._ledger.hand_back(hold)

    def let_go(self) -> Iterator[tuple[Request, Hold | None]]:
        """Yield all that has no outcome, for a queue that outlives this process; the engine has nothing any more.

        Of an item whose page has ended well these are the requests it still waits for, with None for its hold; it is
        settled. Of any other it is its original request.
        """
        waiting = [(found, found.hold) for found in self._under_way.everything()]
        over = {hold for _, hold in waiting if hold is not None and hold.has_ended_well and self._ledger.is_held(hold)}
        yield from ((found.request, None) for found, hold in waiting if hold is None or hold in over)
        for hold in over:
            self._under_way.void(hold)
            hold.open = 0
            self._ledger.settle_if_over(hold)
        looks = {hold for _, hold in waiting if isinstance(hold, Look)}
        for hold in (*self._ledger, *looks):
            if hold.open or hold.verdict is None:
                with suppress(PayloadError):
                    yield self._codec.decode(hold.payload), hold
