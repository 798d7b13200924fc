"""scrapy-lease: many hosts crawl together, and each shared thing is a lease.

The way of a request: ``scheduler.intake`` takes it from the engine and makes it an entry; a turn of
``backlog.redis`` pushes it and leases what is next; ``scheduler.tries`` holds it ready; ``scheduler.core`` hands it
to the engine when its download slot can send it; ``gate`` lets it through to the download handler while the session
is confirmed; ``outcomes`` tells what became of it; ``leases.items`` says what that means; the next turn settles it.

``runtime`` builds the parts, ``heartbeat`` renews the session on which every lease hangs, ``store`` alone speaks to
Redis.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scrapy_lease.addon import Addon
from scrapy_lease.public import Lease, complete, lease_of

if TYPE_CHECKING:
    from scrapy_lease.accounts.account import Account
    from scrapy_lease.accounts.handler import LoginFailed
    from scrapy_lease.feeds.spiders import RedisCrawlSpider, RedisSpider
    from scrapy_lease.providers.base import ProviderError, Proxy

__all__ = [
    "Account", "Addon", "Lease", "LoginFailed", "ProviderError", "Proxy", "RedisCrawlSpider", "RedisSpider", "complete",
    "lease_of",
]  # fmt: skip
__version__ = "0.1.0"


_ELSEWHERE = {
    "Account": "scrapy_lease.accounts.account",
    "LoginFailed": "scrapy_lease.accounts.handler",
    "ProviderError": "scrapy_lease.providers.base",
    "Proxy": "scrapy_lease.providers.base",
    "RedisCrawlSpider": "scrapy_lease.feeds.spiders",
    "RedisSpider": "scrapy_lease.feeds.spiders",
}


def __getattr__(name: str) -> Any:
    """Import when it is asked for what the add-on does not need."""
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
