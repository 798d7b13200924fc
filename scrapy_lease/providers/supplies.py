"""What the settings of a pool name, built: what is always there, where more comes from, and how fast."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy.crawler import Crawler
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_lease.leases.pool.supply import Limit
from scrapy_lease.providers.api import Api
from scrapy_lease.providers.base import Provider, Proxy
from scrapy_lease.providers.listed import Listed
from scrapy_lease.providers.minted import Minted
from scrapy_lease.providers.owned import Owned
from scrapy_lease.providers.source import ProxySource, resource_of
from scrapy_lease.store.pool_scripts import Resource

if TYPE_CHECKING:
    from scrapy_lease.providers.checking import Check


@dataclass(frozen=True, slots=True)
class Supply:
    """What a :class:`~scrapy_lease.leases.pool.refill.Refiller` fills a pool from.

    :param limits: of what is bought, and of calls.
    :param is_minted: the ids are made for the asking: one that is banned is replaced.
    :param owned: makes those of accounts; None: they are not made for these.
    """

    stock: tuple[Resource, ...]
    source: ProxySource | None
    limits: tuple[Limit, ...]
    is_minted: bool
    owned: Owned | None = None


def supply_of(
    *, pool: str, namespace: str, listed: Listed | None = None, api: Api | None = None,
    provider: Provider | None = None, limits: Sequence[Limit] = (), sessions: int = 100, lifetime: float = 600.0,
    check: Check | None = None, encoding: str = "latin-1",
) -> Supply:  # fmt: skip
    """Build the supply of one pool.

    :param listed: LEASE_PROXIES; of gateways *sessions* ids each are kept, which live *lifetime* seconds.
    :param api: LEASE_PROXY_API.
    :param provider: LEASE_PROXY_PROVIDER, see :func:`provider_of`.
    :param limits: LEASE_PROXY_BUY_LIMIT.
    :param encoding: HTTPPROXY_AUTH_ENCODING of Scrapy.
    :raises ValueError: they do not go together; the text names the settings.
    """
    listed = listed or Listed()
    named = [
        name
        for name, value in (
            ("gateways in LEASE_PROXIES", listed.gateways), ("LEASE_PROXY_API", api), ("LEASE_PROXY_PROVIDER", provider)
        )
        if value
    ]  # fmt: skip
    if len(named) > 1:
        raise ValueError(
            f"{' and '.join(named)} cannot fill one pool: give each a pool of its own in LEASE_PROXY_POOLS"
        )
    options: dict[str, Any] = {"pool": pool, "namespace": namespace, "check": check}
    source = None
    if listed.is_owned:
        return Supply((), None, (), False, Owned(listed.gateways, namespace, lifetime, encoding))
    if listed.gateways:
        target = sessions * len(listed.gateways)
        source = ProxySource(Minted(listed.gateways, lifetime), target=target, **options)
        limits = ()
    elif api is not None:
        # With it comes aiohttp, which costs a tenth of a second.
        from scrapy_lease.providers.http import HttpProvider

        source = ProxySource(HttpProvider(api), most=api.max_count, **options)
        limits = (*limits, *([api.calls] if api.calls is not None else []))
    elif provider is not None:
        source = ProxySource(provider, **options)
    wall = int(1000 * time.time())
    proxies = (Proxy(at.url, provider="list") for at in listed.proxies)
    stock = {resource.id: resource for resource in (resource_of(proxy, namespace, wall) for proxy in proxies)}
    return Supply(tuple(stock.values()), source, tuple(limits), bool(listed.gateways))


def check_of(url: str | None, timeout: float) -> Check | None:
    """Make the check of LEASE_PROXY_CHECK; None where there is no *url*."""
    if url is None:
        return None
    # With it comes aiohttp, which costs a tenth of a second.
    from scrapy_lease.providers.checking import Check

    return Check(url, timeout)


def checked_provider(value: str | type) -> str | type:
    """Return LEASE_PROXY_PROVIDER; raise ValueError unless it is, or leads to, a class with ``async fetch(count)``."""
    found = _loaded(value)
    if not callable(getattr(found, "fetch", None)):
        raise ValueError("leads to what has no method fetch(count)")
    return value


def provider_of(value: str | type, crawler: Crawler) -> Provider:
    """Make the provider that LEASE_PROXY_PROVIDER names; its ``from_crawler`` is used if it has one."""
    provider: Provider = build_from_crawler(_loaded(value), crawler)
    return provider


def _loaded(value: str | type) -> Any:
    try:
        return load_object(value)
    except Exception as error:
        raise ValueError(f"cannot be imported ({type(error).__name__}: {error})") from None
