"""The pools of one crawl: built, started, filled, waited for, and left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from scrapy.crawler import Crawler

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.pool import Pool
from scrapy_lease.leases.pool.refill import Refiller, RefillOptions
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.leases.session import Beat
from scrapy_lease.providers.checking import Check
from scrapy_lease.providers.supplies import Supply, provider_of, supply_of
from scrapy_lease.proxies.failures import Failures
from scrapy_lease.runtime import Runtime
from scrapy_lease.settings.pools import PoolSettings
from scrapy_lease.store.pool_scripts import PoolScripts, Resource

logger = logging.getLogger(__name__)

#: Seconds between looks.
LOOK = 0.1
#: Looks between those at what takes long to come about.
SELDOM = 10
#: Seconds after which it is told again that a pool has nothing usable.
TELL_AGAIN = 300.0
#: How many times LEASE_PROXY_WAIT a pool may have nothing usable, while it is wanted, before the crawl closes.
PATIENCE = 5
#: Seconds, at least, after which what nobody asks for is not wanted any more: what went back may come again.
PASSING = 10.0


class Keeper:
    """See the module's docstring. A part of the runtime, which starts and stops it.

    :param demand: returns, for each site, how many requests that are held ready want a proxy of a pool.
    :param on_look: called every :data:`LOOK` seconds.
    :param is_under_way: is a request that is no probe under way through a pool for longer than so many seconds?
    :ivar on_room: called when one of those that are held ready may have got room; set by the scheduler.
    """

    def __init__(
        self, crawler: Crawler, runtime: Runtime, demand: Callable[[str], Counter[str]], on_look: Callable[[], None],
        is_under_way: Callable[[str, float], bool],
    ) -> None:  # fmt: skip
        self._crawler = crawler
        self._runtime = runtime
        self._demand = demand
        self._on_look = on_look
        self._is_under_way = is_under_way
        self.on_room: Callable[[], None] = lambda: None
        self.pools: dict[str, Pool] = {}
        self.failures = Failures()
        self._refillers: list[Refiller[Resource]] = []
        for name, settings in runtime.settings.pools.items():
            self._build(name, settings)
        #: Pools that somebody waits for, or could not start for want of, since the last look.
        self._wanted: set[str] = set()
        self._waiting: Counter[str] = Counter()
        #: Pool -> clock times (s) since and at which it was wanted.
        self._wanted_for: dict[str, tuple[float, float]] = {}
        #: Pool -> clock time (s) since which what is held ready waits for it in vain.
        self._dry_since: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        #: Pool -> clock time (s) at which it was told last that it has nothing usable.
        self._told: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Keeper of {', '.join(map(repr, self.pools.values()))}>"

    # what the way of a request asks

    def has_room(self, name: str, site: str, key: str, coming: int, coming_of_key: int) -> bool:
        """Is there a proxy of a pool for one more request to *site*, besides *coming* that are about to take theirs?

        :param key: keeps requests on one proxy; *coming_of_key* of those that are about to come have the same one.
        """
        if self.pools[name].may_come(site, key, coming, coming_of_key):
            return True
        self._wanted.add(name)
        self._dry_since.setdefault(name, time.monotonic())
        return False

    def lacks(self, name: str, site: str, key: str) -> bool:
        """Does a request to *site* that is held ready want a proxy more than this node has?"""
        return self.pools[name].lacks(site, key)

    def serves(self, name: str) -> None:
        """A request got a proxy of this pool."""
        if self._dry_since:
            self._dry_since.pop(name, None)

    def is_dry(self, name: str) -> bool:
        """Has no request got a proxy of this pool for LEASE_PROXY_WAIT, although one that is held ready wants one?"""
        since = self._dry_since.get(name)
        return since is not None and time.monotonic() - since > self.pools[name].options.wait

    def count(self, name: str, what: str) -> None:
        """Count a stat of a pool."""
        self._runtime.stats.count(f"proxy/{what}/{name}")

    async def wait(self, name: str, site: str, key: str, avoid: frozenset[str]) -> Use:
        """Wait for a proxy of a pool.

        :raises NoResource: in vain.
        """
        self._waiting[name] += 1
        try:
            return await self.pools[name].take(site, sticky=key, avoid=avoid)
        finally:
            self._waiting[name] -= 1
            self._wanted.add(name)

    # what the runtime tells

    def start(self) -> None:
        for refiller in self._refillers:
            refiller.start()
        for pool in self.pools.values():
            pool.start()
        self._task = asyncio.ensure_future(self._look())

    def beaten(self, beat: Beat | None) -> None:
        for pool in self.pools.values():
            pool.beaten(beat)
            if beat is None:
                pool.lost()

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            await asyncio.gather(*(refiller.stop() for refiller in self._refillers))
            await asyncio.gather(*(pool.stop() for pool in self.pools.values()))

    async def stop(self) -> None:
        await self.leave()

    # inside

    def _build(self, name: str, settings: PoolSettings) -> None:
        runtime = self._runtime
        keys = runtime.scope.namespace.pool("proxy", name)
        store = PoolScripts(runtime.scripts.channel, keys)
        supply = self._supply(name, settings)
        count = runtime.stats.of_pool("proxy", name)
        options = PoolOptions(
            name, concurrency=settings.concurrency, reuse=settings.reuse, keep=settings.keep, margin=settings.margin,
            backoff=settings.backoff, grace=settings.grace, wait=settings.wait, sticky_ttl=settings.sticky_ttl,
            is_minted=supply.is_minted,
        )  # fmt: skip
        pool = self.pools[name] = Pool(
            options,
            store,
            runtime.session,
            count=count,
            demand=partial(self._demand, name),
            on_room=lambda: self.on_room(),
        )
        if supply.stock or supply.source is not None:
            refiller = Refiller(
                RefillOptions(name, settings.batch, settings.min_free, supply.limits), store, runtime.session,
                stock=supply.stock, source=supply.source, standing=lambda: pool.standing, count=count,
            )  # fmt: skip
            pool.filled_by(refiller.again, refiller.poke)
            self._refillers.append(refiller)

    def _supply(self, name: str, settings: PoolSettings) -> Supply:
        try:
            return supply_of(
                pool=name, namespace=self._runtime.scope.namespace.name, listed=settings.proxies, api=settings.api,
                provider=None if settings.provider is None else provider_of(settings.provider, self._crawler),
                limits=settings.buy_limit or (), sessions=settings.sessions, lifetime=settings.lifetime,
                check=None if settings.check is None else Check(settings.check, settings.check_timeout),
            )  # fmt: skip
        except ValueError as error:
            raise SettingsError(f"pool {name!r}: {error}") from None

    async def _look(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(LOOK)
            if self._runtime.is_leaving():
                # Who waits must not keep the crawl from closing.
                for pool in self.pools.values():
                    pool.close()
                return
            self._on_look()
            looks += 1
            if looks % SELDOM == 0:
                self._check()

    def _check(self) -> None:
        """Close the crawl when a wanted pool has had nothing usable for long; say before that it has nothing."""
        now = time.monotonic()
        for name in self._needed(now):
            pool = self.pools[name]
            wait = pool.options.wait
            useless_for, limit = min(pool.useless_for, now - self._wanted_for[name][0]), PATIENCE * wait
            is_worth_telling = useless_for > 0 and (not pool.is_usable or useless_for > wait)
            if is_worth_telling and now - self._told.get(name, float("-inf")) > TELL_AGAIN:
                self._told[name] = now
                logger.warning(
                    "Pool %s has no usable proxy%s: requests wait, and after %g s (%d × LEASE_PROXY_WAIT) the crawl "
                    "closes", name, self.failures.told(name), limit, PATIENCE,
                )  # fmt: skip
            if useless_for > limit and self._may_close(name, useless_for):
                logger.error(
                    "Pool %s has had no usable proxy for %.0f s%s: closing; scrapy-lease proxies list tells what rests",
                    name, useless_for, self.failures.told(name),
                )  # fmt: skip
                self._closing = asyncio.ensure_future(self._close())

    def _needed(self, now: float) -> set[str]:
        """Return the pools that somebody waits for, waited for since the last look, or uses."""
        wanted, self._wanted = self._wanted | {name for name, number in self._waiting.items() if number}, set()
        wanted |= {name for name, pool in self.pools.items() if pool.is_in_use}
        for name in wanted:
            since, _ = self._wanted_for.get(name, (now, now))
            self._wanted_for[name] = since, now
        for name, (_, last) in list(self._wanted_for.items()):
            if now - last > max(PASSING, self.pools[name].options.wait):
                del self._wanted_for[name]
        return wanted

    def _may_close(self, name: str, useless_for: float) -> bool:
        """Is nothing under way that began before, and may still be answered, and does the store answer?"""
        is_down = self._runtime.availability.down_since is not None
        return self._closing is None and not is_down and not self._is_under_way(name, useless_for)

    async def _close(self) -> None:
        await self._crawler.engine.close_spider_async(reason="lease_no_proxies")
