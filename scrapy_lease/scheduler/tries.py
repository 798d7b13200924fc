"""The way of a request from its lease to its outcome: decoded, held ready, handed out, judged.

Who follows one request reads down this file: granted, prepared, handed out (`next`), sent, downloaded, ended. What an
outcome means for its item is the ledger's affair.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from copy import copy

from scrapy import Request

from scrapy_lease.exceptions import CorruptPayload, UnknownCallback
from scrapy_lease.leases.items import Hold, Ledger, Look, Verdict
from scrapy_lease.meta import write_record
from scrapy_lease.outcomes import Kind, Outcome, Tracker
from scrapy_lease.payload import Codec
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.scheduler.slots import Slots
from scrapy_lease.scheduler.under_way import Try, UnderWay, new_hold
from scrapy_lease.store.scripts import Grant

logger = logging.getLogger(__name__)

#: Seconds before an item whose callback this node lacks may be taken again: another node should have it.
FOREIGN_DELAY = 5.0

#: The same for an item for which there was no proxy.
BACK_DELAY = 2.0

_VERDICTS = {
    Kind.DONE: Verdict.DONE,
    Kind.REJECTED: Verdict.REJECTED,
    Kind.FAILED: Verdict.FAILED,
    Kind.BACK: Verdict.BACK,
}


class Tries(UnderWay):
    """See the module's docstring."""

    def __init__(self, runtime: Runtime, ledger: Ledger, codec: Codec, slots: Slots, tracker: Tracker) -> None:
        super().__init__(runtime, slots, tracker)
        self.intake: Intake
        self._stats = runtime.stats
        self._marks_first = runtime.settings.on_holder_death == "park"
        self._ledger = ledger
        self._codec = codec
        self._tracker = tracker
        #: Requests without an item, and looks, that are here or with the engine.
        self.loose = 0
        #: Called with a look that did not end well.
        self.on_look_failed: Callable[[Look], None] = lambda look: None
        #: Asked in turn whether a request may start now, as far as its proxy, its account and its permits go.
        self.conditions: list[Callable[[Request], bool]] = []
        #: Asked in turn whether a request was refused on the way from which it comes back.
        self.refusals: list[Callable[[Request], bool]] = []
        #: Called in turn with a request that is handed out, and when its way through the downloader ends.
        self.on_out: list[Callable[[Request], object]] = []
        self.on_in: list[Callable[[Request], object]] = []
        self._is_warned = False
        tracker.on_outcome = self.ended
        tracker.on_downloaded = self._downloaded
        self._gate.on_sent = self._sent
        self._gate.on_answered = tracker.answered

    def granted(self, grants: Sequence[Grant]) -> None:
        """Hold newly leased items ready."""
        for grant in grants:
            self.granted_to(new_hold(grant, grant.fence, self._session.epoch, grant.attempts, grant.deaths))

    def granted_to(self, hold: Hold, request: Request | None = None) -> None:
        """Hold a newly leased item ready; *request*: its original request, where this process has it."""
        if not self._ledger.add(hold):
            return
        self._stats.count("items/leased")
        if self._marks_first:
            self._ledger.mark_sent(hold)
        elif request is None:
            self.prepare(hold)
        else:
            self._ready(hold, request)

    def granted_here(self, hold: Hold, request: Request | None = None, *, is_out: bool = False) -> bool:
        """Hold ready an item that this process grants itself while the store is away; False: it holds it already.

        :param is_out: the engine has *request*, and goes on with it.
        """
        if not self._ledger.add(hold):
            return False
        self._stats.count("items/unsafe")
        if request is None:
            self.prepare(hold)
        elif is_out:
            hold.open += 1
            self._goes_out(Try(request, hold, self._session.epoch))
        else:
            self._ready(hold, request)
        return True

    def leased(self, hold: Hold, fence: int, attempts: int, deaths: int) -> None:
        """An item that this process had granted itself is leased to it now; what is under way of it counts."""
        hold.fence, hold.attempts, hold.deaths, hold.epoch = fence, attempts, deaths, self._session.epoch
        for found in self.everything():
            if found.hold is hold:
                found.epoch = hold.epoch
        self._stats.count("items/leased")
        self._ledger.settle_if_over(hold)

    def look_into(self, look: Look, request: Request) -> None:
        """Hold a page ready that led to others and is another host's: its requests count, its items do not."""
        self.loose += 1
        self._ready(look, request)

    def prepare(self, hold: Hold) -> None:
        """Put the original request of an item into the window."""
        try:
            request = self._codec.decode(hold.payload)
        except UnknownCallback as error:
            self._stats.count("queue/foreign")
            if not self._is_warned:
                self._is_warned = True
                logger.warning("A request is left to nodes that have its callback: %s", error)
            self._ledger.hand_back(hold, FOREIGN_DELAY * random.uniform(0.5, 1.5))
        except CorruptPayload as error:
            logger.error("An item goes to the dead letters, because its payload cannot be read: %s", error)
            self._ledger.bury(hold, "payload", str(error))
        else:
            self._ready(hold, request)

    def _ready(self, hold: Hold, request: Request) -> None:
        hold.open += 1
        hold.progress = time.monotonic()
        found = Try(request, hold, self._session.epoch)
        self.window.put(hold.slot, request.priority, found)

    def keep(self, request: Request, parent: Hold | None) -> None:
        """Hold a request of this node ready: one that continues *parent*, or that could not be stored.

        Nothing happens where *parent* is lost: who holds it now comes to the same request.
        """
        if parent is None:
            self.loose += 1
        elif isinstance(parent, Look) or self._ledger.is_held(parent):
            parent.open += 1
        else:
            return
        # The engine may still have this very object: a callback that yields its own request, or one twice.
        self.put_again(Try(copy(request), parent, self._session.epoch))

    def next(self) -> Request | None:
        """Hand the best request to the engine; None: nothing can be sent now."""
        if not self._gate.is_open or self._session.is_lost:
            return None
        found = self.window.take(self._slots.can_send, self._may_start if self.conditions else None)
        if found is None:
            return None
        self._slots.handed_out(found.request)
        for handed_out in self.on_out:
            handed_out(found.request)
        self._goes_out(found)
        self._tracker.track(found.request)
        return found.request

    def _may_start(self, found: Try) -> bool:
        may_start = True
        for condition in self.conditions:
            may_start = may_start and condition(found.request)
        return may_start

    def entered(self, request: Request, hold: Hold | None) -> None:
        """Go on with a request that the engine took from another scheduler, and that is tracked.

        :param hold: the lease that it got there, or the `Look`; None: it goes without.
        """
        if hold is None or isinstance(hold, Look):
            self.loose += 1
        elif self._ledger.add(hold):
            self._stats.count("items/leased")
        if hold is not None:
            hold.open += 1
        self._goes_out(Try(request, hold, self._session.epoch))

    def _goes_out(self, found: Try) -> None:
        request, hold = found.request, found.hold
        self._out[request] = found
        if hold is not None:
            hold.progress = time.monotonic()
        if hold is not None and not isinstance(hold, Look):
            item = request.meta.get("lease_item") or hold.digest.hex()
            write_record(request.meta, item=item, fence=hold.fence, session=self._session.sid)
        self._stats.count("queue/popped")

    def _sent(self, request: Request) -> None:
        self._tracker.sent(request)
        self._slots.sent(request)
        self._progress(request)

    def _downloaded(self, request: Request) -> None:
        for came_in in self.on_in:
            came_in(request)
        self._slots.ended(request)
        self._progress(request)

    def ended(self, request: Request, outcome: Outcome) -> None:
        """Take in what the tracker tells of a request."""
        found = self._out.pop(request, None)
        if found is None:
            return
        self._slots.ended(request)
        hold = found.hold
        if hold is not None:
            hold.progress = time.monotonic()
        if self._is_stale(found):
            self._ended_stale(found, outcome)
        elif outcome.kind is Kind.CONTINUES:
            self._continues(found, outcome.next_request)
        else:
            self._end(hold, _VERDICTS[outcome.kind], outcome.reason, outcome.trace, outcome.items)

    def _continues(self, found: Try, following: Request | None) -> None:
        assert following is not None
        if following is found.request:
            self.intake.claim(following)
            if found.goes_back and found.hold is not None and not isinstance(found.hold, Look):
                self._turns_back(found.hold)
            else:
                found.goes_back = False
                # What waits here may be served: that tells whether it is the page or the proxy.
                self.put_again(found, goes_first=not any(was_refused(following) for was_refused in self.refusals))
        elif self.intake.claim(following):
            self.put_again(Try(following, found.hold, found.epoch))
        else:
            # A handler of request_scheduled refused it, so it never reached the scheduler.
            self._end(found.hold, Verdict.REJECTED, "ignored")

    def _turns_back(self, hold: Hold) -> None:
        """There was nothing to send a request of this item with; a moment later there may be, here or elsewhere."""
        if hold.open == 1 and self._ledger.is_held(hold):
            hold.open = 0
            self._ledger.hand_back(hold, BACK_DELAY * random.uniform(0.5, 1.5))
        else:
            self._end(hold, Verdict.BACK, "back")

    def _end(self, hold: Hold | None, verdict: Verdict, reason: str, trace: str = "", items: int = 0) -> None:
        if hold is None:
            self.loose -= 1
            return
        self._ledger.request_ended(hold, verdict, reason, trace, items)
        if isinstance(hold, Look) and not hold.open:
            self.loose -= 1
            if not hold.has_ended_well:
                self.on_look_failed(hold)

    def _ended_stale(self, found: Try, outcome: Outcome) -> None:
        if outcome.next_request is not None:
            self.intake.claim(outcome.next_request)
        self._stats.count("items/stale")
        hold = found.hold
        if hold is None or isinstance(hold, Look):
            # Nobody else does it for this node.
            self.put_again(Try(found.request, hold, self._session.epoch))
            return
        hold.open -= 1
        if hold.open == 0 and self._ledger.is_held(hold):
            hold.restart()
            self.prepare(hold)

    # what cuts the way short

    def turn_back(self, request: Request) -> None:
        """Let the item of *request*, which its downloader middlewares are about to return, go back, nothing counted."""
        if (found := self._out.get(request)) is not None:
            found.goes_back = True

    def give_up(self, hold: Hold, reason: str, trace: str) -> None:
        """End an item whose requests make no progress, as a fault."""
        self.void(hold)
        hold.open = 0
        hold.judge(Verdict.FAILED, reason, trace)
        self._ledger.settle_if_over(hold)

    def regained(self, holds: Iterable[Hold]) -> None:
        """The session was lost; these items are held again under another: what is under way of them is void."""
        for hold in holds:
            if hold.open == 0 and hold.verdict is not None:
                continue
            under_way = self.void(hold)
            hold.open = under_way
            if not under_way:
                hold.restart()
                self.prepare(hold)

    def lost(self, holds: Iterable[Hold]) -> None:
        """These items are another session's now."""
        for hold in holds:
            self.void(hold)
            self._ledger.drop(hold)
