"""No more is handed out than a download slot can send now; the counts of a slot always come back to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.core.downloader import Downloader
from scrapy.utils.test import get_crawler

from scrapy_lease.scheduler.slots import Slots
from tests.state.reactor import on_reactor

KEY = "site.example"


@contextmanager
def slots_of(**settings: Any) -> Iterator[Slots]:
    """Slots over Scrapy's real downloader."""
    crawler = get_crawler(settings_dict={"CONCURRENT_REQUESTS_PER_DOMAIN": 2, "DOWNLOAD_DELAY": 0, **settings})
    downloader = Downloader(crawler)
    crawler.engine = SimpleNamespace(downloader=downloader)  # type: ignore[assignment]
    try:
        yield Slots(crawler)
    finally:
        downloader.close()


def page(number: int = 0, **meta: Any) -> Request:
    return Request(f"http://{KEY}/{number}", meta=meta)


@on_reactor
async def test_without_a_delay_a_slot_sends_its_concurrency() -> None:
    """As many are out as may be sent at once, whether they have reached the handler or not."""
    with slots_of() as slots:
        first, second = page(1), page(2)
        for request in (first, second):
            assert slots.can_send(KEY)
            slots.handed_out(request)
        assert not slots.can_send(KEY)
        slots.sent(first)
        assert not slots.can_send(KEY), "what is being sent counts as well"
        slots.ended(first)
        assert slots.can_send(KEY)


@on_reactor
async def test_with_a_delay_one_waits_besides_those_being_sent() -> None:
    """Behind a delay a request would grow old with its lease: only one may wait for its time."""
    with slots_of(DOWNLOAD_DELAY=5) as slots:
        requests = [page(number) for number in range(3)]
        slots.handed_out(requests[0])
        assert not slots.can_send(KEY), "one waits for its time already"
        slots.sent(requests[0])
        assert slots.can_send(KEY)
        slots.handed_out(requests[1])
        assert not slots.can_send(KEY)
        slots.sent(requests[1])
        slots.handed_out(requests[2])
        slots.sent(requests[2])
        assert not slots.can_send(KEY), "three are being sent where two may be"


@on_reactor
async def test_a_request_that_is_never_sent_frees_its_place() -> None:
    """A page from the cache, or one that a middleware answers, ends without having been sent."""
    with slots_of(CONCURRENT_REQUESTS_PER_DOMAIN=1) as slots:
        for number in range(3):
            request = page(number)
            slots.handed_out(request)
            assert not slots.can_send(KEY)
            slots.ended(request)
            assert slots.can_send(KEY)


@on_reactor
async def test_slots_do_not_share_their_counts() -> None:
    """What is out for one host or named slot takes no place of another."""
    with slots_of(CONCURRENT_REQUESTS_PER_DOMAIN=1) as slots:
        slots.handed_out(page())
        assert slots.can_send("other.example")
        named = page(1, download_slot="named")
        assert slots.key_of(named) == "named"
        slots.handed_out(named)
        assert [slots.can_send(key) for key in (KEY, "named", "other.example")] == [False, False, True]


@on_reactor
async def test_whatever_is_told_twice_counts_once() -> None:
    """A request that is sent again within its chain, or whose end is told twice, moves the counts once."""
    with slots_of() as slots:
        first, second = page(1), page(2)
        slots.handed_out(first)
        slots.handed_out(second)
        for _ in range(2):
            slots.sent(first)
        for _ in range(2):
            slots.ended(first)
        slots.sent(first)
        assert slots.can_send(KEY)
        slots.handed_out(page(3))
        assert not slots.can_send(KEY)


@on_reactor
async def test_limits_are_those_of_the_slot() -> None:
    """DOWNLOAD_SLOTS holds before the slot exists; what AutoThrottle does to an existing one holds afterwards."""
    special = {KEY: {"concurrency": 1, "delay": 0}}
    with slots_of(DOWNLOAD_SLOTS=special, CONCURRENT_REQUESTS_PER_DOMAIN=8) as slots:
        request = page()
        slots.handed_out(request)
        assert not slots.can_send(KEY)
        _, live = slots._crawler.engine.downloader._get_slot(request)  # type: ignore[union-attr]
        live.concurrency = 3
        assert slots.can_send(KEY)
        live.delay = 1.0
        assert not slots.can_send(KEY)


@on_reactor
async def test_autothrottle_begins_with_its_start_delay() -> None:
    """Before the first response the delay is AUTOTHROTTLE_START_DELAY, so one request waits at most."""
    with slots_of(AUTOTHROTTLE_ENABLED=True, AUTOTHROTTLE_START_DELAY=5) as slots:
        slots.handed_out(page())
        assert not slots.can_send(KEY)


@on_reactor
@pytest.mark.parametrize("slot", ["a\0b", "a\1b", "\0\1ab"])
async def test_a_name_that_the_store_cannot_order_is_mended(slot: str) -> None:
    """The two characters that end a slot's name in the ready set are left out of it."""
    with slots_of() as slots:
        assert slots.key_of(page(download_slot=slot)) == "ab"


@on_reactor
async def test_the_name_is_the_one_that_scrapy_uses() -> None:
    """Whatever the URL looks like, and also the second time, when it is known."""
    schemes = ("http://", "https://", "HTTP://", "ftp://", "verylongscheme://", "s3://")
    rests = ("a/b/c", "b/b/c", "a.example:81/x/", "u:p@c/x/y", "[::1]:8/x", "d?q=/x", "d#/x", "e")
    urls = [f"{scheme}{rest}" for scheme in schemes for rest in rests]
    urls += ["http:///a/b", "httpx://f/g", "data:,a/b/c", "file:///a/b"]
    with slots_of() as slots:
        downloader = slots._crawler.engine.downloader
        requests = [Request(url, meta={"verbatim_url": True}) for url in urls]
        for _ in range(2):
            for request in requests:
                assert slots.key_of(request) == downloader.get_slot_key(Request(request.url)), request.url
        assert slots.key_of(page(download_slot="own")) == "own"


@on_reactor
async def test_a_downloader_that_names_slots_its_own_way_is_asked() -> None:
    """What it says of one request of a host does not go for another."""
    with slots_of() as slots:
        downloader = slots._crawler.engine.downloader
        downloader.get_slot_key = lambda request: request.url
        assert slots.key_of(page(1)) != slots.key_of(page(2))


@on_reactor
async def test_whoever_waits_for_room_is_told() -> None:
    """Each moment at which a slot may have become able to send is told, with the counts as they are then."""
    with slots_of(DOWNLOAD_DELAY=5) as slots:
        told: list[bool] = []
        slots.on_room = lambda: told.append(slots.can_send(KEY))
        request = page()
        slots.handed_out(request)
        slots.sent(request)
        slots.ended(request)
        slots.ended(request)
        assert told == [True, True]
