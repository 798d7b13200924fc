"""What is asked of the store for those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.shelf import Rest, Shelf
from scrapy_lease.leases.pool.sites import Sites
from scrapy_lease.leases.pool.wants import Line, Waiter, asks_for
from tests.unit.pool_parts import Clock, granted, open_session


class Want:
    """A process with some leases, some waiters and some demand."""

    def __init__(self, leases: str = "", **options: Any) -> None:
        self.options = PoolOptions("default", **options)
        self.clock = Clock()
        self.shelf = Shelf(self.options, open_session(), self.clock)
        self.leases = [self.shelf.add(granted(name), self.clock.now) for name in leases]
        self.sites = Sites(self.clock)
        self.waiters: list[tuple[str, str]] = []

    def asks(self, demand: Mapping[str, int] = {}) -> dict[str, int]:
        async def ask() -> dict[str, int]:
            line = Line()
            for site, sticky in self.waiters:
                line.add(Waiter(site, sticky, frozenset()))
            return dict(asks_for(line, demand, self.shelf, self.sites, self.options))

        return asyncio.run(ask())


@pytest.mark.parametrize(
    ("concurrency", "demand", "asks"),
    [
        (1, {"a": 3, "b": 2}, {"a": 3, "b": 2}), (2, {"a": 3, "b": 2}, {"a": 2, "b": 1}),
        (10, {"a": 3, "b": 2}, {"a": 1}), (5, {"a": 5, "b": 1}, {"a": 1, "b": 1}), (3, {}, {}),
    ],
)  # fmt: skip
def test_as_many_leases_as_carry_the_requests(concurrency: int, demand: dict[str, int], asks: dict[str, int]) -> None:
    """Requests ÷ concurrency, rounded up once: a lease carries requests of any sites."""
    assert Want(concurrency=concurrency).asks(demand) == asks


def test_waiters_and_demand_add_up() -> None:
    """Who waits inside counts like who waits outside, and comes first."""
    want = Want(most=2)
    want.waiters = [("b", ""), ("b", "")]
    assert want.asks({"a": 3}) == {"b": 2}
    want = Want()
    want.waiters = [("b", "")]
    assert want.asks({"a": 3, "b": 1}) == {"b": 2, "a": 3}


def test_free_places_are_not_asked_for() -> None:
    """Places that are free here serve demand, each once, and only where their lease may."""
    want = Want("xy", concurrency=2)
    want.shelf.begin(want.leases[0], "a")
    assert want.asks({"a": 3}) == {}
    assert want.asks({"a": 2, "b": 2}) == {"b": 1}
    want.leases[1].rests["a"] = Rest(float("inf"), 1)
    assert want.asks({"a": 3}) == {"a": 1}


def test_a_place_that_only_probes_counts_once() -> None:
    """What was broken carries one request, whatever the concurrency."""
    want = Want("x", concurrency=4)
    want.leases[0].strikes = 1
    assert want.asks({"a": 2}) == {"a": 1}


def test_a_lease_about_to_end_has_no_place() -> None:
    """What has less life than the margin serves no demand."""
    want = Want("x")
    want.leases[0].until = want.clock.now
    assert want.asks({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(("most", "asked"), [(0, 9), (3, 1), (2, 0)])
def test_at_most_what_the_node_can_use(most: int, asked: int) -> None:
    """With a limit of its own, what the node has counts towards it, busy or not."""
    want = Want("xy", most=most)
    for lease in want.leases:
        want.shelf.begin(lease, "a")
    assert want.asks({"a": 9}).get("a", 0) == asked


def test_a_paused_site_is_not_asked_for() -> None:
    """It is asked for again when its pause should be over."""
    want = Want()
    want.sites.heard("a", 5)
    assert want.asks({"a": 3, "b": 1}) == {"b": 1}
    want.clock.now += 5
    assert want.asks({"a": 3, "b": 1}) == {"a": 3, "b": 1}


def test_who_waits_for_its_own_lease_needs_no_other() -> None:
    """A sticky request whose lease is here waits for that one; one that cannot have it asks like everybody."""
    want = Want("x")
    want.shelf.begin(want.leases[0], "a", "k")
    want.waiters = [("a", "k")]
    assert want.asks() == {}
    want.waiters = [("a", "other")]
    assert want.asks() == {"a": 1}
    want.waiters = [("a", "k")]
    want.leases[0].rests["a"] = Rest(float("inf"), 1)
    assert want.asks() == {"a": 1}
