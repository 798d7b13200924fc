"""Requests that are held ready: which may start, what they want, and what those that were handed out take."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from scrapy_lease.pools.routing import ProxyRouter
from scrapy_lease.pools.waiting_room import WaitingRoom, name_in
from scrapy_lease.proxies.trips import Trip
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.stats import Stats

SETTINGS = LeaseSettings.from_mapping(
    {
        "LEASE_REDIS_URL": "redis://h",
        "LEASE_PROXY_POOLS": {"dc": {}, "resi": {}},
        "LEASE_PROXY_POOL": {"http://direct.example": False, "*": ["dc", "resi"]},
    }
)


class Keeper:
    """Pools with so many places, as far as the waiting room looks at them."""

    def __init__(self, **places: int) -> None:
        self.places = places
        self.dry: set[str] = set()
        #: Keys that are tied to a lease with one place.
        self.bound: set[str] = set()
        self.counted: list[tuple[str, str]] = []

    def has_room(self, name: str, site: str, key: str, coming: int, coming_of_key: int) -> bool:
        return coming_of_key < 1 if key in self.bound else self.places.get(name, 0) > coming

    def lacks(self, name: str, site: str, key: str) -> bool:
        return key not in self.bound

    def is_dry(self, name: str) -> bool:
        return name in self.dry

    def count(self, name: str, what: str) -> None:
        self.counted.append((name, what))


class Setup:
    def __init__(self, **places: int) -> None:
        self.keeper: Any = Keeper(**places)
        self.trips: WeakKeyDictionary[Request, Trip] = WeakKeyDictionary()
        self.room = WaitingRoom(ProxyRouter(SETTINGS.proxy_pool, SETTINGS.pools), self.trips, self.keeper)


def pages(number: int, **options: Any) -> list[Request]:
    return [Request(f"http://site.example/{page}", **options) for page in range(number)]


def test_what_was_handed_out_takes_a_place_before_it_comes() -> None:
    """Of a burst no more may start than there are proxies, though none has taken its own yet."""
    setup = Setup(dc=2)
    first, second, third = pages(3)
    for request in (first, second):
        assert setup.room.may_start(request)
        setup.room.handed_out(request)
    assert not setup.room.may_start(third)
    setup.room.left(first)
    assert setup.room.may_start(third)
    assert repr(setup.room) == "<WaitingRoom: 1 handed out>"
    setup.room.left(first)
    setup.room.left(second)
    assert repr(setup.room) == "<WaitingRoom: 0 handed out>"


def test_what_goes_directly_never_waits() -> None:
    """Neither does what will be refused: it is told where it comes for its proxy."""
    setup = Setup()
    for request in (
        Request("http://direct.example/"),
        Request("http://site.example/", meta={"lease_proxy": False}),
        Request("http://site.example/", meta={"lease_proxy": "no such pool"}),
    ):
        assert setup.room.may_start(request)
        setup.room.handed_out(request)
    assert repr(setup.room) == "<WaitingRoom: 0 handed out>"


def test_a_request_goes_to_the_pool_whose_turn_it_is() -> None:
    """After a ban it waits for the next of its pools, and stays with the last."""
    setup = Setup(dc=0, resi=1)
    (request,) = pages(1)
    assert not setup.room.may_start(request)
    setup.trips[request] = Trip()
    setup.trips[request].bans = 1
    assert setup.room.may_start(request)
    setup.trips[request].bans = 7
    assert name_in(("dc", "resi"), setup.trips[request]) == "resi"


def test_who_had_to_wait_is_counted_once() -> None:
    """When it is handed out at last, however often it was asked whether it may start."""
    setup = Setup(dc=0)
    (request,) = pages(1)
    for _ in range(3):
        assert not setup.room.may_start(request)
    setup.keeper.places["dc"] = 1
    assert setup.room.may_start(request)
    setup.room.handed_out(request)
    setup.room.left(request)
    setup.room.handed_out(request)
    assert setup.keeper.counted == [("dc", "waited")]


def test_what_waited_in_vain_is_told_once() -> None:
    """Only what was held up, and only while its pool serves nobody."""
    setup = Setup(dc=0)
    request, other = pages(2)
    assert not setup.room.may_start(request)
    assert not setup.room.is_hopeless(request)
    setup.keeper.dry.add("dc")
    assert not setup.room.is_hopeless(other)
    assert [setup.room.is_hopeless(request), setup.room.is_hopeless(request)] == [True, False]
    assert setup.keeper.counted == [("dc", "refused")]


def test_what_is_wanted_of_a_pool() -> None:
    """For each site, the requests held ready; what goes directly wants nothing."""
    setup = Setup()
    ready = [
        *pages(3),
        Request("http://direct.example/"),
        Request("http://else.example/", meta={"lease_proxy": "resi"}),
    ]
    setup.room.ready = lambda: ready
    assert setup.room.demand("dc") == {"site.example": 3}
    assert setup.room.demand("resi") == {"else.example": 1}


def test_what_has_a_key_counts_by_its_key() -> None:
    """All requests of a key want one proxy, none where it is here; as many may start as that one takes."""
    setup = Setup(dc=9)
    here, new = ([*pages(3, meta={"lease_sticky": key})] for key in ("here", "new"))
    setup.keeper.bound.add("key:here")
    setup.room.ready = lambda: [*here, *new, *pages(2)]
    assert setup.room.demand("dc") == {"site.example": 3}
    first, second, _ = here
    assert setup.room.may_start(first)
    setup.room.handed_out(first)
    assert not setup.room.may_start(second)
    assert setup.room.may_start(new[0])
    setup.room.left(first)
    assert setup.room.may_start(second)


def test_stats_of_a_pool() -> None:
    """They are counted by name, and by name with kind and pool; another name is none."""
    stats = Stats(get_crawler().stats)
    count = stats.of_pool("proxy", "dc")
    count("leased")
    count("refilled", 3)
    stats.count("proxy/leased/dc")
    stats.flush()
    assert (stats.get("proxy/leased/dc"), stats.get("proxy/refilled/dc")) == (2, 3)
    with pytest.raises(KeyError):
        count("lent")
    with pytest.raises(KeyError):
        stats.count("proxy/leased/resi")
