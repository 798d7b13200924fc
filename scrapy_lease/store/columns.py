"""How arguments of the scripts are packed: columns of equal length, one for each field of an entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from scrapy_lease.store.keys import Scope
from scrapy_lease.store.messages import Entry

pack = msgspec.msgpack.Encoder().encode


def raw(data: bytes) -> msgspec.Raw:
    """Return *data* as a msgpack string: the server's Lua library reads no binary type."""
    size = len(data)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + data)
    if size < 1 << 16:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + data)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + data)


def fence_text(fence: int) -> str:
    """Return *fence* as the store writes it."""
    return f"{fence:016d}"


def pack_strings(strings: Sequence[bytes]) -> bytes:
    """Return *strings* as a packed list that the scripts can read."""
    return pack([raw(string) for string in strings])


def code_of(entry: Entry) -> str:
    """Return how the store names the mark of *entry* (see the Lua prelude)."""
    if entry.mark == "auto":
        return "t" if entry.ttl else "k"
    return "r" if entry.mark == "run" else "n"


class Buckets:
    """The done buckets that one call names: each key once, entries refer to it by number."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._numbers: dict[int, int] = {}

    def number(self, digest: bytes) -> int:
        return self._numbers.setdefault(self._scope.bucket_of(digest), len(self._numbers) + 1)

    def keys(self) -> list[str]:
        return self._scope.buckets_of(self._numbers)


def columns_of(entries: Sequence[Entry], buckets: Buckets) -> tuple[Any, ...]:
    """Return *entries* as push and claim take them."""
    return (
        [raw(entry.digest) for entry in entries],
        [entry.slot for entry in entries],
        [entry.priority for entry in entries],
        [raw(entry.payload) for entry in entries],
        "".join(map(code_of, entries)),
        [0 if entry.mark == "none" else buckets.number(entry.digest) for entry in entries],
        [entry.ttl for entry in entries],
    )
