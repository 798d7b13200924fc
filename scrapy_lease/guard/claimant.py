"""A request in the downloader whose item is to be leased."""

from __future__ import annotations

import asyncio

from scrapy import Request

from scrapy_lease.scheduler.ahead import Candidate
from scrapy_lease.store.messages import Entry


class Claimant(Candidate):
    """Waits in the downloader until the first answer; what is not granted then is kept aside, outside of it."""

    __slots__ = ("goes_on",)

    def __init__(self, request: Request, entry: Entry, times: int = 0) -> None:
        super().__init__(request, entry, times)
        #: Does it go on in the downloader? Not known while it waits there.
        self.goes_on: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Claimant {self.request}{' waiting' if self.is_waiting else ''}>"

    @property
    def is_waiting(self) -> bool:
        """Is it in the downloader?"""
        return not self.goes_on.done()

    def let(self, goes_on: bool) -> None:
        """Let it go on, or leave the downloader, if it is there."""
        if self.is_waiting:
            self.goes_on.set_result(goes_on)
