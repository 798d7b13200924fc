"""What is known of one request that uses leases of one kind."""

from __future__ import annotations

import time

from scrapy import Request

from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.leases.session import boot_time


class Trip:
    """A request's uses of leases, one at a time, for as long as the request exists.

    ``pool``: of its present use; ``avoid``: resources that it must not get again if another can be had; ``bans``: how
    many of its pools gave it up; ``retries``: how often it went out again.
    """

    __slots__ = ("avoid", "bans", "is_scheduled", "is_sent", "pool", "retries", "since", "use", "was_cut")

    def __init__(self) -> None:
        self.use: Use | None = None
        self.pool = ""
        self.avoid: frozenset[str] = frozenset()
        self.bans = self.retries = 0
        self.is_scheduled = False
        #: Was it sent in its present use?
        self.is_sent = False
        #: Was the download of its present use cut off here?
        self.was_cut = False
        #: Clock time (s) at which its present use began.
        self.since = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.retries} retries, {self.use}>"

    @property
    def was_refused(self) -> bool:
        """Was the request refused on a lease before?"""
        return bool(self.avoid)

    @property
    def may_go_on(self) -> bool:
        """Is the present use valid, and its resource alive?"""
        use = self.use
        if use is None or not use.is_valid:
            return False
        until = use.lease.until
        return until is None or until > boot_time()

    def begin(self, request: Request, use: Use, pool: str) -> None:
        """Let *request* go with the resource of *use*."""
        self.use, self.pool, self.is_sent, self.was_cut = use, pool, False, False
        self.since = time.monotonic()

    def finish(self, request: Request) -> Use | None:
        """Take from *request* what was for this use only; return the use, None if it was taken off already."""
        use, self.use = self.use, None
        return use
