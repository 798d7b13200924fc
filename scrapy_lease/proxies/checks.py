"""What of Scrapy's own settings would send a request past its leased proxy: refused before the first one."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin

from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.providers.listed import Listed
from scrapy_lease.providers.minted import Gateway
from scrapy_lease.settings import LeaseSettings, joint
from scrapy_lease.settings.pools import PoolSettings
from scrapy_lease.settings.routes import Routes, takes

_HTTPX = "HttpxDownloadHandler"


def check_scrapy(settings: BaseSettings, pools: Mapping[str, PoolSettings]) -> None:
    """Raise SettingsError where Scrapy would not use the proxies that are leased."""
    if not settings.getbool("HTTPPROXY_ENABLED"):
        raise SettingsError(
            "HTTPPROXY_ENABLED = False: proxies are leased, and without Scrapy's HttpProxyMiddleware no credentials "
            "reach them; take it out, or set LEASE_PROXY_ENABLED = False"
        )
    middlewares = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    chosen = {load_object(component) for component, order in middlewares.items() if order is not None}
    if not any(issubclass(component, HttpProxyMiddleware) for component in chosen if isinstance(component, type)):
        raise SettingsError(
            "DOWNLOADER_MIDDLEWARES: Scrapy's HttpProxyMiddleware is taken out, and without it no credentials reach "
            "the proxies that are leased; put it back, or set LEASE_PROXY_ENABLED = False"
        )
    socks = [name for name, pool in pools.items() if _has_socks(pool)]
    if socks and not _speaks_socks(settings):
        raise SettingsError(
            f"LEASE_PROXIES: pool {socks[0]!r} has socks5:// proxies, which only Scrapy's httpx handler speaks; set "
            "DOWNLOAD_HANDLERS to scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler for http and https"
        )


def check_accounts(scrapy: BaseSettings, settings: LeaseSettings) -> None:
    """Raise SettingsError where a gateway with a place for an account would get requests that can fill none."""
    routes, pages = settings.proxy_pool, joint.pages_of(settings)
    for name, pool in settings.pools.items():
        if not pool.is_owned:
            continue
        if scrapy.getbool("ROBOTSTXT_OBEY") and not pages.has_media and name in _for_robots(routes):
            raise SettingsError(
                f"LEASE_PROXY_POOL: robots.txt is asked for as no account (ROBOTSTXT_OBEY), and the gateways of pool "
                f'{name!r} have an {{account}} in their credentials; send it elsewhere ("media": the name of a pool, '
                'or False), or let it go as an account ("media" in LEASE_ACCOUNT_URLS)'
            )
        for gateway in pool.proxies.gateways:
            _check_ids(gateway, name, settings, scrapy["HTTPPROXY_AUTH_ENCODING"])


def _check_ids(gateway: Gateway, name: str, settings: LeaseSettings, encoding: str) -> None:
    for accounts in settings.account_pools_by_name.values():
        for account in accounts.accounts or ():
            if unfit := gateway.unfit(account.id, encoding):
                raise SettingsError(
                    f"LEASE_ACCOUNTS: the id of account {account.id!r} {unfit}, and the gateways of pool {name!r} of "
                    "proxies have an {account} there; give it another id"
                )


def _for_robots(routes: Routes) -> set[str]:
    """Return the pools through which a robots.txt goes for which nothing is said."""
    if routes.media != ():
        return set()
    prefixes = ((pattern, way) for pattern, way in routes.urls if isinstance(pattern, str))
    hosts = (way for prefix, way in prefixes if takes(prefix, urljoin(prefix, "/robots.txt")))
    return {name for way in (*hosts, routes.rest) for name in way or ()}


def _has_socks(pool: PoolSettings) -> bool:
    listed: Listed | None = pool.proxies
    addresses = (*listed.proxies, *(gateway.template for gateway in listed.gateways)) if listed is not None else ()
    return any(address.scheme.startswith("socks") for address in addresses)


def _speaks_socks(settings: BaseSettings) -> bool:
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    # By name: importing it needs a package that is not there for who does not use it; what is gated names its original.
    return all(_HTTPX in _name_of(handlers.get(scheme)) for scheme in ("http", "https"))


def _name_of(handler: object) -> str:
    original = getattr(handler, "original", handler)
    return original if isinstance(original, str) else getattr(original, "__qualname__", "")
