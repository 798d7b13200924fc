"""What a node that goes on without the store finds, and where it finds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scrapy import Request

from scrapy_lease.backlog.lanes import Ask, Outgoing
from scrapy_lease.leases.items import Hold
from scrapy_lease.store.messages import Answer, Entry, Grant


class Found(Ask):
    """A request that this node came across.

    :param parent: the hold that is not done before it is safe.
    :param is_out: the engine has *request*, and goes on with it.
    """

    __slots__ = ("epoch", "hold", "is_out", "parent", "request")

    def __init__(self, entry: Entry, request: Request | None, parent: Hold | None, is_out: bool = False) -> None:
        super().__init__(entry)
        self.request = request
        self.parent = parent
        self.is_out = is_out
        self.hold: Hold
        #: Of the session that asks for it.
        self.epoch = 0

    def __repr__(self) -> str:
        return f"<Found {self.entry.digest.hex()}>"


class Source(Protocol):
    """Where a node finds what it may fetch without a lease."""

    def __len__(self) -> int:
        """Return how many requests wait here until the store is back."""

    def pushed(self, entry: Entry, *, is_new: bool) -> None:
        """Note that an item is in the store; *is_new*: it was not before."""

    def granted(self, grants: Sequence[Grant]) -> None:
        """Note that these items are leased here."""

    def unleased(self, free: int, rooms: dict[str, int]) -> list[Found]:
        """Take up to *free* requests, of each download slot in *rooms* no more than that."""

    def kept(self, everything: bool) -> list[Outgoing]:
        """Take what was found and is to be pushed instead; *everything*: also what the store had before it went."""

    def given_up(self, found: Found, answer: Answer) -> Outgoing | None:
        """An item that was granted here is another's, or over; return what is to be pushed all the same."""
