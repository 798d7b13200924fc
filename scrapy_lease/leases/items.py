"""Items that this process holds, and the one table that says what their outcomes mean.

A *hold* is this process's lease of one item. It is settled once, when

- no request of the item is with the engine or queued here (a redirect or a retry takes the place of the request it
  comes from; a request yielded with its response's item key joins), and
- every request that its responses led to is safe in the backlog: the store has answered its push.

============  ==========================================================================================
verdict       settled as
============  ==========================================================================================
done          ``done``: marked over runs if the page yielded items, for this run if it did not; the mark
              tells also, in a crawl where each host discovers for itself, that the page led on
rejected      ``rejected``: over for this run, no failure
failed        ``failed``: waits (doubling, jittered) and is pending again; dead after the attempts allowed
back          ``back``: pending again, nothing counted
============  ==========================================================================================

Of several requests of one item the gravest verdict holds: failed, then back, then done, then rejected.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any

import msgspec


class Verdict(IntEnum):
    """What became of one request of an item; the greatest counts."""

    REJECTED = 1
    DONE = 2
    BACK = 3
    FAILED = 4


class Hold(msgspec.Struct, eq=False):
    """This process's lease of one item.

    :param fence: the number of the grant; a later holder has a greater one. 0: the store, which is away, knows nothing
        of it yet; it is not settled before it does.
    :param epoch: of the session under which it was granted (see :class:`~scrapy_lease.leases.session.Session`).
    :param mark: ``auto``: an item; ``run``: marked for this run only; ``none``: not an item.
    """

    digest: bytes
    fence: int
    epoch: int
    slot: str
    mark: str
    payload: bytes
    attempts: int = 0
    deaths: int = 0
    #: Requests of this item that are with the engine or queued here for it.
    open: int = 0
    #: Requests its responses led to whose push is not answered yet.
    unsafe: int = 0
    #: Has it led to other items, in a crawl where each host discovers for itself?
    leads: bool = False
    #: Items its responses yielded.
    items: int = 0
    #: Fingerprints of its requests, once one of its responses asked for another.
    asked: set[str] | None = None
    verdict: Verdict | None = None
    reason: str = ""
    trace: str = ""
    #: Clock time (s) of the last progress: handed out, sent, answered, continued.
    progress: float = 0.0
    is_settled: bool = False
    #: The account as which its requests go; "": none yet.
    account: str = ""

    @property
    def is_over(self) -> bool:
        """Has every request of the item ended, and is everything it led to safe?"""
        return self.open == 0 and self.unsafe == 0 and self.verdict is not None

    @property
    def has_ended_well(self) -> bool:
        """Has its page been scraped, or refused, without a fault so far?"""
        return self.verdict in (Verdict.DONE, Verdict.REJECTED)

    def judge(self, verdict: Verdict, reason: str = "", trace: str = "") -> None:
        """Take in what became of one request of this item."""
        if self.verdict is None or verdict >= self.verdict:
            self.verdict, self.reason, self.trace = verdict, reason, trace

    def restart(self) -> None:
        """Forget what became of its requests: the item begins anew from its original request."""
        self.open = self.items = 0
        self.leads = False
        self.asked = None
        self.verdict, self.reason, self.trace = None, "", ""


class Look(Hold, eq=False):
    """A page that led to others and is another session's: this process fetches it without a lease, for its requests.

    No ledger has it, so nothing of it is settled. *attempts*: how often that failed here.
    """


@dataclass(frozen=True, slots=True)
class Patience:
    """What faults of an item cost.

    :param attempts: faults after which it is dead.
    :param backoff: first and longest wait, in s.
    """

    attempts: int
    backoff: tuple[float, float]

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after the *failures*-th fault."""
        first, longest = self.backoff
        return float(min(longest, first * 2.0 ** (failures - 1))) * random.uniform(0.75, 1.25)


class Settled(msgspec.Struct, frozen=True):
    """A hold on its way out, with the verb and arguments for the store."""

    hold: Hold
    verb: str
    args: tuple[Any, ...]


