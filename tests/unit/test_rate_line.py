"""Requests in a line for permits: what is wanted of which counter, and what they are said to wait for."""

from __future__ import annotations

import time

from scrapy_lease.leases.rates import Counter, CounterName, Limit, RateOptions
from scrapy_lease.leases.rates.slices import Slice
from scrapy_lease.rates.charges import Charge
from scrapy_lease.rates.line import demand_of, wait_of, waits_of
from scrapy_lease.rates.prices import Price


def counter_of(rule: str, permits: int = 0, *, full_for: float = 0.0) -> Counter:
    """A counter with permits at hand, or of which it is known that there are none for a while."""
    counter = Counter(CounterName(rule, rule, rule), Limit(10, 60_000), RateOptions(), 0, lambda: 1, time.monotonic)
    now = time.monotonic()
    if permits:
        counter.purse.add(Slice(0, 1, now + 60, permits))
    counter.lanes[0].full_until = now + full_for
    return counter


def charge_of(*needs: Counter, cost: int = 1, not_before: float = 0.0) -> Charge:
    charge = Charge()
    charge.change(Price(needs), cost)
    charge.not_before = not_before
    return charge


def test_all_dimensions_of_a_request_are_asked_together() -> None:
    """Each for what it costs; not for what may not be sent yet."""
    api, ip = counter_of("api"), counter_of("ip")
    later = charge_of(api, not_before=time.monotonic() + 60)
    rows = [(charge_of(api, ip, cost=2), 1), (charge_of(api), 3), (later, 5)]
    assert demand_of(rows) == {api: 5, ip: 2}


def test_what_waits_long_for_one_limit_asks_for_no_other() -> None:
    """It would keep permits from others that it cannot use; the limit that it waits for is asked when it opens."""
    api, ip = counter_of("api", full_for=30), counter_of("ip", full_for=0.2)
    assert demand_of([(charge_of(api, ip), 4)]) == {api: 4}
    assert demand_of([(charge_of(ip), 4)]) == {ip: 4}


def test_each_request_waits_for_what_opens_last() -> None:
    """Counted once, with the seconds until the first of them may go on; a paused site is a cause of its own."""
    api, ip = counter_of("api https://a.b/", full_for=30), counter_of("ip", 2, full_for=5)
    paused = charge_of(ip, not_before=time.monotonic() + 9)
    paused.is_paused = True
    elsewhere = charge_of(not_before=time.monotonic() + 7)
    waits = waits_of([(charge_of(ip), 2), (charge_of(api, ip), 3), (charge_of(ip), 1), (paused, 1), (elsewhere, 1)])
    assert {cause: (number, round(seconds)) for cause, (number, seconds) in waits.items()} == {
        "rate/api": (3, 30), "rate/ip": (2, 5), "site paused": (1, 9),
    }  # fmt: skip


def test_who_is_far_behind_waits_for_more_than_one_window() -> None:
    """What is ahead of it takes the permits of windows to come."""
    api = counter_of("api", 3, full_for=20)
    ahead = demand_of([(charge_of(api), 3)])
    assert 19 < wait_of(charge_of(api), ahead) <= 20
    ahead[api] += 10
    assert 79 < wait_of(charge_of(api), ahead) <= 80
