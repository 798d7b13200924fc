"""An entry of a feed while this process has it, and the mark by which requests made of it are known."""

from __future__ import annotations

from typing import NamedTuple

from scrapy import Request

from scrapy_lease.leases.items import Hold, Verdict
from scrapy_lease.meta import digest_of

#: The ``request.meta`` key of an `Origin`, between the reader and the scheduler's intake, which takes it out.
ORIGIN = "_lease_feed"


class Fed(Hold, eq=False, kw_only=True):
    """An entry that session *reader* took under the id *entry*; its payload is the entry as it was fed.

    It is held on the feed's server as an item is in the store: not done before what it led to is in the backlog. The
    ledger of items has no part in it.
    """

    reader: str
    entry: str
    #: Requests made of it, once they are; those of them that have reached the scheduler.
    made: int = -1
    arrived: int = 0
    #: Has the engine asked for what comes after the last of its requests? Each is scheduled or dropped before that.
    is_passed_on: bool = False

    @classmethod
    def of(cls, reader: str, entry: str, raw: bytes) -> Fed:
        """Return the entry *raw* that session *reader* took as *entry*."""
        return cls(digest_of(f"{reader}:{entry}"), 0, 0, "", "none", raw, reader=reader, entry=entry)

    @property
    def is_safe(self) -> bool:
        """Is all that was made of it in the backlog?"""
        return (self.is_passed_on or self.arrived == self.made) and not self.unsafe

    @property
    def is_untouched(self) -> bool:
        """Has nothing that was made of it come to the scheduler?"""
        return not self.is_passed_on and not self.arrived

    @property
    def has_failed(self) -> bool:
        """Was there something that could not be made of it, or not be used?"""
        return self.verdict is Verdict.FAILED

    def key(self, place: int) -> str:
        """Return the item key of the request at *place* (from 1) among those made of this entry."""
        return f"feed:{self.reader}:{self.entry}:{place}"


class Origin(NamedTuple):
    """Which entry a request was made of, and its place among the requests made of it, from 1."""

    fed: Fed
    place: int


def is_fed(request: Request) -> bool:
    """Is *request* made of an entry of a feed, and on its way to the scheduler?"""
    return ORIGIN in request.meta


def take_origin(request: Request) -> Origin | None:
    """Take the mark out of *request*, which has arrived; None: it comes from no feed."""
    origin: Origin | None = request.meta.pop(ORIGIN, None)
    if origin is not None:
        origin.fed.arrived += 1
    return origin
