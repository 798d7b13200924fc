"""What can become of a handed-out request, and the rules that decide it from what was seen.

Nothing here touches Scrapy's machinery: `outcomes.Tracker` fills in `Seen`, the functions below judge it.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from enum import StrEnum
from typing import Any

import msgspec
from scrapy import Request
from scrapy.exceptions import IgnoreRequest, NotSupported
from scrapy.http import Response

TRACE_LINES = 20
_TRACE_CHARACTERS = 4000
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s/]+@")


class Kind(StrEnum):
    """How the way of a handed-out request ended."""

    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"
    BACK = "back"
    CONTINUES = "continues"


class Outcome(msgspec.Struct, frozen=True):
    """What became of one handed-out request.

    `reason` is one word:

    - REJECTED: `status` (HttpError refused it), `ignored` (IgnoreRequest of a middleware: robots, too many
      redirects);
    - FAILED: `target` (download error, or a retry code after all retries), `middleware`, `callback`,
      `pipeline` (an exception there), `manual` (nobody called `Tracker.complete`);
    - BACK, no fault of the request: `closed` (CloseSpider), `stale` (output was dropped), `cancelled` (its
      task was).

    `trace`: for FAILED, the tail of the traceback or a line in its place; credentials in URLs are blanked.
    `items`: items that went to the item pipelines. `next_request`: for CONTINUES, the request that takes
    over.
    """

    kind: Kind
    reason: str = ""
    trace: str = ""
    items: int = 0
    next_request: Request | None = None


class Seen(msgspec.Struct, eq=False):
    """What has been seen of one handed-out request so far."""

    request: Request
    chain: asyncio.Task[Any] | None = None
    sent: bool = False
    response: Response | None = None
    scraping: bool = False
    accepted: bool = False
    raised: type[BaseException] | None = None
    closing: bool = False
    error: Outcome | None = None
    exhausted: bool = False
    stale: bool = False
    items: int = 0
    settled: int = 0
    pipeline_trace: str | None = None
    completed: bool = False


def download_outcome(seen: Seen, error: BaseException) -> Outcome:
    """Judge the exception with which a downloader-middleware chain ended."""
    if isinstance(error, IgnoreRequest):
        return Outcome(Kind.REJECTED, "ignored")
    # No handler gets what none of them supports.
    is_target = seen.sent or isinstance(error, NotSupported)
    return Outcome(Kind.FAILED, "target" if is_target else "middleware", tail(error))


def cancelled_outcome(task: asyncio.Task[Any], culprit: str) -> Outcome:
    """Judge a task that ended cancelled: by its loop, or by a CancelledError that `culprit` raised."""
    # A loop that shuts down cancels its tasks: no fault of the request.
    if task.cancelling():
        return Outcome(Kind.BACK, "cancelled")
    return Outcome(Kind.FAILED, culprit, "asyncio.CancelledError")


def scrape_outcome(seen: Seen, task: asyncio.Task[Any], retry_codes: frozenset[int], done_when: str) -> Outcome:
    """Judge a scrape whose task has ended; the number of its items is left out."""
    if seen.stale:
        return Outcome(Kind.BACK, "stale")
    if task.cancelled():
        return cancelled_outcome(task, "callback")
    if seen.error is not None:
        return seen.error
    if not seen.exhausted:
        return _unfinished_outcome(seen)
    if not seen.accepted:
        return _refused_outcome(seen, retry_codes)
    return _finished_outcome(seen, done_when)


def error_outcome(seen: Seen, error: BaseException | None) -> Outcome:
    """Judge an error that Scrapy reported while scraping."""
    if seen.accepted:
        from_callback = seen.raised is not None
    else:
        if isinstance(error, IgnoreRequest):
            return Outcome(Kind.REJECTED, "ignored")
        from_callback = seen.request.errback is not None
    return Outcome(Kind.FAILED, "callback" if from_callback else "middleware", tail(error))


def _unfinished_outcome(seen: Seen) -> Outcome:
    if seen.closing:
        return Outcome(Kind.BACK, "closed")
    # An error that Scrapy could not report, or a CloseSpider of another middleware's
    # process_spider_exception. To hand it back without an attempt could repeat it for ever.
    raised = seen.raised.__name__ if seen.raised else "an error"
    return Outcome(Kind.FAILED, "callback", f"Scrapy did not report {raised}")


def _refused_outcome(seen: Seen, retry_codes: frozenset[int]) -> Outcome:
    assert seen.response is not None
    status = seen.response.status
    success = 200 <= status < 300
    # An errback that accepts the refusal hides its type; HttpError refuses no success.
    ignored = not success if seen.raised is None else issubclass(seen.raised, IgnoreRequest)
    if not ignored:
        return Outcome(Kind.FAILED, "middleware", "process_spider_input refused the response")
    if status in retry_codes:
        return Outcome(Kind.FAILED, "target", f"HTTP status {status} after all retries")
    return Outcome(Kind.REJECTED, "ignored" if success else "status")


def _finished_outcome(seen: Seen, done_when: str) -> Outcome:
    if done_when == "response" or seen.completed:
        return Outcome(Kind.DONE)
    if seen.pipeline_trace is not None:
        return Outcome(Kind.FAILED, "pipeline", seen.pipeline_trace)
    if seen.settled < seen.items:
        # The only end of an item that sends no signal.
        return Outcome(Kind.FAILED, "pipeline", "asyncio.CancelledError")
    if done_when == "manual":
        return Outcome(Kind.FAILED, "manual", "scrapy_lease.complete(response) was not called")
    return Outcome(Kind.DONE)


def tail(error: BaseException | None) -> str:
    """Return the last TRACE_LINES lines of the traceback of `error`, without the credentials in its URLs."""
    lines = "".join(traceback.format_exception(error)).splitlines()[-TRACE_LINES:]
    return _URL_CREDENTIALS.sub("***@", "\n".join(lines))[-_TRACE_CHARACTERS:]
