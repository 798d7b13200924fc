"""Makes resources of a pool from the accounts that a provider delivers, and tolerates what is wrong with them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol

from scrapy_lease.accounts.account import Account
from scrapy_lease.accounts.sealing import Sealer, resource_of
from scrapy_lease.leases.pool.complaints import Complaints
from scrapy_lease.leases.pool.supply import Delivery, FetchFailed
from scrapy_lease.store.pool_scripts import Resource

logger = logging.getLogger(__name__)


class Provider(Protocol):
    """Where accounts come from."""

    async def fetch(self, count: int) -> Sequence[object]:
        """Return up to *count* accounts, or dicts that can be ones; fewer, or some again, is no error."""


class AccountSource:
    """A provider as the refill of one pool sees it; see :class:`~scrapy_lease.leases.pool.supply.Source`."""

    target = 0
    most = 0

    def __init__(self, provider: Provider, pool: str, sealer: Sealer) -> None:
        self._provider = provider
        self._sealer = sealer
        self._complaints = Complaints(logger, f"Pool {pool}")

    async def fetch(self, count: int, wall: Callable[[], int]) -> Delivery[Resource]:
        accounts: object = await self._provider.fetch(count)
        if not isinstance(accounts, list | tuple):
            text = f"fetch() returned a {type(accounts).__name__} instead of a list of accounts"
            raise FetchFailed(text, is_spent=True)
        return Delivery(len(accounts), list(self._usable(accounts)))

    def _usable(self, accounts: Sequence[object]) -> Iterator[Resource]:
        for number, given in enumerate(accounts, 1):
            try:
                yield resource_of(Account.of(given), self._sealer)
            except ValueError as error:
                self._complaints.tell(f"malformed {error}", f"account {number} of those delivered {error}; left out")

    async def checked(self, resources: Sequence[Resource]) -> AsyncIterator[Sequence[Resource]]:
        yield resources
