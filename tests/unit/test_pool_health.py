"""Whose fault is whose, of accounts; what the store is told of how they do."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.leases.pool.accounts import AccountOptions
from scrapy_lease.leases.pool.health import Health
from scrapy_lease.leases.pool.options import Judgement, PoolOptions
from scrapy_lease.leases.pool.shelf import Lease, Shelf, Use
from scrapy_lease.leases.session import Session
from tests.unit.pool_parts import SITE, Clock, granted, open_session


class Notebook:
    """A bench that notes what is said."""

    def __init__(self, shelf: Shelf) -> None:
        self.said: list[tuple[str, tuple[Any, ...]]] = []
        self.counts: list[str] = []
        self._shelf = shelf

    def say(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        self.said.append((verb, args))

    def part(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        self.said.append((verb, args))
        self._shelf.part(lease, verb, args)

    def count(self, what: str) -> None:
        self.counts.append(what)

    def results(self) -> str:
        """All results that were told."""
        return "".join(args[0] for verb, args in self.said if verb == "uses")


class Desk:
    """One account in use."""

    def __init__(self, session: Session, *, strikes: int = 0, **options: Any) -> None:
        self.clock = Clock()
        rules = AccountOptions(**options)
        self.shelf = Shelf(PoolOptions("default", concurrency=8, account=rules), session, self.clock)
        self.bench = Notebook(self.shelf)
        self.health = Health(rules, self.bench, self.clock)
        self.lease = self.shelf.add(granted("x", strikes=strikes), self.clock())
        self._session = session

    def judge(self, kind: Any, *, url: str = "u", **details: Any) -> str:
        """A use ends so."""
        use = Use(self.lease, SITE, self._session.epoch, self.shelf.begin(self.lease, SITE))
        sentence = self.health.judge(use, Judgement(kind, url, **details))
        self.shelf.end(self.lease)
        return sentence

    @property
    def farewell(self) -> tuple[str, tuple[Any, ...]] | None:
        return self.lease.farewell


@pytest.fixture(scope="module")
def session() -> Session:
    return open_session()


@pytest.fixture
def desk(session: Session) -> Desk:
    return Desk(session)


@pytest.mark.parametrize("kind", ["target", "hang", "broken", "expired", "unused", "back"])
def test_what_is_not_said_of_the_account_is_nobodys(desk: Desk, kind: str) -> None:
    """A 500 of the site, a proxy that is broken, a timeout: neither credited nor blamed."""
    for _ in range(30):
        desk.judge(kind)
    assert (desk.lease.health.results, desk.bench.said, desk.farewell) == ("", [], None)


def test_what_is_served_is_told_once_a_second(desk: Desk) -> None:
    """Uses cost no words of their own."""
    for _ in range(30):
        desk.judge("ok")
    desk.health.tell(desk.lease)
    assert desk.bench.results() == "+" * 30
    desk.judge("ok")
    desk.health.tell(desk.lease)
    assert len(desk.bench.said) == 1
    desk.clock.now += 1
    desk.health.tell(desk.lease)
    assert desk.bench.results() == "+" * 31


def test_a_failure_is_told_at_once(desk: Desk) -> None:
    """With what was served before it, in order: the store judges the rate."""
    desk.judge("ok")
    assert desk.judge("ban") == "again"
    assert desk.bench.results() == "+-"
    assert desk.farewell is None


def test_the_second_refusal_in_a_row_benches(desk: Desk) -> None:
    """Of another URL, with nothing served between: then it is the account."""
    desk.judge("ban", url="a")
    desk.judge("ban", url="a")
    assert desk.farewell is None
    desk.judge("ok")
    desk.judge("ban", url="b")
    assert desk.farewell is None
    desk.judge("ban", url="a")
    assert desk.farewell[0] == "demote"
    assert desk.bench.counts == ["demoted"]


def test_logged_out_twice_in_a_row_benches(desk: Desk) -> None:
    """The first asks for another login; a page that is served between makes it the first again."""
    assert desk.judge("logged_out") == "again"
    assert desk.lease.logouts == 1
    desk.judge("ok")
    assert desk.lease.logouts == 0
    desk.judge("logged_out")
    assert desk.judge("logged_out") == "again"
    assert desk.farewell[0] == "demote"
    assert desk.farewell[1][0] == "logged out"


def test_a_login_that_fails_benches_at_once(desk: Desk) -> None:
    """With what the handler said."""
    assert desk.judge("cold", why="login failed") == "again"
    assert desk.farewell[:1] == ("demote",)
    assert desk.farewell[1] == ("login failed", 60_000, 86_400_000, desk.farewell[1][3])


def test_a_site_that_asks_for_a_pause_is_obeyed(session: Session) -> None:
    """As long as it says, else for the cooldown; that is no failure."""
    told, untold = Desk(session), Desk(session, cooldown=30.0)
    told.judge("limited", retry_after=90)
    untold.judge("limited")
    assert (told.farewell, untold.farewell) == (("cool", (90_000,)), ("cool", (30_000,)))
    assert told.lease.health.results == ""
    assert told.bench.counts == ["cooled"]


def test_reset_headers_cool_after_a_page_that_was_served(desk: Desk) -> None:
    """The use counts as good, and the account rests until the reset."""
    assert desk.judge("ok", retry_after=12) == "pass"
    assert desk.farewell == ("cool", (12_000,))
    assert desk.lease.health.results == "+"


def test_what_was_under_way_changes_no_farewell(desk: Desk, session: Session) -> None:
    """The first verdict ends the lease; others that were in flight are no news."""
    uses = [Use(desk.lease, SITE, session.epoch, desk.shelf.begin(desk.lease, SITE)) for _ in range(3)]
    for use, kind, seconds in zip(uses, ("limited", "limited", "ban"), (5, 500, 0), strict=True):
        desk.health.judge(use, Judgement(kind, "u", seconds))
    assert desk.farewell == ("cool", (5000,))
    assert desk.bench.counts == ["cooled"]


def test_a_slow_answer_is_weighed_by_the_store(desk: Desk) -> None:
    """Above the limit it is told at once; at the limit it is an answer like others."""
    desk.judge("ok", seconds=2.0)
    assert desk.bench.said == []
    desk.judge("ok", seconds=2.001)
    assert desk.bench.said == [("slow", (SITE, 0, 2001, 60_000))]
    desk.clock.now += 0.5
    desk.health.tell(desk.lease, is_last=True)
    verb, args = desk.bench.said[-1]
    assert (verb, args[0], args[6]) == ("uses", "++", [SITE, 500, 2000])


def test_a_probe_that_is_served_ends_the_strikes(session: Session) -> None:
    """After a rest one use decides."""
    desk = Desk(session, strikes=2)
    desk.judge("ok")
    assert desk.bench.said[0] == ("ok", (SITE,))
    assert desk.lease.strikes == 0


def test_a_probe_that_is_refused_benches(session: Session) -> None:
    """The first refusal is enough then."""
    desk = Desk(session, strikes=2)
    desk.judge("ban")
    assert desk.farewell[0] == "demote"


def test_what_the_store_weighed(desk: Desk) -> None:
    """Found too bad or too slow, it goes back, once; spared, it stays."""
    desk.health.weighed(desk.lease, "uses", "=")
    desk.health.weighed(desk.lease, "uses", "+")
    assert desk.farewell is None
    desk.health.weighed(desk.lease, "slow", "!")
    desk.health.weighed(desk.lease, "uses", "!")
    assert desk.farewell == ("back", (0,))
    assert desk.bench.counts == ["cooled"]


def test_results_are_told_with_the_rules(session: Session) -> None:
    """How many are needed, and how many thousandths of them must be good."""
    desk = Desk(session, min_success=0.75, cooldown=5.0)
    desk.judge("ban")
    verb, args = desk.bench.said[0]
    assert (verb, args[:5]) == ("uses", ("-", 20, 750, 5000, 86_400_000))
