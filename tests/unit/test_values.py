"""Values of meta, cb_kwargs and cookies: each comes back as exactly itself, or is refused."""

from __future__ import annotations

import enum
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_lease.payload.values import MAX_DEPTH, Refused, plain, plain_key, restore

SECONDS = st.integers(-23 * 3600, 23 * 3600).map(lambda seconds: timezone(timedelta(seconds=seconds)))
OFFSETS = st.none() | st.just(UTC) | SECONDS
KEY_ATOMS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
HASHABLE = (
    KEY_ATOMS
    | st.integers()
    | st.datetimes(timezones=OFFSETS)
    | st.dates()
    | st.times(timezones=OFFSETS)
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
KEYS = st.recursive(KEY_ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
VALUES = st.recursive(
    HASHABLE | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(HASHABLE, max_size=4)
        | st.frozensets(HASHABLE | st.tuples(HASHABLE), max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def there_and_back(value: object) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(plain(value)), ext_hook=restore)


def shape(value: object) -> object:
    """`value` with every type spelled out, so that 1, True and 1.0, or a list and a tuple, are told apart."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(shape(key), shape(part)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return kind, [shape(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return kind, sorted(map(repr, map(shape, value)))
    return kind, repr(value), getattr(value, "fold", None)


@given(VALUES)
def test_comes_back_as_itself(value: object) -> None:
    """A value that is kept has the same types and contents afterwards, at every depth."""
    assert shape(there_and_back(value)) == shape(value)


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        10**400,
        float("nan"),
        float("-inf"),
        -0.0,
        Decimal("sNaN123"),
        Decimal("-0E+7"),
        datetime(2026, 10, 25, 2, 30, fold=1),
        time(2, 30, fold=1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        date.max,
        timedelta.min,
        uuid.UUID(int=1),
        (),
        [()],
        {(1, ("a", b"b")): frozenset({(1, 2)})},
    ],
)
def test_edges_come_back(value: object) -> None:
    """Integers beyond 64 bits, odd floats, fold and nested tuples are kept exactly."""
    assert shape(there_and_back(value)) == shape(value)


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Colour.RED,
        Text("a"),
        namedtuple("Point", "x")(1),
        defaultdict(int),
        OrderedDict(a=1),
        range(3),
        memoryview(b"a"),
        1j,
        test_comes_back_as_itself,
        datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
        time(2, 30, tzinfo=timezone(timedelta(hours=1, microseconds=1))),
        {Text("a"): 1},
        {date(2026, 1, 1): 1},
        {2**64: 1},
        {1, Colour.RED.name, object},
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [{"a": (value,)}]], ids=["bare", "nested"])
def test_what_would_change_is_refused(value: object, wrap: object) -> None:
    """A type that would come back as another type, or not at all, is refused at any depth."""
    with pytest.raises(Refused):
        plain(wrap(value))


def test_refused_type_is_named() -> None:
    """The refusal says which type it met."""
    with pytest.raises(Refused, match=r"collections\.defaultdict"):
        plain([defaultdict(int)])


def test_depth_is_bounded() -> None:
    """A list that contains itself is refused; MAX_DEPTH containers inside each other are kept."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(Refused, match="contains itself"):
        plain(loop)
    deep: object = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert there_and_back(deep) == deep


def test_keys_keep_their_type() -> None:
    """1, "1" and b"1" stay three keys."""
    value = {1: "int", "1": "str", b"1": "bytes", (1,): "tuple", None: "none", 1.5: "float"}
    assert shape(there_and_back(value)) == shape(value)
    assert plain_key(("a", 1)) == ("a", 1)


@given(st.integers(-128, 127), st.binary())
def test_hostile_extension(code: int, data: bytes) -> None:
    """An extension that `plain` did not write gives a plain value or an ordinary error, nothing else."""
    try:
        value = restore(code, memoryview(data))
    except (ValueError, TypeError, ArithmeticError, IndexError, AttributeError):
        return
    assert type(value).__module__ in {"builtins", "datetime", "decimal", "uuid"}
