"""LEASE_PROXY_CHECK: a page that is fetched through a new proxy before it is registered."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from aiohttp import ClientSession, ClientTimeout
from yarl import URL

from scrapy_lease.leases.pool.complaints import name_of
from scrapy_lease.providers.address import Address
from scrapy_lease.providers.socks import reach

logger = logging.getLogger(__name__)

R = TypeVar("R")

#: Checks under way at once.
AT_ONCE = 10


class Check:
    """Says whether a proxy works.

    :param url: what is fetched; any status below 400 will do. Through a ``socks5`` proxy its host is connected to.
    :param timeout: seconds for one proxy.
    """

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        self._url = URL(url)
        self._timeout = timeout

    async def works(self, at: Address) -> bool:
        """Is *at* a proxy that leads to the page in time? Never raises, unless it is cancelled."""
        try:
            async with asyncio.timeout(self._timeout):
                if at.scheme == "socks5":
                    return await reach(at, self._url.host or "", self._url.port or 0)
                return await self._fetch(at)
        except Exception as error:
            # A proxy may answer with anything at all, and what a library makes of that is not for it to decide.
            logger.debug("A new proxy does not work: %s", name_of(error))
            return False

    async def _fetch(self, at: Address) -> bool:
        proof = {"Proxy-Authorization": _basic(at)} if at.user or at.password else {}
        # The proxy reads the request itself, or the CONNECT before it, which the site never sees.
        is_read = self._url.scheme == "http"
        options: dict[str, Any] = {"headers": proof} if is_read else {"proxy_headers": proof}
        # An own session for each: no connection may be shared between two users of one endpoint.
        async with (
            ClientSession(timeout=ClientTimeout(total=self._timeout)) as session,
            session.get(self._url, proxy=f"{at.scheme}://{at.endpoint}", allow_redirects=False, **options) as response,
        ):
            await response.read()
            return response.status < 400

    async def passing(self, resources: Sequence[R], address_of: Callable[[R], Address]) -> AsyncIterator[list[R]]:
        """Yield those of *resources* that work, as soon as that is known."""
        permits = asyncio.Semaphore(AT_ONCE)

        async def look(resource: R) -> R | None:
            async with permits:
                return resource if await self.works(address_of(resource)) else None

        pending = {asyncio.ensure_future(look(resource)) for resource in resources}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                good = [resource for resource in (task.result() for task in done) if resource is not None]
                if good:
                    yield good
        finally:
            for task in pending:
                task.cancel()


def _basic(at: Address) -> str:
    return f"Basic {base64.b64encode(f'{at.user}:{at.password}'.encode()).decode()}"


def checked_check(url: str) -> str:
    """Return LEASE_PROXY_CHECK; raise ValueError unless it is the URL of a page."""
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("is no http:// or https:// URL of a page")
    return url
