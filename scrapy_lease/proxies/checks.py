"""What of Scrapy's own settings would send a request past its leased proxy: refused before the first one."""

from __future__ import annotations

from collections.abc import Mapping

from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.providers.listed import Listed
from scrapy_lease.settings.pools import PoolSettings

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
