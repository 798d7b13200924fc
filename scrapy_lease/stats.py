"""Every stat name.

All begin with ``lease/``; what each counts stands beside it. A stat that is not listed here cannot be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from scrapy.statscollectors import StatsCollector

#: Name -> what it tells.
STATS = {
    "items/leased": "items leased to this session",
    "items/duplicate": "requests that were pending, leased or done already",
    "items/contended": "requests whose item another session held when it was asked for",
    "items/taken_over": "items taken from sessions that died, for whoever leases them next",
    "items/done": "items done",
    "items/rejected": "items that the site or a middleware refused for good",
    "items/failed": "faults of items",
    "items/stale": "results dropped because the lease had gone to another session",
    "items/shadow": "requests fetched without a lease because their item is outside of LEASE_ROLLOUT",
    "items/unsafe": "items that this process granted itself while the store was away",
    "items/elsewhere": "of those it fetched, items that turned out to be another session's, or done",
    "items/dead": "items that went to the dead letters",
    "queue/pushed": "requests accepted into the backlog",
    "queue/popped": "requests handed to the engine under a lease",
    "queue/requeued": "leases handed back, nothing counted",
    "queue/local_only": "requests that cannot be stored and stay with this node",
    "queue/foreign": "requests handed back because this spider lacks their callback",
    "session/renewed": "heartbeats answered",
    "session/lost": "sessions lost",
    "session/lag_max": "longest time the reactor was late, in s",
    "store/commands": "commands sent to the store",
    "store/roundtrips": "pipelines sent to the store",
    "store/errors": "pipelines without a good answer",
    "store/down_seconds": "seconds for which the store did not answer",
}

#: Kind of pool -> name -> what it tells; the name of the pool is put behind it: ``lease/proxy/leased/default``. What is
#: told of rate limits has the name of a dimension there.
POOL_STATS = {
    "proxy": {
        "leased": "proxies leased to this session",
        "reused": "requests served by a proxy that was here already",
        "released": "proxies given back",
        "lost": "proxies that went to another session, or whose lease an operator ended",
        "banned": "proxies that a site refused",
        "broken": "proxies that did not work",
        "expired": "proxies that their provider had taken back",
        "waited": "requests that had to wait for a proxy",
        "refilled": "proxies taken in from a provider or a list",
        "refused": "requests that got no proxy in time",
    },
    "account": {
        "leased": "accounts leased to this session",
        "reused": "requests that went as an account that was here already",
        "released": "accounts given back",
        "lost": "accounts that went to another session, or whose lease an operator ended",
        "waited": "requests that had to wait for an account",
        "refused": "requests that got no account in time",
        "logins": "logins that succeeded",
        "cooled": "accounts that rested because they were slow, or the site asked for it",
        "demoted": "accounts that went to the cold pool for what became of their requests or logins",
        "refilled": "accounts taken in from a provider or a list, and cold ones that became active again",
    },
    "rate": {
        "granted": "permits spent by requests that were sent",
        "waited": "requests sent that had to wait for a permit before",
        "parked": "requests that waited outside of the window, each time",
        "shadow": "permits that would have been spent, of keys outside of LEASE_ROLLOUT",
    },
}


class Stats:
    """Counts under ``lease/``.

    Counts are kept here and written to Scrapy's collector by :meth:`flush`: several for each page would be felt.
    """

    def __init__(self, collector: StatsCollector) -> None:
        self._collector = collector
        self._names = {name: f"lease/{name}" for name in STATS}
        self._counts: Counter[str] = Counter()

    def of_pool(self, kind: str, pool: str) -> Callable[..., None]:
        """Return a function that counts one of :data:`POOL_STATS` for *pool*: ``count("leased", 1)``."""
        names = {name: f"lease/{kind}/{name}/{pool}" for name in POOL_STATS[kind]}
        self._names.update((name.removeprefix("lease/"), name) for name in names.values())

        def count(name: str, number: int = 1) -> None:
            self._counts[names[name]] += number

        return count

    def count(self, name: str, number: int = 1) -> None:
        """Add *number* to a stat of :data:`STATS`, or of a pool that :meth:`of_pool` was asked for."""
        self._counts[self._names[name]] += number

    def flush(self) -> None:
        """Write what was counted since the last time; done once a second and when the crawl closes."""
        for name, number in self._counts.items():
            if number:
                self._collector.inc_value(name, number)
        self._counts.clear()

    def put(self, name: str, value: Any) -> None:
        """Set a stat of :data:`STATS`."""
        self._collector.set_value(self._names[name], value)

    def get(self, name: str) -> Any:
        """Return a stat of :data:`STATS`, 0 if it was never counted."""
        return self._collector.get_value(self._names[name], 0) + self._counts[self._names[name]]
