"""What is asked of the store for those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.shelf import Rest, Shelf
from scrapy_lease.leases.pool.sites import Sites
from scrapy_lease.leases.pool.ties import Tie
from scrapy_lease.leases.pool.wants import Asks, Line, Waiter, asks_for
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
        return dict(self.ask(demand).sites)

    def ask(self, demand: Mapping[str, int] = {}, **marks: bool) -> Asks:
        """What is asked for; *marks*: what is set of each waiter."""

        async def ask() -> Asks:
            line = Line()
            for site, sticky in self.waiters:
                waiter = Waiter(site, sticky, frozenset())
                for name, value in marks.items():
                    setattr(waiter, name, value)
                line.add(waiter)
            return asks_for(line, demand, self.shelf, self.sites, self.options)

        return asyncio.run(ask())

    def ties(self, **marks: bool) -> list[tuple[str, str]]:
        """Of each key that is asked for, which lease it is offered."""
        return [(tie.key, tie.offer) for tie in self.ask(**marks).ties]

    def tie(self, key: str, name: str) -> None:
        """The store has tied a key to what is here."""
        self.shelf.ties.tie(key, name, self.clock.now)


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
    """A sticky request whose lease is here waits for that one; the key of one that cannot have it is asked for."""
    want = Want("x")
    want.tie("k", "x")
    want.shelf.begin(want.leases[0], "a", "k")
    want.waiters = [("a", "k")]
    assert want.ask() == Asks([], [])
    want.waiters = [("a", "other")]
    assert want.ask() == Asks([("a", 0)], [Tie("other", "a")])
    want.waiters = [("a", "k")]
    want.leases[0].rests["a"] = Rest(float("inf"), 1)
    assert want.ask() == Asks([("a", 0)], [Tie("k", "a")])


def test_a_key_is_asked_for_once() -> None:
    """However many wait for it, at whatever sites; a paused site has none; others are counted as before."""
    want = Want(concurrency=2)
    want.waiters = [("a", "k"), ("b", "k"), ("a", "k"), ("a", ""), ("c", "l"), ("a", "m")]
    want.sites.heard("c", 5)
    asks = want.ask()
    assert asks.sites == [("a", 1)]
    assert [(tie.key, tie.site) for tie in asks.ties] == [("k", "a"), ("m", "a")]
    assert asks.wants == {"a", "a\0k", "a\0m"}


def test_new_keys_are_offered_free_places() -> None:
    """Each place once, and none that is spoken for; where there are more keys than places they are asked for only."""
    want = Want("xy", concurrency=2)
    want.tie("own", "x")
    want.shelf.begin(want.leases[1], "a")
    want.waiters = [("a", "own"), ("a", "k"), ("a", "l"), ("a", "m")]
    want.shelf.begin(want.leases[0], "a", "own")
    assert want.ties() == [("k", "y"), ("l", ""), ("m", "")]
    want.shelf.end(want.leases[0])
    assert want.ties() == [("k", "y"), ("l", "x"), ("m", "")]
    want.leases[1].rests["a"] = Rest(float("inf"), 1)
    assert want.ties() == [("k", "x"), ("l", ""), ("m", "")]


def test_one_key_at_a_time_waits_for_a_busy_lease() -> None:
    """Of those for which the store had nothing; so a node with one lease does not tie all its keys to that."""
    want = Want("xy")
    for lease in want.leases:
        want.shelf.begin(lease, "a")
    want.waiters = [("a", "k"), ("a", "l"), ("a", "m")]
    assert want.ties(is_tried=True) == [("k", "y"), ("l", "x"), ("m", "")]
    want.tie("k", "y")
    assert want.ties(is_tried=True) == [("l", "x"), ("m", "")]


def test_with_a_limit_keys_come_after_the_rest() -> None:
    """A node that may have no more leases asks only for keys that it can offer one."""
    want = Want("x", most=2)
    want.waiters = [("a", "k"), ("a", "l"), ("a", "m")]
    assert want.ties() == [("k", "x"), ("l", "")]
    want.waiters.append(("a", ""))
    assert want.ties() == [("k", "x")]


def test_at_most_so_many_keys_of_a_call() -> None:
    """What a call asks is bounded; who is known to wait for what others have comes last."""
    want = Want()
    want.waiters = [("a", f"k{number}") for number in range(150)]
    assert len(want.ties()) == 100
