"""The look-ahead of a host with its own queue: whom it asks for, when, and what it keeps aside."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import pytest
from scrapy import Request

from scrapy_lease.meta import digest_of
from scrapy_lease.scheduler.ahead import AGAIN, ASIDE, LOOK, Ahead, Candidate, own_order
from scrapy_lease.scheduler.own_queue import Known
from scrapy_lease.scheduler.unasked import Unasked
from scrapy_lease.store.messages import Entry

WINDOW = 4


class Deque:
    """A queue that gives the first first; what is put back comes last."""

    def __init__(self) -> None:
        self.requests: deque[tuple[Request, Known | None]] = deque()

    def put_back(self, request: Request, known: Known) -> None:
        self.requests.append((request, known))

    def take(self) -> tuple[Request, Known | None] | None:
        return self.requests.popleft() if self.requests else None


class Bench:
    """A look-ahead in the order of arrival, of requests whose slot is their host."""

    def __init__(self, *requests: Request, **options: Any) -> None:
        self.queue = Deque()
        self.arrived = 0
        self.ahead = Ahead(self.queue, self.consider, WINDOW, options.get("order", self.order))
        self.add(*requests)

    def add(self, *requests: Request) -> None:
        self.queue.requests.extend((request, None) for request in requests)

    def order(self, digest: bytes) -> int:
        self.arrived += 1
        return self.arrived

    def consider(self, request: Request, known: Known | None) -> Candidate | None:
        if "dropped" in request.url:
            return None
        slot = request.url.split("/")[2]
        entry = Entry(digest_of(request.url), slot, request.priority, b"", "auto")
        return Candidate(request, entry, known.times if known else 0)

    def ask(self, free: int = WINDOW, limit: int = 100, **rooms: int) -> list[Candidate]:
        self.ahead.fill()
        asks = self.ahead.ask(free, rooms, limit)
        assert all(isinstance(ask, Candidate) for ask in asks)
        return asks  # type: ignore[return-value]


def page(number: int, host: str = "a", **options: Any) -> Request:
    return Request(f"http://{host}/{number}", **options)


def numbers(asks: list[Candidate]) -> list[int]:
    """The numbers of the pages that are asked for."""
    return [int(ask.request.url.rpartition("/")[2]) for ask in asks]


def due(candidate: Candidate) -> None:
    """Let its time have come."""
    candidate.at = 0.0


def test_it_takes_no_more_than_it_needs() -> None:
    """Only some windows are taken out of the queue; what needs no lease is passed over."""
    bench = Bench(*(Request(f"http://dropped/{number}") for number in range(3)), *(page(n) for n in range(100)))
    bench.ahead.fill()
    assert len(bench.ahead) == WINDOW * LOOK
    assert len(bench.queue.requests) == 100 - WINDOW * LOOK
    bench.ahead.fill()
    assert len(bench.ahead) == WINDOW * LOOK


def test_many_that_need_no_lease_do_not_hold_the_reactor() -> None:
    """A queue full of what needs no lease is not emptied in one call."""
    bench = Bench(*(Request(f"http://dropped/{number}") for number in range(1000)))
    bench.ahead.fill()
    assert 0 < len(bench.queue.requests) < 1000


def test_the_order_is_that_of_priority_then_the_hosts_own() -> None:
    """Greater priority first; among equals the given order."""
    bench = Bench(page(1), page(2, priority=5), page(3), page(4, priority=-1), order=lambda digest: -digest[0])
    first, *others = bench.ask(free=8, a=8)
    assert numbers([first]) == [2]
    assert numbers(others[-1:]) == [4]
    middle = others[:-1]
    assert [ask.entry.digest[0] for ask in middle] == sorted((ask.entry.digest[0] for ask in middle), reverse=True)


def test_hosts_have_orders_of_their_own() -> None:
    """Two sessions order the same items each in its own way, and always in the same."""
    digests = [digest_of(str(number)) for number in range(100)]
    one, other = (sorted(digests, key=lambda digest: own_order(sid, digest)) for sid in ("one", "other"))
    assert one != other
    assert one == sorted(digests, key=lambda digest: own_order("one", digest))
    assert len(set(one[:50]) & set(other[:50])) < 45


@pytest.mark.parametrize(("free", "limit", "rooms", "asked"), [
    (4, 100, {"a": 4}, 4), (4, 2, {"a": 4}, 2), (0, 100, {}, 0), (4, 100, {"a": 1}, 1), (4, 100, {"a": 0}, 0),
    (4, 100, {}, 3), (1, 100, {}, 1),
])  # fmt: skip
def test_it_asks_for_what_the_window_has_room_for(free: int, limit: int, rooms: dict[str, int], asked: int) -> None:
    """Not more than is free, than one call may hold, or than a slot has room for: an unlisted one three quarters."""
    bench = Bench(*(page(number) for number in range(10)))
    assert len(bench.ask(free, limit, **rooms)) == asked
    assert len(bench.ahead) == 10


def test_a_full_slot_does_not_hide_another() -> None:
    """What has no room now stays new, and others behind it are asked for."""
    bench = Bench(*(page(number) for number in range(5)), page(9, "b"))
    assert numbers(bench.ask(a=1)) == [0, 9]
    assert numbers(bench.ask(a=2)) == [1, 2]


def test_what_is_aside_is_asked_for_when_its_time_has_come() -> None:
    """A contended item is asked for within a second, more and more rarely; one that waits, when its wait is over."""
    bench = Bench(page(1), page(2))
    contended, waiting = bench.ask(a=4)
    for turn in range(1, 20):
        before = time.monotonic()
        bench.ahead.put_aside(contended)
        assert contended.times == turn
        assert before + 0.8 * AGAIN[0] <= contended.at <= time.monotonic() + 1.0
    bench.ahead.put_aside(waiting, 30.0)
    assert bench.ask(a=4) == []
    soonest = bench.ahead.soonest()
    assert soonest is not None
    assert 0 < soonest <= 1.0
    due(contended)
    assert bench.ask(a=4) == [contended]
    assert 29 < (bench.ahead.soonest() or 0) <= 30
    due(waiting)
    assert bench.ahead.soonest() == 0.0


def test_nothing_aside_has_no_time() -> None:
    """Without anything aside there is no next time."""
    assert Bench(page(1)).ahead.soonest() is None


def test_those_aside_do_not_keep_it_from_new_ones() -> None:
    """However many are due again, new ones get half of what is asked for; without new ones the others get all."""
    bench = Bench(*(page(number) for number in range(WINDOW)))
    for candidate in bench.ask(a=WINDOW):
        bench.ahead.put_aside(candidate)
        due(candidate)
    bench.add(page(10), page(11), page(12))
    assert numbers(bench.ask(a=8)) == [0, 1, 10, 11]
    assert numbers(bench.ask(a=8)) == [2, 3, 12]
    assert numbers(bench.ask(a=8)) == []


def test_no_more_than_ten_windows_are_kept_aside() -> None:
    """The oldest of those aside go back into the queue with what is known of them, and come again behind new ones."""
    number = ASIDE * WINDOW + 5
    bench = Bench(*(page(n, priority=3) for n in range(number)))
    while asks := [ask for ask in bench.ask(free=2, a=2) if not ask.times]:
        for candidate in asks:
            bench.ahead.put_aside(candidate, 100.0)
    back = [(request.url, known) for request, known in bench.queue.requests]
    back += [(c.request.url, c.known) for c in bench.ahead if c.times and c.entry.digest not in bench.ahead._aside]
    assert len(bench.ahead._aside) == ASIDE * WINDOW
    assert sorted(url for url, _ in back) == sorted(f"http://a/{n}" for n in range(5))
    assert {known for _, known in back} == {Known(digest_of(url), "auto", 3, 1) for url, _ in back}
    bench.add(page(1000, priority=3))
    assert numbers(bench.ask(free=1, a=1)) == [1000]


def test_what_is_dropped_is_not_asked_for() -> None:
    """New, asked or aside: an item that is dropped is gone, and cannot be put aside any more."""
    bench = Bench(*(page(number) for number in range(6)))
    asked, aside = bench.ask(free=2, a=2)
    bench.ahead.put_aside(aside)
    due(aside)
    for url in ("http://a/0", "http://a/1", "http://a/3"):
        assert bench.ahead.drop(digest_of(url))
        assert not bench.ahead.drop(digest_of(url))
        assert digest_of(url) not in bench.ahead
    bench.ahead.put_aside(asked)
    assert numbers(bench.ask(free=6, a=6)) == [2, 4, 5]
    assert len(list(bench.ahead)) == 3


def test_what_was_held_here_is_asked_for_again() -> None:
    """An item that this process had is asked for after its wait, once however often it is added."""
    bench = Bench()
    candidate = bench.consider(page(1), Known(digest_of("x"), "auto", 0, 1))
    assert candidate is not None
    bench.ahead.add(candidate, 20.0)
    bench.ahead.add(candidate, 0.0)
    assert len(bench.ahead) == 1
    assert 19 < (bench.ahead.soonest() or 0) <= 20
    assert not bench.ahead.has_new


def test_what_has_no_answer_is_fetched_without_the_store() -> None:
    """Once each while the store is away, in its place; not what was answered, or was another's before it was asked."""
    bench = Bench(page(0), page(1), page(2), page(3, priority=1))
    asks = bench.ask(free=4, a=4)
    another, one, answered = asks[1:]
    another.times = 1
    bench.ahead.drop(answered.entry.digest)
    bench.add(page(9, priority=-1))
    taken: list[Candidate] = []
    unasked = Unasked(bench.ahead, lambda: asks, lambda ask: False, lambda c: bool(taken.append(c)), lambda hold: None)
    for _ in range(2):
        unasked.unleased(8, {"a": 8})
    assert numbers(taken) == [3, 1, 9]
    assert taken[1] is one
    assert list(bench.ahead) == [another]
    assert bench.ahead.soonest() is not None
    unasked.kept(everything=False)
    asks = [another]
    another.times = 0
    unasked.unleased(8, {"a": 8})
    assert taken[3:] == [another]
