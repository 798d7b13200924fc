"""Sticky keys as a process knows them: what they are tied to, for how long, and when the store is told of their use."""

from __future__ import annotations

from typing import Any

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.ties import Tie, Ties
from tests.unit.pool_parts import Clock


class Place:
    """Ties, and the clock they look at."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.ties = Ties(PoolOptions("default", **options), self.clock)

    def tie(self, key: str, id_: str) -> None:
        self.ties.tie(key, id_, self.clock.now)


def test_a_key_is_tied_to_one_lease() -> None:
    """The word of the store that came last counts; with its lease a key loses what it was tied to."""
    place = Place()
    place.tie("k", "a")
    place.tie("l", "a")
    place.tie("k", "b")
    assert (place.ties.id_of("k"), place.ties.id_of("l"), place.ties.id_of("m")) == ("b", "a", "")
    place.ties.leave("a")
    place.ties.leave("a")
    assert (place.ties.id_of("k"), place.ties.id_of("l"), len(place.ties)) == ("b", "", 1)
    place.ties.untie("k")
    assert repr(place.ties) == "<Ties of 0 keys to 0 leases>"


def test_a_tie_ends_where_the_store_forgets_it() -> None:
    """What was not used for so long may be tied to something else by now: the store is asked again."""
    place = Place(sticky_ttl=100.0)
    place.tie("k", "a")
    place.clock.now += 99.9
    assert place.ties.id_of("k") == "a"
    place.clock.now += 0.1
    assert place.ties.id_of("k") == ""
    assert len(place.ties) == 0


def test_use_is_told_once_a_minute() -> None:
    """However often a key is used; a key that is not used is not told of."""
    place = Place()
    place.tie("k", "a")
    place.tie("idle", "a")
    for _ in range(60):
        place.ties.use("k")
        assert place.ties.to_tell() == []
        place.clock.now += 1
    place.ties.use("k")
    place.ties.use("k")
    place.ties.use("unknown")
    assert place.ties.to_tell() == [Tie("k", None, "a")]
    assert place.ties.to_tell() == []
    place.tie("k", "a")
    place.ties.use("k")
    assert place.ties.to_tell() == []


def test_a_short_tie_is_told_of_in_time() -> None:
    """With a time to live below two minutes, after half of it."""
    place = Place(sticky_ttl=10.0)
    place.tie("k", "a")
    place.clock.now += 5
    place.ties.use("k")
    assert place.ties.to_tell() == [Tie("k", None, "a")]


def test_after_a_report_all_are_told_of() -> None:
    """A server may have lost them; some hundreds a call, and none whose lease is over by then."""
    place = Place()
    for number in range(700):
        place.tie(f"k{number}", "a" if number else "b")
    place.ties.confirm_all()
    place.ties.leave("b")
    assert [len(place.ties.to_tell()) for _ in range(3)] == [500, 199, 0]
