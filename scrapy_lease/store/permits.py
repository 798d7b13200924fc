"""What the script that leases accounts is asked and answers besides: days, hours, permits, jars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scrapy_lease.store.columns import fence_text


class Terms(Protocol):
    """How the accounts of a pool may be used now; see :class:`scrapy_lease.leases.pool.purse.Terms`. Times in ms."""

    @property
    def holders(self) -> int: ...
    @property
    def quota(self) -> int: ...
    @property
    def interval(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def slice(self) -> int: ...
    @property
    def days(self) -> Sequence[int]: ...
    @property
    def open(self) -> Sequence[tuple[int, int]]: ...
    @property
    def more(self) -> Sequence[tuple[str, int]]: ...


@dataclass(frozen=True, slots=True)
class Permits:
    """So many uses of an account. Times in ms, from the call on.

    :param count: None: any number.
    :param start: until they may be used.
    :param left: until they are void, None: never.
    :param day: the day they are of, by its end; *used*: permits of it that the store has granted by now, to anybody.
    """

    count: int | None
    start: int
    left: int | None
    day: int
    used: int


@dataclass(frozen=True, slots=True)
class AccountReply:
    """What a take of accounts tells: ms until the hours of work (0: now), cold and benched ones, and those whose quota
    is used up; the permits of each lease that was given some; the jars of the leases that were granted."""

    shut: int = 0
    cold: int = 0
    benched: int = 0
    spent: int = 0
    permits: tuple[tuple[str, Permits], ...] = ()
    jars: tuple[bytes, ...] = ()


def ask_of(terms: Terms) -> dict[str, Any]:
    """Return *terms* as the script takes them."""
    return {
        "holders": terms.holders, "quota": terms.quota, "interval": terms.interval, "active": terms.active,
        "slice": terms.slice, "days": list(terms.days), "open": [list(window) for window in terms.open],
        "more": [(name, fence_text(fence)) for name, fence in terms.more],
    }  # fmt: skip


def read_reply(reply: Sequence[Any], now: int, wall: int) -> AccountReply:
    """Read what the script adds to its answer, made when the lease clock and the wall clock showed so many ms."""
    shut, cold, benched, spent, rows, jars = reply
    permits = tuple(
        (
            name.decode(),
            Permits(count if count >= 0 else None, max(0, start - now), ends - wall if ends else None, day, used),
        )
        for name, count, start, ends, day, used in rows
    )
    return AccountReply(shut, cold, benched, spent, permits, tuple(jar or b"" for jar in jars))
