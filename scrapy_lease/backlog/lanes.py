"""What the backlog asks of and tells its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from scrapy_lease.leases.items import Hold, Settled
from scrapy_lease.store.messages import Claim, Entry, Grant, Standing


class Outgoing(msgspec.Struct, frozen=True):
    """A request on its way into the backlog; *parent*: the hold whose response led to it."""

    entry: Entry
    parent: Hold | None


@dataclass(slots=True, eq=False)
class Ask:
    """A named item that this node wants to lease."""

    entry: Entry


class Owner(Protocol):
    """Who uses the backlog: the scheduler."""

    def outgoing(self, limit: int) -> list[Outgoing]:
        """Return up to *limit* requests to be pushed."""

    def asking(self, limit: int) -> list[Ask]:
        """Return up to *limit* named items to be leased."""

    def claimed(self, asks: Sequence[Ask], claims: Sequence[Claim]) -> None:
        """What was asked for was answered, in the same order."""

    def wanted(self) -> tuple[int, dict[str, int]]:
        """Return how many leases are wanted, and the room of each download slot that has some."""

    def pushed(self, outgoing: Outgoing, reply: str) -> None:
        """The push of one request was answered: ``+``, ``=`` or ``.`` as in ``push.lua``."""

    def granted(self, grants: Sequence[Grant]) -> None:
        """These items are leased to this session now."""

    def settled(self, settled: Settled, reply: str) -> None:
        """A settlement was answered: ``+``, ``!`` or ``-`` as in ``settle.lua``."""

    def regained(self, holds: Sequence[Hold]) -> None:
        """The session was lost; these items are held again, under its new epoch."""

    def lost(self, holds: Sequence[Hold]) -> None:
        """These items are another session's now."""

    def stands(self, standing: Standing) -> None:
        """How the run stands, told after each turn."""

    def reclaimed(self, sid: str, moved: int) -> None:
        """*moved* items of session *sid*, which is over, are back in the backlog."""

    def refused(self, error: Exception) -> None:
        """The store will never do what this crawl needs."""
