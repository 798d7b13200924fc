"""What an answer says of the account that asked, and what is not the account's affair.

- Where a proxy carried the request, a refusal is the proxy's: unless three addresses in a row were refused with one
  account while the site served others, or one address was before and after it served another account there.
- A URL that three accounts (or all) were refused which their site had served before is itself refused.
- An answer to what was sent before the last login says nothing of that.
- Transport, proxy and site have faults of their own: none is an account's.
"""

from __future__ import annotations

import time
from collections import defaultdict

from scrapy import Request
from scrapy.http import Response

from scrapy_lease.accounts.profile import Profile
from scrapy_lease.accounts.trips import Trip
from scrapy_lease.leases.pool.options import Judgement
from scrapy_lease.policy import Verdict
from scrapy_lease.pools.routing import site_of

#: Accounts that must be refused a URL before it is the URL; addresses that must be before it is the account.
WITNESSES = 3
#: Sites that are remembered to have served accounts.
SITES = 1000
#: Headers by which sites tell how many more requests they take, and when that begins anew.
_LIMITS = (
    ("X-RateLimit-Remaining", "X-RateLimit-Reset"), ("X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"),
    ("RateLimit-Remaining", "RateLimit-Reset"),
)  # fmt: skip
#: No number of seconds that a site means is greater: it is a moment.
_LONGEST = 1e8
#: Of an answer that is the account's affair alone, as its proxy hears of it.
ACCOUNTS_AFFAIR = Verdict("logged_out")


class Culprits:
    """See the module's docstring."""

    def __init__(self) -> None:
        #: Site -> account -> clock time (s) at which it was served last.
        self._served: defaultdict[str, dict[str, float]] = defaultdict(dict)
        #: Site -> address -> clock time (s) at which an account was served through it last.
        self._carried: defaultdict[str, dict[str, float]] = defaultdict(dict)

    def __repr__(self) -> str:
        return f"<Culprits: {len(self._served)} sites>"

    def judgement(
        self, trip: Trip, verdict: Verdict, request: Request, response: Response, exit_: str
    ) -> Judgement | None:
        """Return what *response* says of the account; None: nothing.

        :param exit_: the leased address that carried it, "": none did.
        """
        profile, word = trip.profile, verdict.word
        assert profile is not None
        if word == "ok":
            self._serves(profile, site_of(request), exit_)
            return Judgement("ok", retry_after=reset_after(response), seconds=time.monotonic() - trip.sent_at)
        if word == "limited":
            return Judgement("limited", retry_after=verdict.wait or 0.0)
        if word == "logged_out" and trip.generation == profile.generation:
            profile.logged_out()
            return Judgement("logged_out")
        if word == "ban":
            trip.refusals[profile.lease.id] = site_of(request) in profile.served
            if not exit_ or self._is_accounts(profile, site_of(request), exit_):
                return Judgement("ban", request.url)
        return None

    def are_the_urls(self, trip: Trip, known: int) -> bool:
        """Were enough of *known* accounts refused it that the site had served?"""
        return len(trip.refusals) >= max(1, min(WITNESSES, known)) and all(trip.refusals.values())

    def _serves(self, profile: Profile, site: str, exit_: str) -> None:
        profile.served.add(site)
        profile.refused_through.clear()
        if len(self._served) >= SITES and site not in self._served:
            self._served.clear()
            self._carried.clear()
        self._served[site][profile.lease.id] = self._carried[site][exit_] = time.monotonic()

    def _is_accounts(self, profile: Profile, site: str, exit_: str) -> bool:
        # What it is served itself ends its refusals: what was carried after the first was another's.
        first = profile.refused_through.setdefault(exit_, time.monotonic())
        if self._carried[site].get(exit_, 0.0) > first:
            return True
        since = min(profile.refused_through.values())
        others = (at for id_, at in self._served[site].items() if id_ != profile.lease.id)
        return len(profile.refused_through) >= WITNESSES and any(at > since for at in others)


def reset_after(response: Response) -> float:
    """Return the seconds until a site takes requests again that says it takes no more now; 0: it does not say so."""
    for remaining, reset in _LIMITS:
        if response.headers.get(remaining) == b"0":
            try:
                seconds = float(response.headers.get(reset) or 0)
            except ValueError:
                return 0.0
            return max(0.0, seconds if seconds < _LONGEST else seconds - time.time())
    return 0.0
