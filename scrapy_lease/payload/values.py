"""What a value of ``meta``, ``cb_kwargs`` or ``cookies`` may be, and how it travels.

MessagePack alone turns a tuple into a list, a set into a list, a ``Decimal`` into a string and an enum into
its value. Here a type either comes back as exactly itself or is refused when it is written: `plain` raises
`Refused`, nothing is converted silently.

Kept: None, bool, int, float, str, bytes, bytearray, list, dict, tuple, set, frozenset, datetime and time
(naive or with an unnamed fixed offset), date, timedelta, Decimal, UUID. Refused: subclasses of these (enums,
named tuples, ``defaultdict``), named time zones and everything else, because bringing them back would mean to
import or call what a payload names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from types import NoneType
from typing import Any

import msgspec

MAX_DEPTH = 64
"""Containers inside containers beyond this many are refused, which also catches one that contains itself."""

ATOMS = frozenset({str, bool, NoneType, float, bytes})
"""Types that MessagePack keeps as they are; `int` is not among them because it has a range."""

_KEY_ATOMS = ATOMS | {int}
_INT_RANGE = range(-(2**63), 2**64)

_encode = msgspec.msgpack.Encoder().encode
_Ext = msgspec.msgpack.Ext

_TUPLE, _SET, _FROZENSET, _BYTEARRAY, _INT, _DECIMAL, _UUID = range(1, 8)
_DATETIME, _DATE, _TIME, _TIMEDELTA = range(8, 12)


class Refused(Exception):
    """A value that would not come back as it is; the text says which type and why."""


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value` in the form that `msgspec` writes without losing its type.

    Raises `Refused` for a type that is not kept.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    writer = _WRITERS.get(kind)
    if writer is None:
        raise Refused(f"holds a {kind.__module__}.{kind.__qualname__}, which cannot be stored")
    if depth > MAX_DEPTH:
        raise Refused(f"is nested more than {MAX_DEPTH} deep or contains itself")
    return writer(value, depth + 1)


def plain_key(key: Any) -> Any:
    """Return a dict key as `plain` does for values; tuples of plain keys are the only containers."""
    if type(key) is tuple:
        return tuple(plain_key(part) for part in key)
    if type(key) not in _KEY_ATOMS or (type(key) is int and key not in _INT_RANGE):
        raise Refused(f"holds a dict key of type {type(key).__qualname__}, which cannot be stored")
    return key


def restore(code: int, data: memoryview) -> Any:
    """Bring back a value that `plain` wrote as an extension. Raises ValueError for an unknown code."""
    reader = _READERS.get(code)
    if reader is None:
        raise ValueError(f"unknown value type {code}")
    return reader(bytes(data))


_decode = msgspec.msgpack.Decoder(ext_hook=restore).decode


def _write_int(value: int, depth: int) -> Any:
    if value in _INT_RANGE:
        return value
    size = value.bit_length() // 8 + 1
    return _Ext(_INT, value.to_bytes(size, "big", signed=True))


def _write_list(value: list[Any], depth: int) -> Any:
    return [plain(part, depth) for part in value]


def _write_dict(value: dict[Any, Any], depth: int) -> Any:
    return {plain_key(key): plain(part, depth) for key, part in value.items()}


def _sequence_writer(code: int) -> Callable[[Any, int], Any]:
    def write(value: Any, depth: int) -> Any:
        return _Ext(code, _encode([plain(part, depth) for part in value]))

    return write


def _text_writer(code: int) -> Callable[[Any, int], Any]:
    def write(value: Any, depth: int) -> Any:
        return _Ext(code, str(value).encode())

    return write


def _clock_writer(code: int) -> Callable[[Any, int], Any]:
    def write(value: datetime | time, depth: int) -> Any:
        if value.tzinfo is not None and not _is_plain_offset(value.tzinfo):
            raise Refused(f"holds a time with the zone {value.tzinfo!r}; use UTC or another plain offset")
        return _Ext(code, f"{value.fold}{value.isoformat()}".encode())

    return write


def _is_plain_offset(zone: tzinfo) -> bool:
    # Of an offset below a second, fromisoformat makes UTC.
    if type(zone) is not timezone or zone.utcoffset(None).microseconds:
        return False
    return zone.tzname(None) == timezone(zone.utcoffset(None)).tzname(None)


def _write_timedelta(value: timedelta, depth: int) -> Any:
    return _Ext(_TIMEDELTA, _encode((value.days, value.seconds, value.microseconds)))


def _read_datetime(data: bytes) -> datetime:
    text = data.decode()
    return datetime.fromisoformat(text[1:]).replace(fold=int(text[0]))


def _read_time(data: bytes) -> time:
    text = data.decode()
    return time.fromisoformat(text[1:]).replace(fold=int(text[0]))


_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    int: _write_int,
    list: _write_list,
    dict: _write_dict,
    tuple: _sequence_writer(_TUPLE),
    set: _sequence_writer(_SET),
    frozenset: _sequence_writer(_FROZENSET),
    datetime: _clock_writer(_DATETIME),
    date: _text_writer(_DATE),
    time: _clock_writer(_TIME),
    timedelta: _write_timedelta,
    Decimal: _text_writer(_DECIMAL),
    uuid.UUID: _text_writer(_UUID),
    bytearray: lambda value, depth: _Ext(_BYTEARRAY, bytes(value)),
}

_READERS: dict[int, Callable[[bytes], Any]] = {
    _TUPLE: lambda data: tuple(_decode(data)),
    _SET: lambda data: set(_decode(data)),
    _FROZENSET: lambda data: frozenset(_decode(data)),
    _DATETIME: _read_datetime,
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _TIME: _read_time,
    _TIMEDELTA: lambda data: timedelta(*_decode(data)),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: uuid.UUID(data.decode()),
    _INT: lambda data: int.from_bytes(data, "big", signed=True),
    _BYTEARRAY: bytearray,
}
