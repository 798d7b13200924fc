"""What spiders and pipelines call."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.http import Response

from scrapy_lease.meta import LeaseRecord, read_record
from scrapy_lease.outcomes import complete_request, current_request

#: The request whose page a unit test processes (`scrapy_lease.testing.processing`), in the place of a crawl's.
rehearsed: ContextVar[Request | None] = ContextVar("scrapy_lease_rehearsed", default=None)
#: Requests of pages that `scrapy_lease.testing.respond` made -> whether `complete` was awaited for them.
rehearsals: WeakKeyDictionary[Request, bool] = WeakKeyDictionary()


class Lease(NamedTuple):
    """Under which lease a page was fetched. Of two leases of one item the later has the greater *fence*."""

    item: str
    fence: int
    session: str


def lease_of(item: Any) -> Lease | None:
    """Return the lease of the page from which *item* came, None if it came from no leased page.

    To be called where Scrapy processes the item: in a pipeline's ``process_item`` before its first await in another
    thread, in a callback, or in a spider middleware. What is stored under a fence should refuse a lower one.
    """
    request = rehearsed.get() or current_request()
    record: LeaseRecord | None = read_record(request.meta) if request is not None else None
    return None if record is None else Lease(record["item"], record["fence"], record["session"])


async def complete(response: Response) -> None:
    """Say that the page of *response* is done, where ``LEASE_DONE_WHEN = "manual"``.

    Where this process leases nothing (``LEASE_ENABLED = False``, ``scrapy parse``), there is nothing to complete.

    :raises ValueError: the response is not one of a leased page whose callback still runs.
    """
    request = response.request
    if request is not None and request in rehearsals:
        rehearsals[request] = True
    elif request is None or not complete_request(request):
        raise ValueError(f"{response} is not of a leased page that is being processed: it cannot be completed")
