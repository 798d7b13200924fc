"""Requests through leased proxies: what each goes through, and what its answer says of that.

What is refused through one proxy goes out again on another, LEASE_PROXY_RETRIES times; see
:mod:`scrapy_lease.pools.uses`. No request ever goes directly for want of a proxy.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_lease.exceptions import LeaseLost, NoProxy, SettingsError
from scrapy_lease.leases.pool.options import Judgement, Kind, PoolOptions, Sentence
from scrapy_lease.leases.pool.refill import RefillOptions
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.leases.pool.ties import STRICT
from scrapy_lease.meta import read_record
from scrapy_lease.policy import OK, UNUSED, Judge, Verdict, words_of
from scrapy_lease.pools.goods import PROXY
from scrapy_lease.pools.keeper import Plan
from scrapy_lease.pools.routing import ProxyRouter, refused, site_of
from scrapy_lease.pools.uses import Uses
from scrapy_lease.pools.waiting_room import name_in
from scrapy_lease.providers.identity import shown
from scrapy_lease.providers.owned import Owned, Owner
from scrapy_lease.providers.supplies import Supply, check_of, provider_of, supply_of
from scrapy_lease.proxies.stranded import Stranded
from scrapy_lease.proxies.trips import Trip, clean, strip, url_of
from scrapy_lease.runtime import Runtime
from scrapy_lease.settings.pools import PoolSettings
from scrapy_lease.store.pool_scripts import PoolScripts
from scrapy_lease.unfetched import no_proxy

logger = logging.getLogger(__name__)

_TARGET = Judgement("target")


class Proxies(Uses[Trip]):
    """See the module's docstring; use :meth:`of`.

    :ivar owner_of: returns the account that a request goes as, None for none.
    :ivar on_stranded: called with an account whose only proxy does not serve, and for how many seconds (0: unknown).
    :ivar is_bound: has a request a proxy already that is in no pool?
    :ivar found: returns the verdict on an answer where another has judged it.
    """

    goods = PROXY

    def __init__(self, crawler: Crawler, runtime: Runtime) -> None:
        settings = runtime.settings
        self._settings = settings.pools
        made = {name: _plan(crawler, runtime, name, pool) for name, pool in settings.pools.items()}
        plans = {name: plan for name, (plan, _) in made.items()}
        self._owned = {name: owned for name, (_, owned) in made.items() if owned is not None}
        super().__init__(crawler, runtime, ProxyRouter(settings.proxy_pool, settings.pools), plans)
        self._judge = Judge.from_crawler(crawler, settings.verdicts, settings.policy)
        self.owner_of: Callable[[Request], Owner | None] = lambda request: None
        self.on_stranded: Callable[[Owner, float], None] = lambda owner, seconds: None
        self._stranded = Stranded()
        self.is_bound: Callable[[Request], bool] = lambda request: False
        self.found: Callable[[Request], Verdict | None] = lambda request: None

    # what the middlewares see

    def enters(self, request: Request) -> Request | Awaitable[Request | None] | None:
        """*request* is on its way to the downloader: give it a proxy.

        :returns: None, or what to wait for; a request: it has to go back.
        :raises RequestRefused: its meta asks for what there is not.
        """
        site = self.waiting_room.left(request) or site_of(request)
        if self.is_bound(request):
            return None
        is_scheduled, owner = self._tracker.is_handed_out(request), self.owner_of(request)
        way = self._router.way_of(request, is_media=not is_scheduled and owner is None)
        trip = self._trips.get(request)
        if way is None:
            if trip is not None:
                strip(request)
            self._goes_without(request)
            return None
        if trip is None:
            trip = self._active.get(request) or Trip()
        trip.is_scheduled = is_scheduled
        name = name_in(way, trip)
        find = self._own_of if name in self._owned else self._any_of
        how = find(request, trip, name, owner)
        trip.owner = owner if owner is not None and how["sticky"].startswith(STRICT) else None
        use = self._pools[name].take_now(site, sticky=how["sticky"], avoid=how["avoid"])
        if use is None and trip.owner is not None and (rest := self._stranded.left(trip.owner, name, site)) > 0:
            self.on_stranded(trip.owner, rest)
            return self._give_up(request, trip, "the only proxy of its account rests")
        if use is None:
            return self._wait(request, trip, name, site, **how)
        self._begin(request, trip, name, use)
        return None

    def let_go(self, owner: Owner) -> None:
        """An account leaves this node: so does what was made for it, with its last request."""
        for name, owned in self._owned.items():
            self._pools[name].let_go(owned.key_of(owner))

    def answered(self, request: Request, response: Response) -> Response | Request:
        """Judge the answer to *request*; return it, or the request where it goes out again.

        :raises IgnoreRequest: its URL is refused, whoever asks.
        :raises NoProxy: it cannot go out again.
        """
        trip = self._active.get(request)
        if trip is None:
            return response
        verdict = UNUSED
        if trip.is_sent:
            verdict = self.found(request) or self._judge.response(request, response, is_scheduled=trip.is_scheduled)
            if verdict.word == "limited":
                self.on_limited(request, response)
        why = "" if verdict is OK else f"status {response.status}"
        sentence = self._end(request, trip, verdict, why)
        if sentence == "pass":
            return response
        if sentence == "rejected":
            raise IgnoreRequest(f"{request} is refused through every proxy ({why})")
        return self._again(request, trip, f"{verdict.word} ({why})")

    def failed(self, request: Request, error: Exception) -> Request | None:
        """Judge the want of an answer to *request*; return it where it goes out again.

        :raises IgnoreRequest: its URL is refused, whoever asks.
        :raises NoProxy: it cannot go out again.
        """
        trip = self._active.get(request)
        if trip is None or trip.use is None:
            return None
        if isinstance(error, LeaseLost):
            # The session, not the proxy; whoever has a scheduler has gone back to it already.
            self._end(request, trip, UNUSED)
            return self._again(request, trip, "the lease was lost")
        verdict, url = UNUSED, url_of(trip.use.lease.body)
        if trip.is_sent:
            verdict = self._judge.exception(request, error, is_scheduled=trip.is_scheduled)
        why = words_of(error)
        sentence = self._end(request, trip, verdict, why)
        if sentence == "pass":
            if (cleaned := clean(error, url)) is not None:
                raise cleaned from None
            return None
        if sentence == "rejected":
            raise IgnoreRequest(f"{request} is refused through every proxy ({why})")
        return self._again(request, trip, f"{verdict.word} ({why})")

    # inside

    def _needs_use(self, request: Request) -> bool:
        if self.is_bound(request):
            return False
        is_media = not self._tracker.is_tracked(request) and self.owner_of(request) is None
        return self._router.has_way(request, is_media=is_media)

    def _any_of(self, request: Request, trip: Trip, name: str, owner: Owner | None) -> dict[str, Any]:
        """Return what *request* may have of a pool of which anybody may have anything."""
        key = self._router.key_of(request, name, "" if owner is None else owner.sticky)
        return {"sticky": key, "avoid": trip.avoid.union(self.spent()) if self.spent is not None else trip.avoid}

    def _own_of(self, request: Request, trip: Trip, name: str, owner: Owner | None) -> dict[str, Any]:
        """The same, where each account has its own: an address without permits left is waited for, not changed.

        :raises RequestRefused: it goes as no account, or as one that can have none there.
        :raises NoProxy: the same, of what no scheduler gave.
        """
        owned, fault = self._owned[name], "it goes as no account"
        if owner is not None:
            unfit = owned.unfit(owner)
            if not unfit:
                return {"sticky": owned.key_of(owner), "avoid": trip.avoid, "make": partial(owned.make, owner)}
            fault = f"the id of account {owner.account} {unfit}"
        self._trips.pop(request, None)
        text = f"{fault}, and the gateways of pool {name!r} have an {{account}} in their credentials"
        if not trip.is_scheduled:
            raise self._missing(request, text)
        raise refused(request, text)

    async def _wait(self, request: Request, trip: Trip, name: str, site: str, **how: Any) -> Request | None:
        use = await self._taken(request, trip, name, site, **how)
        if use is None:
            if trip.owner is not None:
                self.on_stranded(trip.owner, 0.0)
            return request
        self._begin(request, trip, name, use)
        return None

    def _begin(self, request: Request, trip: Trip, name: str, use: Use) -> None:
        super()._begin(request, trip, name, use)
        record = read_record(request.meta)
        if record is not None:
            record["proxy"] = shown(use.lease.id)

    def _give_up_use(self, request: Request, trip: Trip) -> None:
        self._end(request, trip, UNUSED)

    def _missing(self, request: Request, reason: str) -> NoProxy:
        return no_proxy(request, reason)

    def _tries_of(self, trip: Trip) -> int:
        return self._settings[trip.pool].retries

    def _end(self, request: Request, trip: Trip, verdict: Verdict, why: str = "") -> Sentence:
        """End the present use; *verdict* UNUSED of a request that was sent says that nobody knows what became of it."""
        use = trip.finish(request)
        assert use is not None
        del self._active[request]
        word, url, pool = verdict.word, request.url, self._pools[trip.pool]
        if word == "rejected":
            pool.end(use, _TARGET)
            return "rejected"
        if word == "unused" and trip.is_sent:
            word = "cut" if trip.was_cut else "back"
        judgement = Judgement(cast(Kind, word), url, verdict.wait or 0.0)
        sentence = pool.end(use, judgement, trip.refusals)
        if sentence == "again":
            trip.avoid |= {use.lease.id}
            trip.bans += word in ("ban", "limited")
            self.keeper.failures.note(trip.pool, why)
            if trip.owner is not None and (rest := use.lease.rest_at(use.site)) > 0:
                self._stranded.note(trip.owner, trip.pool, use.site, min(rest, pool.options.wait))
                self.on_stranded(trip.owner, rest)
            logger.debug("%s through %s: %s (%s)", request, shown(use.lease.id), word, why)
        return sentence


def _plan(
    crawler: Crawler, runtime: Runtime, name: str, settings: PoolSettings
) -> tuple[Plan, Owned | None]:  # fmt: skip
    """Return how a pool of proxies is made, and who makes what is for accounts.

    :raises SettingsError: what it is filled from does not go together.
    """
    space = runtime.scope.namespace
    supply = _supply(crawler, space.name, name, settings)
    options = PoolOptions(
        name, concurrency=settings.concurrency, reuse=settings.reuse, keep=settings.keep, margin=settings.margin,
        backoff=settings.backoff, grace=settings.grace, wait=settings.wait, sticky_ttl=settings.sticky_ttl,
        is_minted=supply.is_minted, is_owned=supply.owned is not None,
    )  # fmt: skip
    refill = None
    if supply.stock or supply.source is not None:
        refill = RefillOptions(name, settings.batch, settings.min_free, supply.limits)
    store = PoolScripts(runtime.scripts.channel, space.pool(PROXY.kind, name))
    return Plan(options, store, refill, supply.stock, supply.source), supply.owned


def _supply(crawler: Crawler, namespace: str, name: str, settings: PoolSettings) -> Supply:
    try:
        return supply_of(
            pool=name, namespace=namespace, listed=settings.proxies, api=settings.api,
            provider=None if settings.provider is None else provider_of(settings.provider, crawler),
            limits=settings.buy_limit or (), sessions=settings.sessions, lifetime=settings.lifetime,
            check=check_of(settings.check, settings.check_timeout),
            encoding=crawler.settings["HTTPPROXY_AUTH_ENCODING"],
        )  # fmt: skip
    except ValueError as error:
        raise SettingsError(f"pool {name!r}: {error}") from None