class Ledger:
    """All holds of this process, and those on their way out.

    :param patience: what faults cost.
    :param on_settled: called when something waits in :attr:`outbox`.
    """

    def __init__(self, patience: Patience, on_settled: Callable[[], None] = lambda: None) -> None:
        self.outbox: list[Settled] = []
        self.patience = patience
        self._on_settled = on_settled
        self._holds: dict[bytes, Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._holds.values())

    def __repr__(self) -> str:
        return f"<Ledger: {len(self._holds)} held, {len(self.outbox)} to be settled>"

    def add(self, hold: Hold) -> bool:
        """Note a grant; False: this item is held already (a reply that was repeated)."""
        if hold.digest in self._holds:
            return False
        self._holds[hold.digest] = hold
        return True

    def is_held(self, hold: Hold) -> bool:
        """Is *hold* still this process's, as far as it knows?"""
        return self._holds.get(hold.digest) is hold

    def has(self, digest: bytes) -> bool:
        """Does this process hold the item *digest*?"""
        return digest in self._holds

    @property
    def leased(self) -> list[Hold]:
        """The holds that the store knows of."""
        return [hold for hold in self._holds.values() if hold.fence]

    def unleased(self, limit: int) -> list[Hold]:
        """Return up to *limit* holds that the store knows nothing of, those held longest."""
        return list(islice((hold for hold in self._holds.values() if not hold.fence), limit))

    def child_queued(self, hold: Hold) -> None:
        """A response of the item led to another request: the item is not done before that one is safe."""
        hold.unsafe += 1

    def child_safe(self, hold: Hold) -> None:
        """The push of such a request was answered (or it turned into one of this item's own)."""
        hold.unsafe -= 1
        self.settle_if_over(hold)

    def request_ended(self, hold: Hold, verdict: Verdict, reason: str = "", trace: str = "", items: int = 0) -> None:
        """One request of the item has ended."""
        hold.open -= 1
        hold.items += items
        hold.judge(verdict, reason, trace)
        self.settle_if_over(hold)

    def settle_if_over(self, hold: Hold) -> None:
        """Put the hold into :attr:`outbox` if nothing of it is left to wait for."""
        if hold.is_over and hold.fence and not hold.is_settled and self.is_held(hold):
            self._leave(hold, *self._meaning(hold))

    def hand_back(self, hold: Hold, delay: float = 0.0) -> None:
        """Give the item back, nothing counted; *delay*: seconds before anybody may take it."""
        if self.is_held(hold):
            self._leave(hold, "back", (int(delay * 1000),))

    def bury(self, hold: Hold, reason: str, trace: str) -> None:
        """Send the item to the dead letters at once."""
        if self.is_held(hold):
            self._leave(hold, "dead", (reason, trace))

    def mark_sent(self, hold: Hold) -> None:
        """Say in the store, before it is true, that the item may have been sent; it stays held."""
        self.outbox.append(Settled(hold, "sent", ()))
        self._on_settled()

    def drop(self, hold: Hold) -> None:
        """Forget a hold that another session has taken over."""
        if self._holds.get(hold.digest) is hold:
            del self._holds[hold.digest]
            hold.is_settled = True

    def take_outbox(self, limit: int) -> list[Settled]:
        """Take up to *limit* of those on their way out."""
        batch, self.outbox = self.outbox[:limit], self.outbox[limit:]
        return batch

    def overdue(self, before: float) -> Iterable[Hold]:
        """Return holds with the engine whose last progress was before *before* (clock time, s)."""
        return [hold for hold in self._holds.values() if hold.open and hold.progress < before]

    def _meaning(self, hold: Hold) -> tuple[str, tuple[Any, ...]]:
        if hold.verdict is Verdict.FAILED:
            delay = self.patience.delay(hold.attempts + 1)
            return "failed", (int(delay * 1000), self.patience.attempts, hold.reason, hold.trace)
        if hold.verdict is Verdict.BACK:
            return "back", (0,)
        if hold.verdict is Verdict.REJECTED and not (hold.leads and hold.mark != "none"):
            return "rejected", ("none",) if hold.mark == "none" else ()
        if hold.mark == "none":
            return "done", ("none",)
        # A refused page whose errback led on is one that led on: each host must see where to.
        is_kept = bool(hold.items) and hold.mark == "auto"
        return "done", ("leads", is_kept) if hold.leads else ("keep" if is_kept else "run",)

    def _leave(self, hold: Hold, verb: str, args: tuple[Any, ...]) -> None:
        hold.is_settled = True
        del self._holds[hold.digest]
        self.outbox.append(Settled(hold, verb, args))
        self._on_settled()
