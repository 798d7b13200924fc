"""The parts of the guard: how a scheduler is led through it, what is put back, and who waits for a download slot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.guard.foreign import Foreign, known_of
from scrapy_lease.guard.rooms import Rooms
from scrapy_lease.scheduler.own_queue import Known
from scrapy_lease.scheduler.slots import Slots

URL = "http://site.example/"
KNOWN = Known(bytes(range(16)), "run", 7, 2)


class Listing:
    """A scheduler that keeps all it gets, and refuses what it is told to."""

    def __init__(self) -> None:
        self.kept: list[Request] = []
        self.refuses = False

    def enqueue_request(self, request: Request) -> bool:
        self.kept.append(request)
        return not self.refuses

    def next_request(self) -> Request | None:
        return self.kept.pop() if self.kept else None


class Stiff(Listing):
    """A scheduler whose objects take no attributes but their own."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("kept", "refuses"):
            raise AttributeError(name)
        super().__setattr__(name, value)


def led(scheduler: Any, enqueue: Callable[[Request], bool] = lambda request: False) -> Foreign:
    """*scheduler*, led: the engine's puts go to *enqueue*, and it is given nothing."""
    crawler = cast(Crawler, SimpleNamespace(engine=SimpleNamespace(scheduler=scheduler)))
    foreign = Foreign(crawler, enqueue, lambda: None)
    asyncio.run(foreign.open(cast(Any, None)))
    return foreign


def test_calls_are_led_and_released() -> None:
    """The engine's calls come to the guard, whose calls come to the scheduler; afterwards it is what it was."""
    scheduler, seen = Listing(), []
    foreign = led(scheduler, lambda request: bool(seen.append(request)))
    request = Request(URL)
    assert not scheduler.enqueue_request(request)
    assert seen == [request]
    assert foreign.put(request)
    assert scheduler.next_request() is None
    assert foreign.take_out() is request
    asyncio.run(foreign.close("finished", set()))
    assert set(vars(scheduler)) == {"kept", "refuses"}
    assert scheduler.enqueue_request(request)


def test_what_the_object_had_of_its_own_comes_back() -> None:
    """An attribute that somebody had put over a method is there again."""
    scheduler = Listing()
    scheduler.next_request = own = lambda: None  # type: ignore[method-assign]
    foreign = led(scheduler)
    assert scheduler.next_request is not own
    asyncio.run(foreign.close("finished", set()))
    assert scheduler.next_request is own


def test_a_scheduler_without_attributes_is_refused() -> None:
    """What cannot be guarded must not fetch: the error names the class and what to do."""
    with pytest.raises(SettingsError, match="Stiff cannot be guarded"):
        led(Stiff())


@pytest.mark.parametrize("dont_filter", [False, True])
def test_what_is_put_back_is_the_same_item(dont_filter: bool) -> None:
    """A request passes the duplicate filter on its way back, through JSON too, and comes out as it was."""
    scheduler = Listing()
    foreign = led(scheduler)
    request = Request(URL, dont_filter=dont_filter, meta={"mine": 1}, priority=7)
    foreign.put_back(request, KNOWN)
    (put,) = scheduler.kept
    assert put.dont_filter
    assert put.priority < 7
    back = Request(URL, dont_filter=True, meta=json.loads(json.dumps(put.meta)), priority=put.priority)
    assert known_of(back) == KNOWN
    assert (back.dont_filter, back.meta, back.priority) == (dont_filter, {"mine": 1}, 7)
    assert request.meta == {"mine": 1}


def test_what_was_never_put_back_is_not_touched() -> None:
    """Nothing is known of a new request."""
    request = Request(URL, dont_filter=True, meta={"mine": 1})
    assert known_of(request) is None
    assert request.dont_filter


@pytest.mark.parametrize("failing", ["refuses", "raises"])
def test_a_scheduler_that_takes_nothing_back(failing: str, caplog: pytest.LogCaptureFixture) -> None:
    """One ERROR for each request that is lost; the others are still put back."""
    scheduler = Listing()
    scheduler.refuses = True
    if failing == "raises":
        scheduler.enqueue_request = lambda request: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    led(scheduler).put_again(Request(URL))
    (record,) = caplog.records
    assert (record.levelname, "does not take" in record.getMessage()) == ("ERROR", True)


class OneRoom:
    """A download slot that sends one at a time."""

    def __init__(self) -> None:
        self.out: list[Request] = []
        self.is_shut = False

    key_of = staticmethod(lambda request: "slot")

    def can_send(self, key: str) -> bool:
        return not self.out

    def handed_out(self, request: Request) -> None:
        self.out.append(request)

    def rooms(self) -> Rooms:
        return Rooms(cast(Slots, self), lambda key: not self.is_shut)


async def entering(rooms: Rooms, number: int) -> tuple[list[Request], list[asyncio.Task[bool]]]:
    """Let so many requests enter."""
    requests = [Request(f"{URL}{at}") for at in range(number)]
    tasks = [asyncio.ensure_future(rooms.enter(request)) for request in requests]
    await asyncio.sleep(0)
    return requests, tasks


def test_rooms_are_given_in_order() -> None:
    """One goes when the slot can send; the next when that has ended, first come, first served."""

    async def run() -> None:
        slot = OneRoom()
        rooms = slot.rooms()
        requests, tasks = await entering(rooms, 3)
        for request in requests:
            assert slot.out == [request]
            slot.out.clear()
            rooms.admit()
        assert [await task for task in tasks] == [True, True, True]
        assert list(rooms) == []

    asyncio.run(run())


def test_rooms_wait_while_shut() -> None:
    """A slot that can send takes nobody while something else goes first, or nothing may be sent."""

    async def run() -> None:
        slot = OneRoom()
        slot.is_shut = True
        rooms = slot.rooms()
        requests, tasks = await entering(rooms, 1)
        rooms.admit()
        assert (slot.out, list(rooms)) == ([], requests)
        slot.is_shut = False
        rooms.admit()
        assert await tasks[0]

    asyncio.run(run())


def test_who_waits_is_let_go() -> None:
    """When the crawl closes nobody waits for a slot any more, and nothing is counted as handed out."""

    async def run() -> None:
        slot = OneRoom()
        rooms = slot.rooms()
        _, tasks = await entering(rooms, 3)
        rooms.let_go()
        assert [await task for task in tasks] == [True, False, False]
        assert len(slot.out) == 1

    asyncio.run(run())
