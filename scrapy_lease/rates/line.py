"""Requests that may have to wait for permits, first come first: what they want, what keeps them and for how long."""

from __future__ import annotations

import time
from collections import Counter as Bag
from collections.abc import Iterable

from scrapy_lease.leases.rates import Counter
from scrapy_lease.rates.charges import Charge

#: What one request costs, and how many cost the same.
Row = tuple[Charge, int]
#: Cause -> requests that wait for it, seconds until some may go on.
Waits = dict[str, tuple[int, float]]

PAUSED = "site paused"


def demand_of(rows: Iterable[Row]) -> Bag[Counter]:
    """Return the permits that are wanted of each counter; not for those that may not be sent yet anyway."""
    now = time.monotonic()
    demand: Bag[Counter] = Bag()
    for charge, number in rows:
        for counter in charge.needs if charge.not_before <= now else ():
            demand[counter] += charge.cost * number
    return demand


def waits_of(rows: Iterable[Row]) -> Waits:
    """Return what requests wait for."""
    now, ahead, waits = time.monotonic(), Bag[Counter](), Waits()
    for charge, number in rows:
        for cause, seconds in _causes(charge, number, ahead, now).items():
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


def _causes(charge: Charge, number: int, ahead: Bag[Counter], now: float) -> dict[str, float]:
    if charge.not_before > now:
        # What is not paused waits for another address.
        return {PAUSED if charge.is_paused else "rate/ip": charge.not_before - now}
    causes: dict[str, float] = {}
    for counter in charge.needs:
        if not counter.has(ahead[counter] + charge.cost):
            cause = f"rate/{counter.name.rule.partition(' ')[0]}"
            causes[cause] = max(causes.get(cause, 0.0), counter.opens_in)
        ahead[counter] += charge.cost * number
    return causes
