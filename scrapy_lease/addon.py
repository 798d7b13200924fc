"""Puts each component at its place: the one line that a project needs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed
from twisted.internet.asyncioreactor import AsyncioSelectorReactor

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.refusal import told
from scrapy_lease.settings import LeaseSettings, takes_no_leases

logger = logging.getLogger(__name__)

SCHEDULERS = {
    "redis": "scrapy_lease.scheduler.LeaseScheduler",
    "local": "scrapy_lease.scheduler.LocalScheduler",
}
COMPONENTS = {
    "EXTENSIONS": {"scrapy_lease.extension.LeaseExtension": 0},
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy_lease.middlewares.downloader.TrackMiddleware": -1000,
        "scrapy_lease.middlewares.downloader.GuardMiddleware": 950,
    },
    "SPIDER_MIDDLEWARES": {
        "scrapy_lease.middlewares.start.StartMiddleware": 5,
        "scrapy_lease.middlewares.spider.OuterMiddleware": 10,
        "scrapy_lease.middlewares.spider.InnerMiddleware": 2000,
    },
}
#: Added where the user chose a scheduler: it stays, and the guard takes the leases.
GUARD = {
    "DOWNLOADER_MIDDLEWARES": {"scrapy_lease.guard.hooks.ClaimMiddleware": -999},
    "ITEM_PIPELINES": {"scrapy_lease.guard.hooks.OpenPipeline": -1001},
}
#: Added where proxies are leased.
PROXIES = {
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy_lease.middlewares.proxy.ProxyMiddleware": 745,
        "scrapy_lease.middlewares.proxy.JudgeMiddleware": 940,
    },
}
#: Added where accounts are leased.
ACCOUNTS = {
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy_lease.middlewares.account.AccountMiddleware": 690,
        "scrapy_lease.middlewares.account.AccountJudge": 942,
    },
}
#: Added where rates are limited.
RATES = {
    "DOWNLOADER_MIDDLEWARES": {"scrapy_lease.middlewares.rate.RateMiddleware": 747},
}
_ADDON_PRIORITY = SETTINGS_PRIORITIES["addon"]


class Addon:
    """``ADDONS = {"scrapy_lease.Addon": 500}``: checks the settings and installs what they turn on.

    Refusing is one ERROR record that says everything, then SettingsError, with which Scrapy exits 1. The
    download handlers are left to `gate_handlers`, because a later add-on may still change them.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def __repr__(self) -> str:
        # Scrapy lists the add-ons in its log.
        return "scrapy_lease.Addon"

    def update_settings(self, settings: BaseSettings) -> None:
        """Check all values; install the components unless they are off or the command takes no leases."""
        try:
            lease = LeaseSettings.from_crawler(self._crawler)
            if self._is_wanted(lease):
                _check_reactor(settings)
                _install(settings, lease)
        except SettingsError as error:
            raise told(error, self._crawler, logger) from None

    def _is_wanted(self, lease: LeaseSettings) -> bool:
        extra = {"crawler": self._crawler}
        if takes_no_leases(self._crawler):
            if lease.enabled and lease.pools:
                logger.warning("This command leases no proxies: what it fetches goes directly to the site", extra=extra)
            if lease.enabled and lease.account_pools_by_name:
                logger.warning("This command leases no accounts: what it fetches goes as nobody", extra=extra)
            if lease.enabled and lease.rates:
                logger.warning("This command keeps no rate limits: what it fetches is counted nowhere", extra=extra)
            return False
        leased = [
            what for what, pools in (("accounts", lease.account_pools_by_name), ("proxies", lease.pools)) if pools
        ]
        if lease.enabled and (leased or lease.rates) and not lease.items_enabled:
            limits = "keeps rate limits" if lease.rates else ""
            leases = f"leases {' and '.join(leased)}, and no items" if leased else "leases no items"
            rest = " and ".join(filter(None, (limits, leases)))
            logger.warning("LEASE_ITEMS_ENABLED is False: this crawl %s", rest, extra=extra)
            return True
        for name, on in (("LEASE_ENABLED", lease.enabled), ("LEASE_ITEMS_ENABLED", lease.items_enabled)):
            if not on:
                message = "%s is False: this crawl leases nothing and shares nothing with other hosts"
                logger.warning(message, name, extra=extra)
                return False
        if not lease.proxy_enabled:
            logger.warning("LEASE_PROXY_ENABLED is False: requests go without leased proxies", extra=extra)
        if not lease.account_enabled:
            logger.warning("LEASE_ACCOUNT_ENABLED is False: requests go without leased accounts", extra=extra)
        if not lease.rate_enabled:
            logger.warning("LEASE_RATE_ENABLED is False: no rate limit is kept", extra=extra)
        return True


