"""Requests that may have to wait for permits, first come first: what they want, what keeps them and for how long."""

from __future__ import annotations

import time
from collections import Counter as Bag
from collections.abc import Iterable, Sequence

from scrapy_lease.leases.rates import Counter
from scrapy_lease.rates.charges import Charge

#: What one request costs, and how many cost the same.
Row = tuple[Charge, int]
#: Cause -> requests that wait for it, seconds until some may go on.
Waits = dict[str, tuple[int, float]]

PAUSED = "site paused"
#: Seconds within which permits are of use, and asked for.
SOON = 0.5


def demand_of(rows: Iterable[Row]) -> Bag[Counter]:
    """Return the permits that are wanted of each counter.

    Not for those that may not be sent yet anyway: what waits long for one limit keeps no permits of another.
    """
    now = time.monotonic()
    demand: Bag[Counter] = Bag()
    asked: dict[tuple[Counter, ...], Sequence[Counter]] = {}
    for charge, number in rows:
        if charge.not_before > now:
            continue
        needs = charge.needs
        wanted = asked.get(needs)
        if wanted is None:
            wanted = asked[needs] = _asked(needs)
        for counter in wanted:
            demand[counter] += charge.cost * number
    return demand


def waits_of(rows: Iterable[Row]) -> Waits:
    """Return what requests wait for."""
    now, ahead, waits = time.monotonic(), Bag[Counter](), Waits()
    for charge, number in rows:
        found = _cause(charge, number, ahead, now)
        if found is not None:
            cause, seconds = found
            requests, first = waits.get(cause, (0, seconds))
            waits[cause] = requests + number, min(first, seconds)
    return waits


def wait_of(charge: Charge, ahead: Bag[Counter]) -> float:
    """Return the seconds for which a request waits behind *ahead* at least, and count it among these."""
    wait = charge.not_before - time.monotonic()
    for counter in charge.needs:
        missing = ahead[counter] + charge.cost - max(0, counter.purse.permits - counter.reserved)
        ahead[counter] += charge.cost
        if missing > 0:
            windows = (missing - 1) // counter.limit.permits
            wait = max(wait, counter.opens_in + windows * counter.limit.window / 1000)
    return wait


def _asked(needs: Sequence[Counter]) -> Sequence[Counter]:
    """Return the counters of which permits are of use soon."""
    waits = [0.0 if counter.has(1) else counter.opens_in for counter in needs]
    last = max(waits, default=0.0)
    return needs if last <= SOON else [needs[waits.index(last)]]


def _cause(charge: Charge, number: int, ahead: Bag[Counter], now: float) -> tuple[str, float] | None:
    """Return what a request waits for the longest, and for how many seconds at least; None: it need not wait."""
    if charge.not_before > now:
        # What is not paused waits for another address.
        return PAUSED if charge.is_paused else "rate/ip", charge.not_before - now
    found: tuple[float, str] | None = None
    for counter in charge.needs:
        if not counter.has(ahead[counter] + charge.cost):
            cause = counter.opens_in, f"rate/{counter.name.rule.partition(' ')[0]}"
            found = cause if found is None else max(found, cause)
        ahead[counter] += charge.cost * number
    return None if found is None else (found[1], found[0])
