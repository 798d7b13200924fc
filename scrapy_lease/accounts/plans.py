"""How the pools of accounts are made, of what the settings say."""

from __future__ import annotations

from scrapy.crawler import Crawler

from scrapy_lease.accounts.handler import Handler
from scrapy_lease.accounts.sealing import Sealer, resource_of
from scrapy_lease.accounts.source import AccountSource
from scrapy_lease.leases.pool.accounts import AccountOptions
from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.refill import RefillOptions
from scrapy_lease.pools.goods import ACCOUNT
from scrapy_lease.pools.keeper import Plan
from scrapy_lease.providers.supplies import provider_of
from scrapy_lease.runtime import Runtime
from scrapy_lease.settings.pools import AccountPoolSettings
from scrapy_lease.store.pool_scripts import PoolScripts

#: Seconds that a request waits where pools are left alone until their quotas renew.
WAIT = 60.0
#: Accounts that are asked of a provider at the daily refill.
BATCH = 100


def plan_of(crawler: Crawler, runtime: Runtime, settings: AccountPoolSettings, sealer: Sealer) -> tuple[Plan, Handler]:
    """Return how a pool is made, and how its accounts log in."""
    name, hours = settings.name, settings.hours or ""
    waits_for_quota = settings.wait == "quota"
    wait = WAIT if settings.wait == "quota" else settings.wait
    account = AccountOptions(
        holders=settings.holders, quota=settings.quota, interval=settings.interval, hours=hours,
        timezone=settings.timezone, min_success=settings.min_success, slow=settings.slow, cooldown=settings.cooldown,
        active=settings.active, refill=settings.refill, waits_for_quota=waits_for_quota,
    )  # fmt: skip
    options = PoolOptions(name, concurrency=settings.concurrency, margin=0.0, wait=wait, account=account)
    store = PoolScripts(runtime.scripts.channel, runtime.scope.namespace.pool(ACCOUNT.kind, name))
    refill = RefillOptions(
        name, batch=BATCH, goods=ACCOUNT.things, calendar=account.calendar
    )  # fmt: skip
    stock = tuple(resource_of(each, sealer) for each in settings.accounts or ())
    source = None
    if settings.provider is not None:
        source = AccountSource(provider_of(settings.provider, crawler), name, sealer)
    return Plan(options, store, refill, stock, source), Handler.from_crawler(crawler, settings.handler)
