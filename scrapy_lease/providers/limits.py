"""LEASE_PROXY_BUY_LIMIT, and how often a provider may be called: ``"400/minute"``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from scrapy_lease.leases.pool.supply import Limit

_UNITS = {"ms": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_LIMIT = re.compile(rf"([0-9]+)\s*(?:/|\bper\b)\s*(?:([0-9]+)\s*)?({'|'.join(_UNITS)})s?")
#: A longer window would end after everything that it counts is forgotten.
_LONGEST = 366 * _UNITS["day"]


def parse_limit(text: str, *, is_call: bool = False) -> Limit:
    """Read ``"400/minute"``, ``"400 per minute"`` or ``"400/5 minutes"``.

    :raises ValueError: it is none; the text says what is allowed.
    """
    found = _LIMIT.fullmatch(text.strip())
    most, window = (int(found[1]), int(found[2] or 1) * _UNITS[found[3]]) if found else (0, 0)
    if not most or not 0 < window <= _LONGEST:
        raise ValueError(f"{text[:40]!r} is no limit: write '400/minute'; units are {', '.join(_UNITS)}, up to a year")
    return Limit(most, window, is_call, text.strip())


def checked_buy_limit(value: str | Sequence[str] | None) -> tuple[Limit, ...]:
    """Read LEASE_PROXY_BUY_LIMIT: one limit, a list of them, or either as a string; of two for one window the lower.

    :raises ValueError: one is none; the text says which, and what is allowed.
    """
    if isinstance(value, str):
        value = _from_string(value.strip())
    if not isinstance(value, list | tuple | None) or not all(isinstance(text, str) for text in value or ()):
        raise ValueError('is no list of limits: write ["400/minute", "100000/day"]')
    strictest: dict[int, Limit] = {}
    for limit in map(parse_limit, value or ()):
        if limit.window not in strictest or limit.most < strictest[limit.window].most:
            strictest[limit.window] = limit
    return tuple(strictest.values())


def _from_string(text: str) -> Sequence[str]:
    if not text.startswith("["):
        return [part for part in re.split(r"\s*,\s*", text) if part]
    try:
        limits: Sequence[str] = json.loads(text)
    except ValueError:
        raise ValueError("begins like a JSON list and is none") from None
    return limits
