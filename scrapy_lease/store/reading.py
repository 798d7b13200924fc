"""What the store's records say, for people's tools: the one place outside the scripts that knows their encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

#: Priorities are kept in an order string as RANK_ZERO minus priority, followed by a sequence number.
RANK_ZERO = 32768
SEQUENCES = 10**11

_unpack = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item that is not over: a value of the hash ``state``.

    :param state: ``pending``, ``delayed`` or ``leased``.
    :param order: rank among its download slot, the least first; as a string of digits.
    :param mark: ``auto``, ``run`` or ``none`` as in :class:`~scrapy_lease.store.scripts.Entry`.
    :param session: who holds it, ``""`` unless leased.
    :param fence: of its lease, 0 unless leased.
    :param since: when it was leased, in s of the server's wall clock; 0 unless leased.
    :param sent: its holder said that a request of it was sent.
    """

    state: str
    slot: str
    priority: int
    order: str
    mark: str
    attempts: int
    deaths: int
    session: str
    fence: int
    since: int
    sent: bool


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """An item among the dead letters: a value of the hash ``dead``.

    :param at: when it died, in s of the server's wall clock.
    """

    reason: str
    trace: str
    attempts: int
    deaths: int
    at: int
    slot: str
    order: str


_STATES = {"P": "pending", "D": "delayed", "L": "leased"}


def read_record(data: bytes) -> ItemRecord:
    """Read a value of the hash ``state``."""
    state, slot, order, mark, attempts, deaths, session, fence, since, sent = _unpack(data)
    return ItemRecord(
        _STATES[state], slot, priority_of(order), order, mark, attempts, deaths, session, fence, since, bool(sent)
    )


def read_dead(data: bytes) -> DeadRecord:
    """Read a value of the hash ``dead``."""
    return DeadRecord(*_unpack(data))


def priority_of(order: str) -> int:
    """Return the priority that an order string was made from."""
    return RANK_ZERO - int(order) // SEQUENCES
