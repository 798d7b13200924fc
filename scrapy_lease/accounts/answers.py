"""What an answer to a request of an account leads to: it goes on, the request goes out again, or its URL is refused.

A use whose answer passes ends outside of Scrapy's CookiesMiddleware, so that the cookies of the answer are in the jar
before another may get the account. Where a leased proxy carried the request, that is told its own part, and decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_lease.accounts.culprits import ACCOUNTS_AFFAIR, WITNESSES, Culprits
from scrapy_lease.accounts.trips import Trip
from scrapy_lease.exceptions import LeaseLost, NoAccount
from scrapy_lease.leases.pool.options import UNUSED as UNUSED_USE
from scrapy_lease.leases.pool.options import Judgement
from scrapy_lease.policy import PASSING, UNUSED, Judge
from scrapy_lease.pools.goods import ACCOUNT
from scrapy_lease.pools.keeper import Plan
from scrapy_lease.pools.routing import Router
from scrapy_lease.pools.uses import Uses
from scrapy_lease.proxies.manager import Proxies
from scrapy_lease.proxies.trips import clean
from scrapy_lease.rates.addresses import exit_of
from scrapy_lease.runtime import Runtime

#: How often a request goes out again, before its item goes back.
RETRIES = 5


class Answers(Uses[Trip]):
    """See the module's docstring."""

    goods = ACCOUNT

    def __init__(self, crawler: Crawler, runtime: Runtime, router: Router, plans: Mapping[str, Plan]) -> None:
        super().__init__(crawler, runtime, router, plans)
        settings = runtime.settings
        self._judge = Judge.from_crawler(crawler, settings.verdicts, settings.policy)
        self._direct_judge = Judge.from_crawler(crawler, settings.direct_verdicts, settings.policy)
        self._culprits = Culprits()
        self._proxies: Proxies | None = None

    def answered(self, request: Request, response: Response) -> Response | Request:
        """Judge the answer to *request*, innermost; return it, or the request where it goes out again.

        :raises IgnoreRequest: its URL is refused, whoever asks.
        :raises NoAccount: it cannot go out again.
        """
        trip = self._active.get(request)
        if trip is None or trip.profile is None:
            return response
        verdict = UNUSED
        is_proxied = self._proxies is not None and self._proxies.has_use(request)
        if trip.is_sent:
            judge = self._judge if is_proxied or trip.is_bound else self._direct_judge
            verdict = judge.response(request, response, is_scheduled=trip.is_scheduled)
        trip.verdict = verdict
        exit_ = exit_of(self._proxies, request)
        trip.judgement = self._culprits.judgement(trip, verdict, request, response, exit_)
        if verdict.word in PASSING:
            trip.profile.is_changed |= b"Set-Cookie" in response.headers
            return response
        return self._refused(request, trip, response, is_proxied)

    def leaves(self, request: Request) -> None:
        """The answer to *request* has passed the cookies: nothing of the account goes further."""
        trip = self._active.get(request)
        if trip is not None:
            self._end(request, trip, trip.judgement)

    def failed(self, request: Request, error: Exception) -> Request | None:
        """Judge the want of an answer to *request*; return it where it goes out again.

        :raises NoAccount: it cannot go out again.
        """
        trip = self._active.get(request)
        if trip is None or trip.profile is None:
            return None
        if isinstance(error, LeaseLost) and not trip.is_scheduled:
            self._end(request, trip, None)
            return self._again(request, trip, "the lease was lost")
        if not trip.is_bound:
            return None
        url = trip.profile.account.proxy
        verdict = self._judge.exception(request, error, is_scheduled=trip.is_scheduled)
        if verdict.word in ("broken", "expired"):
            # Its address is lost, and it must have no other.
            self._end(request, trip, Judgement("limited"))
            return self._again(request, trip, f"its proxy is {verdict.word} ({type(error).__name__})")
        if (cleaned := clean(error, url)) is not None:
            raise cleaned from None
        return None

    # inside

    def _refused(self, request: Request, trip: Trip, response: Response, is_proxied: bool) -> Response | Request:
        """What is no page goes out again, or its URL is refused to all; a proxy that carried it is asked next."""
        verdict, judgement, pool = trip.verdict, trip.judgement, self._pools[trip.pool]
        assert verdict is not None
        if verdict.word == "limited":
            self.on_limited(request, response)
        known = pool.standing.known if pool.standing is not None else WITNESSES
        is_the_urls = verdict.word == "ban" and not is_proxied and self._culprits.are_the_urls(trip, known)
        self._end(request, trip, None if is_the_urls else judgement)
        if is_proxied:
            if judgement is not None:
                trip.verdict = ACCOUNTS_AFFAIR
            return response
        if is_the_urls or verdict.word == "rejected":
            raise IgnoreRequest(f"{request} is refused to every account (status {response.status})")
        return self._again(request, trip, f"{verdict.word} (status {response.status})")

    def _end(self, request: Request, trip: Trip, judgement: Judgement | None) -> None:
        """End the present use; *judgement* None: what became of it says nothing of the account."""
        if judgement is None:
            judgement = Judgement("back") if trip.sent_at else UNUSED_USE
        use = trip.finish(request)
        assert use is not None
        del self._active[request]
        if judgement.kind in ("ban", "limited", "cold"):
            trip.avoid |= {use.lease.id}
            trip.bans += judgement.kind != "cold"
        sentence = self._pools[trip.pool].end(use, judgement, None)
        if sentence == "again":
            self.keeper.failures.note(trip.pool, judgement.why or judgement.kind)

    def _give_up_use(self, request: Request, trip: Trip) -> None:
        self._end(request, trip, trip.judgement)

    def _missing(self, request: Request, reason: str) -> NoAccount:
        return NoAccount(f"{request} is not fetched: {reason}")

    def _tries_of(self, trip: Trip) -> int:
        return RETRIES
