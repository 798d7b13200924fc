"""Scrapy's scheduler as the queue of one host: what is put back comes out again as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_lease.scheduler.own_queue import LED, Known, OwnQueue

SETTINGS = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}


class Pages(Spider):
    name = "pages"


def spider() -> Pages:
    return Pages.from_crawler(get_crawler(Pages))


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], OwnQueue]:
    """Makes a queue; on disk always the same."""
    more = {"JOBDIR": str(tmp_path)} if request.param == "disk" else {}

    def make() -> OwnQueue:
        return OwnQueue.from_crawler(get_crawler(Pages, {**SETTINGS, **more}))

    return make


async def opened(queue: OwnQueue) -> OwnQueue:
    await queue.open(spider())
    return queue


def page(number: int, **options: Any) -> Request:
    return Request(f"http://site.example/{number}", **options)


@pytest_twisted.ensureDeferred
async def test_a_request_is_taken_in_once(make: Callable[[], OwnQueue]) -> None:
    """The duplicate filter counts for new requests, and not for what is put in again."""
    queue = await opened(make())
    assert queue.put(page(1))
    assert not queue.put(page(1))
    queue.put_again(page(1))
    assert len(queue) == 2
    assert not queue.put(page(1))
    assert [queue.take() is None for _ in range(3)] == [False, False, True]
    await queue.close("finished", set())


@pytest_twisted.ensureDeferred
async def test_what_is_known_of_a_request_comes_out_with_it(make: Callable[[], OwnQueue]) -> None:
    """Put back, it waits behind the others; its own priority is back when it is taken, and its meta is clean."""
    queue = await opened(make())
    known = Known(b"d" * 16, "run", 7, 3)
    queue.put_back(page(1, priority=7, dont_filter=True, meta={"a": 1}), known)
    queue.put(page(2, priority=5))
    taken = queue.take()
    assert taken is not None
    assert (taken[0].url, taken[1]) == ("http://site.example/2", None)
    again = queue.take()
    assert again is not None
    request, said = again
    assert (request.url, request.priority, request.meta, said) == ("http://site.example/1", 7, {"a": 1}, known)
    await queue.close("finished", set())


@pytest_twisted.ensureDeferred
async def test_what_is_known_of_a_new_request_stays_in_memory(make: Callable[[], OwnQueue]) -> None:
    """It comes out once, with its own request; on disk it would outlive the settings that it was found with."""
    queue = await opened(make())
    first, second = page(1), page(2)
    known = {url: Known(url.encode()[-1:] * 16, "auto", 0) for url in (first.url, second.url)}
    assert all(queue.put(request, known[request.url]) for request in (first, second))
    assert not queue.put(page(1), Known(b"x" * 16, "auto", 0))
    queue.put_again(first)
    taken = [queue.take() for _ in range(3)]
    said = [found[1] for found in taken if found is not None and found[1] is not None]
    assert sorted(said) == ([] if queue.is_persistent else sorted(known.values()))
    assert all(found is not None and found[1] in (None, known[found[0].url]) for found in taken)
    await queue.close("finished", set())


@pytest_twisted.ensureDeferred
async def test_each_time_it_waits_behind_more(make: Callable[[], OwnQueue]) -> None:
    """Of several that are put back the one that was asked for least often comes first, also where the last is first."""
    queue = await opened(make())
    for number, times in ((1, 2), (2, 4), (3, 1)):
        queue.put_back(page(number), Known(bytes([number]) * 16, "auto", 0, times))
    taken = [queue.take() for _ in range(3)]
    assert [found[1].digest[0] for found in taken if found is not None and found[1] is not None] == [3, 1, 2]
    await queue.close("finished", set())


@pytest_twisted.ensureDeferred
async def test_what_is_left_outlives_the_process(make: Callable[[], OwnQueue]) -> None:
    """With JOBDIR the queue, what is known, and the pages that led on are there again; once."""
    queue = await opened(make())
    known = Known(b"d" * 16, "run", 0, 1)
    queue.put_again(page(1), known)
    await queue.close("shutdown", {1, 2**64 - 1})
    later = make()
    led = await later.open(spider())
    if not queue.is_persistent:
        assert (len(later), led) == (0, set())
        return
    assert led == {1, 2**64 - 1}
    taken = later.take()
    assert taken is not None
    assert taken[1] == known
    # A process that is killed from here on leaves no queue, so what it saw must be seen again.
    third = make()
    assert await third.open(spider()) == set()
    await third.close("finished", set())
    await later.close("finished", set())


@pytest_twisted.ensureDeferred
async def test_without_jobdir_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue in memory leaves no file."""
    monkeypatch.chdir(tmp_path)
    crawler = get_crawler(Pages, SETTINGS)
    queue = await opened(OwnQueue.from_crawler(crawler))
    await queue.close("finished", {5})
    assert not queue.is_persistent
    assert not list(tmp_path.rglob(LED))
