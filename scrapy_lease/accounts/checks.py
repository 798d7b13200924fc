"""What of Scrapy's own settings would let a leased account send nothing of itself: refused before the first request."""

from __future__ import annotations

from collections.abc import Mapping

from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.proxies import checks
from scrapy_lease.settings.pools import AccountPoolSettings


def check_scrapy(settings: BaseSettings, pools: Mapping[str, AccountPoolSettings]) -> None:
    """Raise SettingsError where accounts would have no cookiejars of their own, or not the proxies that are theirs."""
    if any(account.proxy for pool in pools.values() for account in pool.accounts or ()):
        checks.check_scrapy(settings, {})
    if not settings.getbool("COOKIES_ENABLED"):
        raise SettingsError(
            "COOKIES_ENABLED = False: accounts are leased, and each has its own cookiejar in Scrapy's "
            "CookiesMiddleware; take it out, or set LEASE_ACCOUNT_ENABLED = False"
        )
    middlewares = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    chosen = [load_object(component) for component, order in middlewares.items() if order is not None]
    if not any(issubclass(component, CookiesMiddleware) for component in chosen if isinstance(component, type)):
        raise SettingsError(
            "DOWNLOADER_MIDDLEWARES: Scrapy's CookiesMiddleware is taken out, and accounts have their cookiejars "
            "there; put it back, or set LEASE_ACCOUNT_ENABLED = False"
        )
