"""When each request may be sent, as far as rate limits go: asked at hand-out, reserved on the way, spent at the gate.

Before a request is handed out, all its counters must have permits besides those that others have reserved; then it
reserves them. At the instant of sending they are spent, of all dimensions together or of none. What cannot be sent then
(its window has ended, another proxy has another address) goes back to the scheduler with nothing spent, and so does
whatever a middleware answers itself: it never comes to the gate.

A request that no scheduler gave (media, robots.txt) waits in the middleware, and at the gate, at most LEASE_PROXY_WAIT.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.leases.rates import RateOptions, Rates
from scrapy_lease.leases.session import Beat
from scrapy_lease.outcomes import Tracker
from scrapy_lease.rates.addresses import Addresses, exit_of
from scrapy_lease.rates.blocks import Blocks
from scrapy_lease.rates.charges import Charge, Charges
from scrapy_lease.rates.line import Row, demand_of, waits_of
from scrapy_lease.rates.neighbours import Neighbours
from scrapy_lease.rates.parking import Parking
from scrapy_lease.rates.pauses import Pauses
from scrapy_lease.rates.prices import Charger
from scrapy_lease.rates.tally import Tally
from scrapy_lease.rates.waiters import Waiters
from scrapy_lease.runtime import Runtime
from scrapy_lease.store.rate_scripts import RateScripts
from scrapy_lease.unfetched import no_permit

if TYPE_CHECKING:
    from scrapy_lease.accounts.manager import Accounts
    from scrapy_lease.proxies.manager import Proxies
    from scrapy_lease.scheduler.tries import Tries

#: Seconds between looks at what is parked; between those at who is to pause, alone and along with other calls.
LOOK, PAUSES, PAUSES_ALONG = 0.1, 0.9, 0.5
#: What is sent leaves some turns of the loop later, connecting and writing: so many times as late as one turn is.
TURNS = 2
#: How often in a row a request goes back for another address.
TRIES = 20


class Limiter:
    """See the module's docstring; use :meth:`of`. A part of the runtime, which starts and stops it.

    :ivar is_met_on_the_way: is what requests cost only known there, or has nobody asked before?
    """

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._tracker = Tracker.of(crawler)
        self._park_after = settings.rate_park_after
        self._media_wait = settings.proxy_wait
        store = RateScripts(runtime.scripts.channel, runtime.scope.namespace)
        options = RateOptions(settings.rate_algorithm, settings.rate_pace, settings.rate_shards, settings.timezone)
        self._rates = Rates(
            options, store, runtime.session,
            demand=lambda: demand_of(self._rows()), on_room=self._give_room, is_alone=runtime.gate.is_alone_now,
            lateness=lambda: TURNS * runtime.lag.recent, on_call=lambda: self._blocks.look(PAUSES_ALONG),
            on_forget=lambda: charger.forget(),
        )  # fmt: skip
        charger = self._charger = Charger(
            crawler, settings.rates, self._rates.counter, share=settings.rate_share, node_ip=settings.node_ip
        )
        neighbours = Neighbours(store, runtime.session, settings.rates, charger, lambda: waits_of(self._rows()))
        self._blocks = Blocks(
            store, neighbours.look, longest=settings.rate_retry_after_max, escalate=settings.rate_escalate
        )
        self._pauses = Pauses(crawler, settings, self._blocks)
        names = {dimension.name for dimension in settings.rates}
        self._has_addresses = "ip" in names and bool(settings.pools)
        self._has_accounts = "account" in names
        self.is_met_on_the_way = self._has_addresses or self._has_accounts or runtime.queue == "foreign"
        self._charges = Charges(
            charger, likely_exit=None if settings.pools else "",
            is_volatile="ua" in names or self._has_addresses or self._has_accounts,
        )  # fmt: skip
        self._tally = Tally(runtime.stats, names, ("ip",) if self._has_addresses else ())
        self._waiters = Waiters(self._rates.miss)
        self._proxies: Proxies | None = None
        #: Dimension -> those of its resources that have no permits left.
        self._spent: dict[str, Addresses] = {}
        self._parking: Parking | None = None
        self._wake_engine: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Return the limiter of *crawler*, made on first use."""
        limiter = _limiters.get(crawler)
        if limiter is None:
            runtime = Runtime.of(crawler)
            limiter = _limiters[crawler] = cls(crawler, runtime)
            runtime.parts.append(limiter)
            gate = runtime.gate
            gate.pay, gate.pay_in_time, gate.goes_again = limiter.spend, limiter.spend_in_time, limiter.goes_again
        return limiter  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<Limiter: {self._rates}>"

    def attach(
        self, tries: Tries, wake: Callable[[], None], proxies: Proxies | None, accounts: Accounts | None
    ) -> None:
        """Stand between the scheduler, which holds requests ready, and the engine.

        :param wake: lets the engine ask for requests.
        :param proxies: through which requests go, attached already; *accounts*: as which.
        """
        self._proxies = proxies
        self._pauses.attach(proxies, accounts)
        if proxies is not None and self._has_addresses:
            self._spent["ip"] = Addresses(proxies)
        if accounts is not None:
            self._charger.account_of = accounts.account_of
            if self._has_accounts:
                self._spent["account"] = Addresses(accounts)
        tries.conditions.append(self.may_start)
        tries.on_out.append(self.handed_out)
        tries.on_in.append(self.left)
        self._parking = Parking(tries, self._charges.likely, self._park_after)
        self._wake_engine = wake

    # what the scheduler asks and tells

    def may_start(self, request: Request) -> bool:
        """Are permits here for a request that is held ready? True too for one that is not limited, or is refused."""
        charge = self._charges.likely(request)
        if self._pauses.hold(request, charge) or charge.not_before > time.monotonic():
            return self._denied(charge)
        for spent in self._spent.values():
            not_before = spent.may_start(request)
            if not_before is not None:
                charge.not_before = not_before or charge.not_before
                return self._denied(charge)
        return self._rates.may_spend(charge.needs, charge.cost) or self._denied(charge)

    def handed_out(self, request: Request) -> None:
        """A request that may start goes to the engine."""
        self._charges.likely(request).reserve()

    def left(self, request: Request) -> None:
        """The way of a request through the downloader has ended: what it reserved and did not spend is others'."""
        if (charge := self._charges.get(request)) is not None:
            charge.release()

    # what the middleware and the gate see

    def enters(self, request: Request) -> Request | Awaitable[Request | None] | None:
        """*request* is on its way to the downloader, with its headers and its proxy: does it find permits?

        :returns: None, or what to wait for; a request: it has to go back.
        :raises RequestRefused: its meta asks for what cannot be.
        """
        charge = self._settle(request)
        if charge.is_reserved:
            return None
        is_scheduled = self._tracker.is_handed_out(request)
        if not is_scheduled:
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(lambda _: self.left(request))
        if self._rates.may_spend(charge.needs, charge.cost):
            charge.reserve()
            return None
        charge.has_waited = True
        return self._wait(request, charge, is_scheduled)

    def spend(self, request: Request) -> bool:
        """Spend what *request* costs at this instant, all of it or nothing; False: it may not be sent now.

        :raises RequestRefused: its meta asks for what cannot be.
        """
        charge = self._settle(request)
        charge.release()
        if self._pauses.hold(request, charge):
            return self._denied(charge)
        if charge.needs and not self._rates.spend(charge.needs, charge.cost):
            return self._denied(charge)
        self._tally.sent(charge)
        charge.has_waited, charge.denials = False, 0
        return True

    def goes_again(self, request: Request, response: Response) -> bool:
        """Take in what an answer says of the site's patience; has the request to go out again, later?"""
        if not self._pauses.may_ask(response.status):
            return False
        is_scheduled = self._tracker.is_tracked(request)
        return self._pauses.asks(request, response, is_scheduled=is_scheduled) and is_scheduled

    async def spend_in_time(self, request: Request, check: Callable[[Request], None]) -> None:
        """Spend what a request costs that no scheduler gave; wait for it if need be.

        :param check: called before anything is spent; raises if the request may not be sent any more.
        :raises NoPermit: in vain.
        """
        ends = time.monotonic() + self._media_wait
        check(request)
        while not self.spend(request):
            if not await self._wait_long(self._settle(request), ends):
                raise no_permit(request)
            check(request)

    # what the runtime tells

    def start(self) -> None:
        self._rates.start()
        self._task = asyncio.ensure_future(self._look())

    def beaten(self, beat: Beat | None) -> None:
        self._rates.beaten()

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._waiters.let_go()
        await self._blocks.stop()
        await self._rates.stop()

    async def stop(self) -> None:
        await self.leave()

    # inside

    def _settle(self, request: Request) -> Charge:
        """Find out what a request costs that has its headers and its proxy."""
        return self._charges.settled(request, exit_of(self._proxies, request))

    def _denied(self, charge: Charge) -> bool:
        charge.has_waited = True
        if self._parking is not None:
            self._parking.is_denied = True
        return False

    async def _wait(self, request: Request, charge: Charge, is_scheduled: bool) -> Request | None:
        if not is_scheduled:
            if await self._wait_long(charge, time.monotonic() + self._media_wait):
                return None
            raise no_permit(request)
        is_near = self._rates.opens_in(charge.needs) <= self._park_after
        if is_near and await self._waiters.wait(charge, self._park_after):
            return None
        charge.denials += 1
        opens_at = time.monotonic() + max(LOOK, self._rates.opens_in(charge.needs))
        empty = {counter.name.rule for counter in charge.needs if not counter.has(charge.cost)} & self._spent.keys()
        if empty and charge.denials <= TRIES:
            for rule in empty:
                self._spent[rule].spend(request, opens_at)
        else:
            # Another address would not help.
            charge.not_before = opens_at
        return request

    async def _wait_long(self, charge: Charge, ends: float) -> bool:
        """Wait until permits are reserved for *charge*, or until clock time *ends* (s), or the crawl closes."""
        while (left := ends - (now := time.monotonic())) > 0 and not self._runtime.is_leaving():
            if charge.not_before <= now and self._rates.may_spend(charge.needs, charge.cost):
                charge.reserve()
                return True
            rest = max(LOOK, self._rates.opens_in(charge.needs), charge.not_before - now)
            if await self._waiters.wait(charge, min(left, rest)):
                return True
        return False

    def _give_room(self) -> None:
        """Permits have come: first for those that wait in the middleware, in their order."""
        for charge in self._waiters:
            if self._rates.may_spend(charge.needs, charge.cost):
                charge.reserve()
                self._waiters.wake(charge)
            elif self._rates.opens_in(charge.needs) > self._park_after:
                # In vain, as is known now; media wait on in their own time.
                self._waiters.wake(charge)
        if self._parking is not None:
            self._parking.put_back()
        self._wake_engine()

    def _rows(self) -> Iterator[Row]:
        """Requests at hand, those that reserved their permits aside."""
        yield from () if self._parking is None else self._parking.rows()
        yield from self._waiters.rows()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self._blocks.look(PAUSES)
            if self._runtime.is_leaving():
                # Who waits must not keep the crawl from closing.
                self._waiters.let_go()
            elif self._parking is not None and self._parking.is_busy:
                self._tally.parked(self._parking.park())
                self._give_room()


_limiters: WeakKeyDictionary[Crawler, Limiter] = WeakKeyDictionary()