def gate_handlers(settings: BaseSettings, handler_for: Callable[[str, Any], type]) -> None:
    """Put ``handler_for(scheme, original)`` in the place of each enabled download handler.

    Call it once, when an extension is built: then add-ons and the defaults of the reactorless mode have had
    their say, and settings are not frozen yet (TypeError if they are). *original* is a class or its path.
    """
    name = "DOWNLOAD_HANDLERS"
    handlers = settings.getwithbase(name)
    for scheme, original in tuple(handlers.items()):
        if original is not None:
            handlers.set(scheme, handler_for(scheme, original), handlers.getpriority(scheme) or 0)
    settings.set(name, handlers, max(settings.getpriority(name) or 0, handlers.maxpriority()))


def has_foreign_scheduler(settings: BaseSettings) -> bool:
    """Did the user choose a scheduler that is not ours?"""
    chosen = settings["SCHEDULER"]
    if not settings.getpriority("SCHEDULER") or _path_of(chosen) in SCHEDULERS.values():
        return False
    # What cannot be loaded is Scrapy's to report. To issubclass any two schedulers are alike.
    with suppress(Exception):
        return load_object(SCHEDULERS["redis"]) not in load_object(chosen).__mro__
    return True


def _install(settings: BaseSettings, lease: LeaseSettings) -> None:
    added = ((ACCOUNTS, lease.account_pools_by_name), (PROXIES, lease.pools), (RATES, lease.rates))
    places = [COMPONENTS, *(place for place, is_there in added if is_there)]
    if has_foreign_scheduler(settings):
        places.append(GUARD)
        logger.info(
            "SCHEDULER = %r stays as it is: items are leased in the downloader path, and LEASE_QUEUE does not apply",
            settings["SCHEDULER"],
        )
    else:
        settings.set("SCHEDULER", SCHEDULERS[lease.queue], "addon")
    for name, path, order in ((n, p, o) for place in places for n, parts in place.items() for p, o in parts.items()):
        _place(settings, name, path, order)


def _place(settings: BaseSettings, name: str, path: str, order: int) -> None:
    components = settings.getdict(name)
    for key, chosen in components.items():
        if _path_of(key) != path:
            continue
        if chosen is None:
            raise SettingsError(
                f"{name} = {{{path!r}: None}} takes a part out that the others need; "
                "set LEASE_ENABLED = False to turn scrapy-lease off"
            )
        return
    priority = max(settings.getpriority(name) or 0, _ADDON_PRIORITY)
    settings.set(name, {**components, path: order}, priority)


def _path_of(component: object) -> str:
    return component if isinstance(component, str) else global_object_name(component)


def _check_reactor(settings: BaseSettings) -> None:
    if not settings.getbool("TWISTED_REACTOR_ENABLED"):
        return
    chosen = settings["TWISTED_REACTOR"]
    if chosen:
        # A reactor that cannot be loaded is another one too; Scrapy would only tell later, by a traceback.
        with suppress(Exception):
            if issubclass(load_object(chosen), AsyncioSelectorReactor):
                return
    elif is_reactor_installed() and is_asyncio_reactor_installed():
        return
    raise SettingsError(
        f"TWISTED_REACTOR = {chosen!r}: scrapy-lease needs the asyncio reactor; take TWISTED_REACTOR out of "
        f"the settings, or set it to '{global_object_name(AsyncioSelectorReactor)}'"
    )
