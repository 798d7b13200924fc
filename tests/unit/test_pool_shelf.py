"""The leases that a process has: which one serves whom, how many requests each carries, how they end."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.shelf import Lease, Shelf, Use
from scrapy_lease.leases.pool.shelf import Rest as Resting
from scrapy_lease.store.pool_scripts import Rest
from scrapy_lease.store.taking import View
from tests.unit.pool_parts import OTHER, SITE, Clock, granted, open_session


class Place:
    """A shelf, and the clock it looks at."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.session = open_session()
        self.shelf = Shelf(PoolOptions("default", **options), self.session, self.clock)

    def add(self, *names: str, **options: Any) -> list[Lease]:
        return [self.shelf.add(granted(name, **options), self.clock.now) for name in names]

    def find(self, site: str = SITE, sticky: str = "", avoid: frozenset[str] = frozenset()) -> str:
        """The id of what is found; "" for nothing."""
        lease = self.shelf.find(site, sticky, avoid)
        return lease.id if lease is not None else ""


def test_the_lease_used_last_is_used_first() -> None:
    """What is not needed stays idle, and so can be given back."""
    place = Place()
    one, other = place.add("a", "b")
    assert place.find() == "b"
    place.shelf.begin(other, SITE)
    assert place.find() == "a"
    place.shelf.begin(one, SITE)
    assert place.find() == ""
    place.shelf.end(other)
    place.shelf.end(one)
    assert place.find() == "a"


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_places(concurrency: int) -> None:
    """A lease is open until so many requests are on it, and again when one of them ends."""
    place = Place(concurrency=concurrency)
    (lease,) = place.add("a")
    for _ in range(concurrency):
        assert place.find() == "a"
        place.shelf.begin(lease, SITE)
    assert place.find() == ""
    assert not place.shelf.end(lease)
    assert place.find() == "a"


def test_reuse_ends_a_lease_with_its_last_request() -> None:
    """After the last request that may start on it, a lease is not open, and it ends when all on it have ended."""
    place = Place(concurrency=2, reuse=2)
    (lease,) = place.add("a")
    place.shelf.begin(lease, SITE)
    place.shelf.begin(lease, SITE)
    assert not place.shelf.end(lease)
    assert place.find() == ""
    assert place.shelf.end(lease)
    assert lease.farewell == ("back", (0,))


def test_avoided_ids_are_passed_over() -> None:
    """An id to be avoided is not found, whatever else there is."""
    place = Place()
    place.add("a", "b")
    assert place.find(avoid=frozenset("b")) == "a"
    assert place.find(avoid=frozenset("ab")) == ""


def test_rests_count_by_site() -> None:
    """A lease that rests for a site serves others; when the rest is over it serves one request there at a time."""
    place = Place(concurrency=3)
    (lease,) = place.add("a", rests={SITE: Rest(0, 1)})
    place.clock.now = 0
    lease.rests[SITE].until = float("inf")
    assert place.find() == ""
    assert place.find(OTHER) == "a"
    lease.rests[SITE].until = 0
    assert place.shelf.begin(lease, SITE)
    assert place.find() == ""
    assert place.find(OTHER) == "a"
    assert not place.shelf.begin(lease, OTHER)


def test_what_was_broken_carries_one_request() -> None:
    """The first use of what was broken is a probe: no other request starts beside it, at whatever site."""
    place = Place(concurrency=3)
    (lease,) = place.add("a", strikes=1)
    assert place.shelf.begin(lease, SITE)
    assert place.find(OTHER) == ""
    place.shelf.end(lease)
    assert place.find(OTHER) == "a"


@pytest.mark.parametrize(("life", "is_found"), [(None, True), (10.1, True), (10.0, False), (3.0, False)])
def test_margin(life: float | None, is_found: bool) -> None:
    """No request starts on a lease whose provider takes it back within the margin."""
    place = Place(margin=10.0)
    (lease,) = place.add("a", life=life)
    assert (place.find() == "a") == is_found
    assert place.shelf.is_ending(lease) != is_found
    place.clock.now += 1
    assert (place.find() == "a") == (life is None)


def test_a_sticky_key_has_its_lease() -> None:
    """A key has the lease that the store has tied it to, busy or not; none that it must avoid, and no other."""
    place = Place()
    one, other = place.add("a", "b")
    assert place.find(sticky="k") == ""
    place.shelf.ties.tie("k", "b", place.clock.now)
    assert place.find(sticky="k") == "b"
    place.shelf.begin(other, SITE, "k")
    assert place.find(sticky="k") == ""
    assert place.find() == "a"
    place.shelf.end(other)
    place.shelf.begin(one, SITE)
    place.shelf.end(one)
    assert place.find(sticky="k") == "b"
    assert place.find(sticky="k", avoid=frozenset("b")) == ""
    other.rests[SITE] = Resting(place.clock.now + 5, 1)
    assert place.find(sticky="k") == ""
    assert place.find(OTHER, sticky="k") == "b"
    place.shelf.remove(other)
    assert place.shelf.bound("k", OTHER) is None


def test_the_graver_end_counts() -> None:
    """What was to be given back and turns out to be broken is broken, and not the other way round."""
    place = Place()
    (lease,) = place.add("a")
    place.shelf.begin(lease, SITE)
    assert not place.shelf.part(lease, "back")
    assert not place.shelf.part(lease, "broken", (1, 2, 3))
    assert not place.shelf.part(lease, "back")
    assert lease.farewell == ("broken", (1, 2, 3))
    assert place.find() == ""
    assert place.shelf.end(lease)


def test_a_use_is_valid_while_its_lease_and_session_last() -> None:
    """A use ends being valid with its lease, with the loss of the session, and for good with the next session."""
    place = Place()
    one, other = place.add("a", "b")
    uses = [Use(lease, SITE, place.session.epoch, False) for lease in (one, other)]
    place.shelf.remove(one)
    assert [use.is_valid for use in uses] == [False, True]
    place.session.lose()
    assert not uses[1].is_valid
    place.session.is_lost = False
    place.session.epoch += 1
    assert not uses[1].is_valid


def test_a_new_lease_of_the_same_resource_replaces_the_old() -> None:
    """The store leased it anew, so the older lease is over; how the identity did is remembered.

    Of suspicions the store knows better: others may have had it meanwhile.
    """
    place = Place()
    (old,) = place.add("a")
    old.serves.add(SITE)
    old.suspects[OTHER] = "/x"
    (new,) = place.add("a", fence=2, views={SITE: View(None, "/y")})
    assert (old.is_held, new.is_held, len(place.shelf)) == (False, True, 1)
    assert (new.serves, new.suspects) == ({SITE}, {SITE: "/y"})
    place.shelf.remove(old)
    assert place.shelf.get("a") is new


@pytest.mark.parametrize(
    ("age", "has_served", "is_told"), [(None, False, False), (0, True, True), (1800, True, False), (3700, False, False)]
)
def test_what_others_had_served_counts_for_a_while(age: int | None, has_served: bool, is_told: bool) -> None:
    """For an hour; after a third of that it is told anew."""
    place = Place()
    (lease,) = place.add("a", views={SITE: View(None if age is None else age * 1000, "")})
    assert lease.has_served(SITE) == has_served
    assert (SITE in lease.told) == is_told
    assert not lease.serves


def test_what_is_remembered_is_bounded() -> None:
    """A process that has had any number of identities remembers the last thousand."""
    place = Place()
    (first,) = place.add("first")
    first.serves.add(SITE)
    place.shelf.remove(first)
    for number in range(1000):
        for lease in place.add(str(number)):
            place.shelf.remove(lease)
    assert place.add("first")[0].serves == set()
