"""What requests go with besides their lease: an account, a proxy, permits."""

from __future__ import annotations

from collections.abc import Callable

from scrapy.crawler import Crawler

from scrapy_lease.accounts.manager import Accounts
from scrapy_lease.pools.waiting_room import WaitingRoom
from scrapy_lease.proxies.manager import Proxies
from scrapy_lease.rates.limiter import Limiter
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.tries import Tries


def attach_goods(crawler: Crawler, runtime: Runtime, tries: Tries, wake: Callable[[], None]) -> list[WaitingRoom]:
    """Let requests held ready wait for what they go with: for their account first, then for a proxy, then for permits.

    :param wake: lets the engine ask for requests.
    :returns: where those wait that no proxy or account may ever come for.
    """
    settings = runtime.settings
    accounts = Accounts.of(crawler) if settings.account_pools_by_name else None
    proxies = Proxies.of(crawler) if settings.pools else None
    uses = [each for each in (accounts, proxies) if each is not None]
    for each in uses:
        each.attach(tries, runtime.gate, wake)
    if accounts is not None and proxies is not None:
        accounts.go_through(proxies)
    if settings.rates:
        Limiter.of(crawler).attach(tries, wake, proxies, accounts)
    return [each.waiting_room for each in uses]
