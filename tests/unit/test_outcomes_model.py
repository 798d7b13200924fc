"""The rules that decide an outcome, without a crawl; the crawls are in `integration/test_outcomes.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_lease.middlewares.spider import OuterMiddleware
from scrapy_lease.outcomes import Tracker
from scrapy_lease.outcomes.decisions import TRACE_LINES, Kind, Seen, cancelled_outcome, download_outcome, tail


def deep(levels: int) -> None:
    if levels:
        deep_other(levels - 1)
    raise ValueError("at the bottom")


def deep_other(levels: int) -> None:
    deep(levels)


def caught(levels: int) -> ValueError:
    with pytest.raises(ValueError, match="at the bottom") as caught:
        deep(levels)
    return caught.value


def test_tail_is_short() -> None:
    """A traceback is cut to its last lines."""
    lines = tail(caught(60)).splitlines()
    assert len(lines) == TRACE_LINES
    assert lines[-1] == "ValueError: at the bottom"


def test_tail_is_bounded() -> None:
    """A message that holds a whole page is cut to its end."""
    trace = tail(ValueError("x" * 1_000_000 + "the end"))
    assert len(trace) < 10_000
    assert trace.endswith("the end")


@pytest.mark.parametrize("password", ["secret", "s@cret", "s:cr:et", "%2Fsecret"])
def test_tail_has_no_credentials(password: str) -> None:
    """The user and password of a URL in an error's text are blanked, the rest of the URL stays."""
    proxy = f"http://user:{password}@proxy.example:8080/"
    trace = tail(OSError(f"no way through {proxy} to http://site.example/a@b"))
    assert "no way through http://***@proxy.example:8080/ to http://site.example/a@b" in trace
    assert password not in trace


def test_download_error_blames_what_failed() -> None:
    """An exception is the target's fault while the request is out, a middleware's before and after."""
    seen = Seen(Request("http://site.example"))
    assert download_outcome(seen, OSError("reset")).reason == "middleware"
    seen.sent = True
    assert download_outcome(seen, OSError("reset")).reason == "target"


def test_cancelled_by_the_loop_costs_no_attempt() -> None:
    """A task that somebody cancels hands its request back; one that raises CancelledError has failed."""

    async def raise_it() -> None:
        raise asyncio.CancelledError

    async def main() -> tuple[Kind, Kind]:
        cancelled, raising = asyncio.create_task(asyncio.sleep(60)), asyncio.create_task(raise_it())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled, raising])
        return cancelled_outcome(cancelled, "middleware").kind, cancelled_outcome(raising, "middleware").kind

    assert asyncio.run(main()) == (Kind.BACK, Kind.FAILED)


async def consume_output(result: AsyncIterator[object]) -> None:
    middleware = OuterMiddleware(Tracker(frozenset()))
    async for _ in middleware.process_spider_output(Response("http://site.example"), result):
        pass


def test_output_task_can_be_cancelled() -> None:
    """A loop that shuts down can cancel the task that reads a spider's output: it is not made an error."""

    async def waits() -> AsyncIterator[object]:
        await asyncio.sleep(60)
        yield

    async def main() -> bool:
        task = asyncio.create_task(consume_output(waits()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_output_never_lets_cancelled_error_out() -> None:
    """A CancelledError that a callback raises by itself becomes an error that says what to do."""

    async def raises() -> AsyncIterator[object]:
        raise asyncio.CancelledError
        yield

    with pytest.raises(RuntimeError, match="catch it there"):
        asyncio.run(consume_output(raises()))
