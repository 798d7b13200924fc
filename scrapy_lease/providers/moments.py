"""When a proxy ends, as providers write it."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

#: What a number may count: moments since the epoch, or time from now on.
EPOCHS = {"epoch": 1.0, "epoch_ms": 0.001}
SPANS = {"ms": 0.001, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
UNITS = ("iso", *EPOCHS, *SPANS)

_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
#: Numbers from here on are no spans, and from there on no seconds.
_EPOCH_FROM, _MILLISECONDS_FROM = 1e9, 1e11


def parse_timezone(name: str) -> tzinfo:
    """Return the time zone ``Europe/Berlin``, ``+08:00`` or ``UTC``; ValueError if there is none of that name."""
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(
            f"is {name[:40]!r}, which this host does not know: write Europe/Berlin, +08:00 or UTC"
        ) from None


def end_of(value: Any, unit: str, zone: tzinfo) -> tuple[float | None, float | None]:
    """Return (seconds since the epoch, None) or (None, seconds from now on); (None, None) if *value* says nothing.

    :param unit: one of :data:`UNITS`; "": found out from the value.
    :param zone: of times that name none.
    :raises ValueError: it is no time.
    """
    if value is None or value == "":
        return None, None
    number = None if unit == "iso" else _number(value)
    if number is None:
        return _iso(value, zone), None
    unit = unit or _unit_of(number)
    return (number * EPOCHS[unit], None) if unit in EPOCHS else (None, number * SPANS[unit])


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def _unit_of(number: float) -> str:
    if number >= _MILLISECONDS_FROM:
        return "epoch_ms"
    return "epoch" if number >= _EPOCH_FROM else "seconds"


def _iso(value: Any, zone: tzinfo) -> float:
    try:
        moment = datetime.fromisoformat(value.strip().replace("/", "-"))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
    except (AttributeError, ValueError, OverflowError):
        raise ValueError("has an end that is no time") from None
