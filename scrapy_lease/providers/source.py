"""Makes resources of a pool from what a provider delivers, and tolerates what is wrong with it."""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from scrapy_lease.leases.pool.complaints import Complaints
from scrapy_lease.leases.pool.supply import Delivery, FetchFailed
from scrapy_lease.providers.address import Address, parse_address
from scrapy_lease.providers.base import Batch, Provider, Proxy
from scrapy_lease.providers.identity import identity
from scrapy_lease.providers.minted import is_gateway
from scrapy_lease.store.pool_scripts import Resource

if TYPE_CHECKING:
    from scrapy_lease.providers.checking import Check

logger = logging.getLogger(__name__)

_EXIT = re.compile(r"[!-~]{1,255}")
#: No time in seconds is later; providers that mean milliseconds are understood.
_LATEST_SECONDS = 1e11
_LATEST = 9_999_999_999_999


class Body(msgspec.Struct, frozen=True):
    """What the holder of a proxy is given. *url* is a secret."""

    url: str
    provider: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode


def read_body(body: bytes) -> Body:
    """Read the body of a leased proxy."""
    return _decode(body)


def resource_of(proxy: Proxy, namespace: str, wall: int) -> Resource:
    """Return *proxy* as a pool takes it; *wall*: the store's wall clock, in ms.

    :raises ValueError: it cannot be used; the text says why, without secrets.
    """
    at = proxy.address
    if proxy.shown_user is None and is_gateway(f"{at.user} {at.password}"):
        raise ValueError("is a gateway, whose ids nobody would fill in: name it in LEASE_PROXIES")
    if proxy.exit and not _EXIT.fullmatch(proxy.exit):
        raise ValueError("has an exit that is no address")
    return Resource(
        identity(at, namespace, shown_user=proxy.shown_user),
        _encode(Body(at.url, proxy.provider)),
        _expiry_of(proxy, wall),
        proxy.exit,
        random.randrange(1001),
    )


def _expiry_of(proxy: Proxy, wall: int) -> int:
    ends = []
    if proxy.lifetime is not None:
        ends.append(wall + 1000 * _finite(proxy.lifetime))
    if proxy.expires is not None:
        expires = _finite(proxy.expires)
        ends.append(expires if expires > _LATEST_SECONDS else 1000 * expires)
    # 0 would say that it never expires.
    return round(min(max(min(ends), 1), _LATEST)) if ends else 0


def _finite(number: float) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError("has a time of its end that is no number of seconds")
    return number


class ProxySource:
    """A provider as the refill of one pool sees it.

    :param check: what a new proxy must pass; None: nothing.
    :param target: as many are to be in the pool at any time; 0: as the refill finds.
    :param most: as many can be had at once; 0: any number.
    """

    def __init__(
        self, provider: Provider, *, pool: str, namespace: str, check: Check | None = None, target: int = 0,
        most: int = 0,
    ) -> None:  # fmt: skip
        self._provider = provider
        self._namespace = namespace
        self._check = check
        self._target = target
        self._most = most
        self._complaints = Complaints(logger, f"Pool {pool}")

    @property
    def target(self) -> int:
        return self._target

    @property
    def most(self) -> int:
        return self._most

    async def fetch(self, count: int, wall: Callable[[], int]) -> Delivery[Resource]:
        """See :class:`~scrapy_lease.leases.pool.supply.Source`."""
        asked = wall()
        proxies: object = await self._provider.fetch(count)
        if not isinstance(proxies, list | tuple):
            text = f"fetch() returned a {type(proxies).__name__} instead of a list of proxies"
            raise FetchFailed(text, is_spent=True)
        received = proxies.received if isinstance(proxies, Batch) else len(proxies)
        usable = list(self._usable(proxies, asked))
        resources = {resource.id: resource for resource in usable}
        self._remark(count, received, len(usable) - len(resources))
        return Delivery(received, list(resources.values()))

    def _usable(self, proxies: Sequence[object], wall: int) -> Iterator[Resource]:
        for number, proxy in enumerate(proxies, 1):
            try:
                if not isinstance(proxy, Proxy):
                    raise ValueError(f"is a {type(proxy).__name__} instead of a Proxy")
                resource = resource_of(proxy, self._namespace, wall)
            except (ValueError, TypeError, AttributeError) as error:
                reason = str(error) if isinstance(error, ValueError) else "has fields of other types than Proxy says"
                self._complaints.tell(f"malformed {reason}", f"proxy {number} of those delivered {reason}; left out")
                continue
            if 0 < resource.expiry <= wall:
                self._complaints.tell("expired", "the provider delivers proxies that have expired already; left out")
            else:
                yield resource

    def _remark(self, count: int, received: int, doubles: int) -> None:
        if 0 < received < count:
            self._complaints.tell("short", f"the provider delivered {received} proxies where {count} were asked for")
        if doubles:
            self._complaints.tell("doubles", f"of {received} proxies delivered {doubles} were given before")

    async def checked(self, resources: Sequence[Resource]) -> AsyncIterator[Sequence[Resource]]:
        """See :class:`~scrapy_lease.leases.pool.supply.Source`."""
        if self._check is None:
            yield resources
            return
        passed = 0
        async for group in self._check.passing(resources, _address_of):
            passed += len(group)
            yield group
        if passed < len(resources):
            failed = len(resources) - passed
            text = f"{failed} of {len(resources)} new proxies did not pass LEASE_PROXY_CHECK; left out"
            self._complaints.tell("unchecked", text)


def _address_of(resource: Resource) -> Address:
    return parse_address(read_body(resource.body).url)
