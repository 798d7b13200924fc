"""One purchase: what was granted is fetched from the source, checked, and registered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.leases.pool.complaints import name_of
from scrapy_lease.leases.pool.register import Register
from scrapy_lease.leases.pool.supply import Delivery, FetchFailed, Source

R = TypeVar("R")

#: Seconds after which a source that says nothing has failed; it may have sold something all the same.
FETCH_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Bought:
    """How a purchase ended: what counts of the buy limits, what was new to the pool, and what went wrong."""

    count: int
    gained: int = 0
    failure: FetchFailed | None = None


class Purchase(Generic[R]):
    """Fetches once. :attr:`has_arrived`: what was bought is here, to be registered.

    :param needs_news: a delivery of which nothing is new to the pool is a failure.
    """

    def __init__(self, source: Source[R], register: Register[R], *, needs_news: bool = True) -> None:
        self._source = source
        self._register = register
        self._needs_news = needs_news
        self.has_arrived = False

    async def make(self, count: int, wall: Callable[[], int]) -> Bought:
        """Buy up to *count*; *wall*: the server's wall clock, in ms. Never raises, unless it is cancelled."""
        try:
            delivery = await self._fetched(count, wall)
        except FetchFailed as failed:
            return Bought(count if failed.is_spent else 0, 0, failed)
        except Exception as error:
            return Bought(count, 0, FetchFailed(f"it raised {name_of(error)}", is_spent=True))
        self.has_arrived = True
        gained = 0
        try:
            async for group in self._source.checked(delivery.resources):
                gained += (await self._register.add(group)).count("+")
        except StoreRefused as error:
            return Bought(delivery.bought, gained, FetchFailed(str(error)))
        failure = None if gained or not self._needs_news else FetchFailed(_why_nothing_is_new(delivery))
        return Bought(delivery.bought, gained, failure)

    async def _fetched(self, count: int, wall: Callable[[], int]) -> Delivery[R]:
        """Fetch in a task of its own: one that does not end when it is told to must not keep the refill."""
        task = asyncio.ensure_future(self._source.fetch(count, wall))
        task.add_done_callback(_take_note)
        try:
            await asyncio.wait({task}, timeout=FETCH_TIMEOUT)
        finally:
            is_done = task.done()
            task.cancel()
        if not is_done or task.cancelled():
            raise FetchFailed(f"no answer within {FETCH_TIMEOUT:g} s", is_spent=True)
        return task.result()


def _take_note(task: asyncio.Future[Delivery[R]]) -> None:
    """An error of a fetch that nobody waits for any more is nobody's."""
    if not task.cancelled():
        task.exception()


def _why_nothing_is_new(delivery: Delivery[R]) -> str:
    if not delivery.bought:
        return "it delivered nothing"
    return "of what it delivered nothing was new to the pool and usable"
