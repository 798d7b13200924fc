"""Builds the parts of a crawl before its first request, and puts the gate before its download handlers.

The item processor gets its guard here, too.
"""

from __future__ import annotations

from typing import Self

from scrapy.crawler import Crawler

from scrapy_lease.accounts.manager import Accounts
from scrapy_lease.addon import gate_handlers
from scrapy_lease.gate import handler_for
from scrapy_lease.pipelines import guarded
from scrapy_lease.proxies.manager import Proxies
from scrapy_lease.rates.limiter import Limiter
from scrapy_lease.runtime import Runtime


class LeaseExtension:
    """Refuses to start here: an extension is the first component that Scrapy builds with all settings known."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        runtime = Runtime.of(crawler)
        settings = crawler.settings
        gate_handlers(settings, handler_for)
        processor = guarded(settings["ITEM_PROCESSOR"], runtime.settings.fence_field)
        settings.set("ITEM_PROCESSOR", processor, settings.getpriority("ITEM_PROCESSOR") or 0)
        runtime.is_gated = True
        if runtime.settings.account_pools_by_name:
            Accounts.of(crawler)
        if runtime.settings.pools:
            Proxies.of(crawler)
        if runtime.settings.rates:
            Limiter.of(crawler)
        return cls(runtime)

    def __repr__(self) -> str:
        return f"<LeaseExtension of {self._runtime}>"
