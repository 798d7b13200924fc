"""What the store's records say: the one place outside the Lua prelude that knows their encoding.

The hash ``state`` holds every item that is not over. Whether one is leased is told by the ``held`` hash of a session,
whether it is delayed by the sorted set ``delayed``; everything else is pending.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scrapy_lease.store.messages import Answer, Claim

#: An order is 16 digits: RANK_ZERO minus priority, followed by a sequence number of this many values.
RANK_ZERO = 32768
SEQUENCES = 10**11

_DIGEST = _ORDER = _FENCE = 16
_ANSWERS = {str(answer): answer for answer in Answer}
_MARKS = {"k": "auto", "t": "auto", "r": "run", "n": "none"}
_PLACE = 27

_unpack = msgspec.msgpack.Decoder(list[Any]).decode


class ItemRecord(msgspec.Struct, frozen=True, gc=False):
    """An item that is not over.

    :param state: ``pending``, ``delayed`` or ``leased``.
    :param order: rank among its download slot, the least first; 16 digits.
    :param mark: ``auto``, ``run`` or ``none`` as in :class:`~scrapy_lease.store.scripts.Entry`.
    :param is_timed: its mark counts for a time only.
    :param session: who holds it, ``""`` unless leased.
    :param fence: of its lease, 0 unless leased.
    :param since: when it was leased, in s of the server's wall clock; 0 unless leased.
    :param sent: its holder said that a request of it may have been sent.
    """

    slot: str
    order: str
    mark: str
    is_timed: bool
    attempts: int
    deaths: int
    payload: bytes
    state: str = "pending"
    session: str = ""
    fence: int = 0
    since: int = 0
    sent: bool = False

    @property
    def priority(self) -> int:
        """Of the request."""
        return priority_of(self.order)


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """An item among the dead letters: a value of the hash ``dead``; its request is in the hash ``payload``.

    :param at: when it died, in s of the server's wall clock.
    """

    reason: str
    trace: str
    attempts: int
    deaths: int
    at: int
    slot: str
    order: str


def read_claims(fence: bytes, reply: bytes, waits: Sequence[int], faults: Sequence[int]) -> list[Claim]:
    """Read the answer of ``claim.lua``."""
    waiting, number = iter(waits), int(fence)
    plain = {sign: Claim(answer, number if answer is Answer.GRANTED else 0) for sign, answer in _ANSWERS.items()}
    signs = reply.decode()
    claims = [plain[sign] if sign != "~" else Claim(Answer.WAITING, wait=next(waiting)) for sign in signs]
    for at in range(0, len(faults), 3):
        claims[faults[at] - 1] = Claim(Answer.GRANTED, number, faults[at + 1], faults[at + 2])
    return claims


def read_records(
    state: Mapping[bytes, bytes], held: Mapping[str, Mapping[bytes, bytes]], delayed: Container[bytes]
) -> dict[bytes, ItemRecord]:
    """Read fields of the hash ``state``.

    :param held: by session, at least those fields of its ``held`` hash that are among the items.
    :param delayed: at least those members of the set ``delayed`` that are.
    """
    leases = {digest: (lease, sid) for sid, fields in held.items() for digest, lease in fields.items()}
    return {
        digest: read_record(data, *leases.get(digest, (b"", "")), is_delayed=digest in delayed)
        for digest, data in state.items()
    }


def read_record(data: bytes, lease: bytes = b"", session: str = "", *, is_delayed: bool = False) -> ItemRecord:
    """Read a value of the hash ``state``.

    :param lease: the item's value in the ``held`` hash of *session*, if it is there.
    :param is_delayed: it is in the set ``delayed``.
    """
    code, end = chr(data[0]), _PLACE + int(data[23:_PLACE])
    slot, order, faults = data[_PLACE:end].decode(), data[7:23].decode(), (int(data[1:4]), int(data[4:7]))
    record = (slot, order, _MARKS[code], code == "t", *faults, data[end:])
    if not lease:
        return ItemRecord(*record, "delayed" if is_delayed else "pending")
    fence = int(lease[:_FENCE])
    return ItemRecord(*record, "leased", session, fence, since(fence), lease[_FENCE:] == b"S")


def read_dead(data: bytes) -> DeadRecord:
    """Read a value of the hash ``dead``."""
    return DeadRecord(*_unpack(data))


def read_ready(member: bytes) -> list[tuple[str, str, bytes]]:
    """Read a member of the sorted set ``ready``: slot, order and digest of each of its items."""
    slot, _, rest = member.partition(b"\0")
    first, digests = int(rest[:_ORDER]), rest[_ORDER:]
    return [
        (slot.decode(), f"{first + at // _DIGEST:016d}", digests[at : at + _DIGEST])
        for at in range(0, len(digests), _DIGEST)
    ]


def since(fence: int) -> int:
    """Return when *fence* was granted, in s of the server's wall clock: fences are its microseconds or later."""
    return fence // 1_000_000


def priority_of(order: str) -> int:
    """Return the priority that an order was made from."""
    return RANK_ZERO - int(order) // SEQUENCES
