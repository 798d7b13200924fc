"""Requests with leased accounts: whom each goes as, and what its answer says of that account.

The lease of an account carries everything that a site could know it by: its cookiejar, its headers, its User-Agent, and
its address, which follows it by a sticky key or is its own. An account is taken before a proxy, and kept only while its
request has or waits for one. All requests of an item go as one account, while that is to be had.

See :mod:`scrapy_lease.pools.uses` for how uses begin and end, and :mod:`scrapy_lease.accounts.answers` for what answers
say.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_lease.accounts.answers import Answers
from scrapy_lease.accounts.joint import Joint
from scrapy_lease.accounts.logins import LOGIN, Logins
from scrapy_lease.accounts.plans import plan_of
from scrapy_lease.accounts.profile import Profile, Profiles
from scrapy_lease.accounts.sealing import Sealer, WrongKey
from scrapy_lease.accounts.trips import Trip, dress
from scrapy_lease.gate import Gate
from scrapy_lease.leases.items import Hold
from scrapy_lease.leases.pool.complaints import name_of
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.leases.session import Beat
from scrapy_lease.meta import read_record
from scrapy_lease.pools.routing import AccountRouter, site_of
from scrapy_lease.pools.waiting_room import name_in
from scrapy_lease.runtime import Runtime

if TYPE_CHECKING:
    from scrapy_lease.proxies.manager import Proxies
    from scrapy_lease.scheduler.tries import Tries

logger = logging.getLogger(__name__)


class Accounts(Answers):
    """See the module's docstring; use :meth:`of`. A part of the runtime, which starts and stops it."""

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        settings = runtime.settings
        pools = settings.account_pools_by_name
        self._crawler = crawler
        self._settings = pools
        sealer = Sealer(settings.account_key or "")
        made = {name: plan_of(crawler, runtime, pool, sealer) for name, pool in pools.items()}
        router = AccountRouter(settings.account_pool, settings.account_urls, pools)
        super().__init__(crawler, runtime, router, {name: plan for name, (plan, _) in made.items()})
        handlers = {name: handler for name, (_, handler) in made.items()}
        self._profiles = Profiles(crawler, sealer, self._pools, handlers)
        for name, pool in self._pools.items():
            pool.parting_with(self._profiles.parting(name))
        self._logins = Logins(crawler, handlers, self._profiles, self._direct_judge)
        self.keeper.on_leaving = self._logins.let_go
        self._hold_of: Callable[[Request], Hold | None] = lambda request: None
        self._closing: asyncio.Task[None] | None = None

    @property
    def part(self) -> Self:
        return self

    def attach(self, tries: Tries, gate: Gate, wake: Callable[[], None]) -> None:
        super().attach(tries, gate, wake)
        self._hold_of = tries.hold_of

    def go_through(self, proxies: Proxies) -> None:
        """Let each account have its own proxy of *proxies*."""
        self._proxies = proxies
        joint = Joint(self._profile_of, self._trips, self._settings, self._pools)
        joint.attach(proxies)
        self._profiles.on_parting = lambda profile: proxies.let_go(joint.owner(profile))

    def account_of(self, request: Request) -> str:
        """Return the id of the account as which *request* goes now, "" where it goes as none."""
        use = self.use_of(request)
        return "" if use is None else use.lease.id

    # what the gate asks

    def has_use(self, request: Request) -> bool:
        return request in self._active or LOGIN in request.meta

    def may_send(self, request: Request) -> bool:
        trip = self._active.get(request)
        if trip is not None:
            return trip.may_go_on and trip.use is not None and trip.use.may_send
        visitor: Profile | None = request.meta.get(LOGIN)
        return visitor.lease.is_held if visitor is not None else self._may_go_without(request)

    def sent(self, request: Request) -> None:
        super().sent(request)
        trip = self._active.get(request)
        if trip is not None and trip.use is not None:
            trip.sent_at = time.monotonic()
            trip.use.sent()

    # what the middlewares see

    def enters(self, request: Request) -> Request | Awaitable[Request | None] | None:
        """*request* is on its way to the downloader: let it go as an account.

        :returns: None, or what to wait for; a request: it has to go back.
        :raises RequestRefused: its meta asks for what there is not.
        """
        site = self.waiting_room.left(request) or site_of(request)
        visitor: Profile | None = request.meta.get(LOGIN)
        if visitor is not None:
            dress(request, visitor)
            return None
        is_scheduled = self._tracker.is_handed_out(request)
        way = self._router.way_of(request, is_media=not is_scheduled)
        if way is None:
            self._goes_without(request)
            return None
        trip = self._trips.get(request)
        if trip is None:
            trip = self._trips[request] = Trip()
        trip.is_scheduled = is_scheduled
        name = name_in(way, trip)
        avoid = trip.avoid.union(self.spent()) if self.spent is not None else trip.avoid
        hold = self._hold_of(request)
        keep = hold.account if hold is not None and hold.account not in avoid else ""
        use = self._pools[name].take_now(site, avoid=avoid, keep=keep)
        if use is None:
            return self._wait(request, trip, name, site, avoid=avoid, keep=keep)
        return self._goes(request, trip, name, use)

    # what the runtime tells

    def start(self) -> None:
        self.keeper.start()

    def beaten(self, beat: Beat | None) -> None:
        self.keeper.beaten(beat)

    async def leave(self) -> None:
        await self._logins.stop()
        await self.keeper.leave()

    async def stop(self) -> None:
        await self._logins.stop()
        await self.keeper.stop()

    # inside

    def _needs_use(self, request: Request) -> bool:
        return self._router.has_way(request, is_media=not self._tracker.is_tracked(request))

    async def _wait(self, request: Request, trip: Trip, name: str, site: str, **how: Any) -> Request | None:
        use = await self._taken(request, trip, name, site, **how)
        if use is None:
            return request
        going = self._goes(request, trip, name, use)
        return await going if isinstance(going, Awaitable) else going

    def _goes(self, request: Request, trip: Trip, name: str, use: Use) -> Request | Awaitable[Request | None] | None:
        """Let *request* go with *use*: at once, or after a login."""
        self._begin(request, trip, name, use)
        try:
            profile = self._profiles.of(name, use.lease)
        except WrongKey as error:
            self._end(request, trip, None)
            self._close(error)
            return self._give_up(request, trip, "its account cannot be read")
        hold = self._hold_of(request)
        if hold is not None:
            hold.account = use.lease.id
        if profile.needs_login:
            return self._after_login(request, trip, profile)
        return self._dressed(request, trip, profile)

    async def _after_login(self, request: Request, trip: Trip, profile: Profile) -> Request | None:
        use, is_first = trip.use, profile.login is None
        failure = await self._logins.run(profile)
        if trip.use is not use:
            return request
        if failure is not None:
            self._end(request, trip, failure if is_first else None)
            return self._again(request, trip, f"the login of {profile.lease.id} failed")
        if is_first:
            self.keeper.count(trip.pool, "logins")
        return self._dressed(request, trip, profile)

    def _dressed(self, request: Request, trip: Trip, profile: Profile) -> Request | None:
        """Let *request* go as *profile*; what the handler raises is held against the account, as with a login."""
        try:
            trip.dress(request, profile)
        except Exception as error:
            why = f"apply of LEASE_ACCOUNT_HANDLER raised {name_of(error)}"
            self._end(request, trip, self._logins.failed(profile, why))
            return self._again(request, trip, why)
        record = read_record(request.meta)
        if record is not None:
            record["account"] = profile.lease.id
        return None

    def _look(self) -> None:
        super()._look()
        self._profiles.keep(time.monotonic())

    def _profile_of(self, request: Request) -> Profile | None:
        trip = self._active.get(request)
        profile: Profile | None = trip.profile if trip is not None else request.meta.get(LOGIN)
        return profile

    def _close(self, error: WrongKey) -> None:
        if self._closing is None:
            logger.error("%s; closing", error)
            self._closing = asyncio.ensure_future(self._crawler.engine.close_spider_async(reason=self.goods.reason))
