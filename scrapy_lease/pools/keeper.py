"""The pools of one crawl, of one kind of resource: started, filled, waited for, and left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from scrapy.crawler import Crawler

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.pool.pool import Pool
from scrapy_lease.leases.pool.refill import Refiller, RefillOptions
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.leases.session import Beat
from scrapy_lease.pools.failures import Failures
from scrapy_lease.pools.goods import Goods
from scrapy_lease.runtime import Runtime
from scrapy_lease.store.pool_scripts import PoolScripts, Resource

logger = logging.getLogger(__name__)

#: Seconds between looks.
LOOK = 0.1
#: Looks between those at what takes long to come about.
SELDOM = 10
#: Seconds after which it is told again that a pool has nothing usable.
TELL_AGAIN = 300.0
#: How many times LEASE_…_WAIT a pool may have nothing usable, while it is wanted, before the crawl closes.
PATIENCE = 5
#: Seconds, at least, after which what nobody asks for is not wanted any more: what went back may come again.
PASSING = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How one pool is made.

    :param refill: how it is filled; None: an operator fills it.
    :param stock: what is always in it; *source*: where more comes from, a
        :class:`~scrapy_lease.leases.pool.supply.Source`.
    """

    options: PoolOptions
    store: PoolScripts
    refill: RefillOptions | None
    stock: tuple[Resource, ...] = ()
    source: Any = None


class Keeper:
    """See the module's docstring. A part of the runtime, which starts and stops it.

    :param plans: how the pools are made, by name.
    :param demand: returns, for each site, how many requests that are held ready want a resource of a pool.
    :param on_look: called every :data:`LOOK` seconds.
    :param is_under_way: is a request that is no probe under way through a pool for longer than so many seconds?
    :ivar on_room: called when one of those that are held ready may have got room; set by the scheduler.
    :ivar on_leaving: called when the crawl is about to end, and waits only for what is being sent.
    """

    def __init__(
        self, goods: Goods, crawler: Crawler, runtime: Runtime, plans: Mapping[str, Plan], *,
        demand: Callable[[str], Counter[str]], on_look: Callable[[], None], is_under_way: Callable[[str, float], bool],
    ) -> None:  # fmt: skip
        self._goods = goods
        self._crawler = crawler
        self._runtime = runtime
        self._demand = demand
        self._on_look = on_look
        self._is_under_way = is_under_way
        self.on_room: Callable[[], None] = lambda: None
        self.on_leaving: Callable[[], None] = lambda: None
        self.pools: dict[str, Pool] = {}
        self.failures = Failures()
        self._refillers: list[Refiller[Resource]] = []
        for name, plan in plans.items():
            self._build(name, plan)
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
        """Is there one of a pool for one more request to *site*, besides *coming* that are about to take theirs?

        :param key: keeps requests on one resource; *coming_of_key* of those that are about to come have the same one.
        """
        if self.pools[name].may_come(site, key, coming, coming_of_key):
            return True
        self._wanted.add(name)
        self._dry_since.setdefault(name, time.monotonic())
        return False

    def lacks(self, name: str, site: str, key: str) -> bool:
        """Does a request to *site* that is held ready want one more than this node has?"""
        return self.pools[name].lacks(site, key)

    def serves(self, name: str) -> None:
        """A request got one of this pool."""
        if self._dry_since:
            self._dry_since.pop(name, None)

    def is_dry(self, name: str) -> bool:
        """Has no request got one of this pool for LEASE_…_WAIT, although one that is held ready wants one?"""
        since = self._dry_since.get(name)
        return since is not None and time.monotonic() - since > self.pools[name].options.wait

    def count(self, name: str, what: str) -> None:
        """Count a stat of a pool."""
        self._runtime.stats.count(f"{self._goods.kind}/{what}/{name}")

    async def wait(self, name: str, site: str, **how: Any) -> Use:
        """Wait for one of a pool; *how* as :meth:`Pool.take` has it.

        :raises NoResource: in vain.
        """
        self._waiting[name] += 1
        try:
            return await self.pools[name].take(site, **how)
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

    def _build(self, name: str, plan: Plan) -> None:
        session = self._runtime.session
        count = self._runtime.stats.of_pool(self._goods.kind, name)
        pool = self.pools[name] = Pool(
            plan.options,
            plan.store,
            session,
            count=count,
            demand=partial(self._demand, name),
            on_room=lambda: self.on_room(),
        )
        if plan.refill is not None:
            refiller = Refiller(
                plan.refill, plan.store, session,
                stock=plan.stock, source=plan.source, standing=lambda: pool.standing, count=count,
            )  # fmt: skip
            pool.filled_by(refiller.again, refiller.poke)
            self._refillers.append(refiller)

    async def _look(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(LOOK)
            if self._runtime.is_leaving():
                # Who waits must not keep the crawl from closing.
                for pool in self.pools.values():
                    pool.close()
                self.on_leaving()
                return
            self._on_look()
            looks += 1
            if looks % SELDOM == 0:
                self._check()

    def _check(self) -> None:
        """Close the crawl when a wanted pool has had nothing usable for long; say before that it has nothing."""
        now, goods = time.monotonic(), self._goods
        for name in self._needed(now):
            pool = self.pools[name]
            wait = pool.options.wait
            useless_for, limit = min(pool.useless_for, now - self._wanted_for[name][0]), PATIENCE * wait
            is_worth_telling = useless_for > 0 and (not pool.is_usable or useless_for > wait)
            if is_worth_telling and now - self._told.get(name, float("-inf")) > TELL_AGAIN:
                self._told[name] = now
                logger.warning(
                    "Pool %s has no usable %s%s: requests wait, and after %g s (%d × %s) the crawl closes",
                    name, goods.kind, self.failures.told(name), limit, PATIENCE, goods.wait,
                )  # fmt: skip
            if useless_for > limit and self._may_close(name, useless_for):
                logger.error(
                    "Pool %s has had no usable %s for %.0f s%s: closing; scrapy-lease %s list tells what rests",
                    name, goods.kind, useless_for, self.failures.told(name), goods.things,
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
        await self._crawler.engine.close_spider_async(reason=self._goods.reason)
