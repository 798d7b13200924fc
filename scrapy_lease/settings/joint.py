"""What is wrong between the settings of proxies and of accounts, where a gateway has a place for an account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scrapy_lease.providers.minted import SHORTEST
from scrapy_lease.settings.account_values import Pages
from scrapy_lease.settings.pools import AccountPoolSettings, PoolSettings
from scrapy_lease.settings.routes import MEDIA, REST, Routes, Way, takes

Pattern = str | re.Pattern[str] | None


def faults(
    settings: Any, pools: Mapping[str, PoolSettings], accounts: Mapping[str, AccountPoolSettings]
) -> Iterator[str]:  # fmt: skip
    """Tell of each gateway whose ids would end before they are used, or that no account could go through."""
    yield from filter(None, map(_short_lived, pools.values()))
    owned = {name for name, pool in pools.items() if pool.is_owned}
    if owned and not accounts:
        name = min(owned)
        yield (
            f"LEASE_PROXIES: the gateways of pool {name!r} have an {{account}} in their credentials, and no accounts "
            "are leased; set LEASE_ACCOUNTS, or take {account} out"
        )
        return
    pages = pages_of(settings)
    for route, way in without_account(settings.proxy_pool, settings.account_pool, pages):
        if name := next((name for name in way or () if name in owned), ""):
            yield (
                f"LEASE_PROXY_POOL: {route!r} leads to pool {name!r}, whose gateways have an {{account}} in their "
                "credentials, and LEASE_ACCOUNT_URLS and LEASE_ACCOUNT_POOL give none of its requests an account"
            )


def notices(pools: Mapping[str, PoolSettings], accounts: Mapping[str, AccountPoolSettings]) -> Iterator[str]:
    """Tell of what is set and has nothing to act on, or acts otherwise than one would think."""
    shared = next((name for name, pool in accounts.items() if pool.holders != 1), None)
    if shared is not None and (owned := [name for name, pool in pools.items() if pool.is_owned]):
        yield (
            f"LEASE_ACCOUNT_HOLDERS: several sessions may hold an account of pool {shared!r}, and what it goes through "
            f"at the gateways of pool {owned[0]!r} of proxies serves one at a time: the others wait as long as that "
            "one is busy"
        )
    for name, pool in pools.items():
        if pool.is_owned and pool.check is not None:
            yield (
                f"LEASE_PROXY_CHECK: pool {name!r} makes its proxies for accounts as they are needed, and checks none: "
                "one that does not work rests after its first request"
            )


def pages_of(settings: Any) -> Pages:
    """Return the pages that are asked for by an account."""
    routes: Routes = settings.account_pool
    return settings.account_urls or Pages(has_media=routes.media != ())


def without_account(proxies: Routes, accounts: Routes, pages: Pages) -> Iterator[tuple[str, Way]]:
    """Yield the routes of proxies that only requests without an account take, as far as that is certain."""
    if proxies.media and (not pages.has_media or accounts.media is None):
        yield MEDIA, proxies.media
    for pattern, way in proxies.urls:
        if not _may_have_one(pattern, accounts, pages):
            yield pattern if isinstance(pattern, str) else f"re:{pattern.pattern}", way
    if not _may_have_one(None, accounts, pages):
        yield REST, proxies.rest


def _may_have_one(pattern: Pattern, accounts: Routes, pages: Pages) -> bool:
    if pages.patterns is not None and not any(_meet(pattern, page) for page in pages.patterns):
        return False
    for route, way in accounts.urls:
        if _meet(pattern, route):
            if way is not None:
                return True
            if isinstance(pattern, str) and isinstance(route, str) and takes(route, pattern):
                return False
    return accounts.rest is not None


def _meet(one: Pattern, other: Pattern) -> bool:
    """Can a URL be of both? Of an expression, or of all URLs (None), nobody knows that it cannot."""
    if not isinstance(one, str) or not isinstance(other, str):
        return True
    return takes(one, other) or takes(other, one)


def _short_lived(pool: PoolSettings) -> str:
    listed = pool.proxies
    is_minted = listed is not None and any(gateway.needs_session for gateway in listed.gateways)
    if not is_minted or SHORTEST * pool.lifetime > pool.margin:
        return ""
    return (
        f"LEASE_PROXY_LIFETIME: ids of pool {pool.name!r} live {SHORTEST:.0%} of {pool.lifetime:g} s at least, and are "
        f"not used for the last {pool.margin:g} s (LEASE_PROXY_MARGIN); let them live longer"
    )
