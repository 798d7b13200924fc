"""What an answer says of the account that asked, and what is not the account's affair.

- Where a proxy carried the request, a refusal is the proxy's: unless three addresses in a row were refused with one
  account while the site served others, or refused no other, or one address was before and after it served another
  account there.
- A URL that three accounts (or all) were refused which their site had served before is itself refused.
- An answer to what was sent before the last login says nothing of that.
- Transport, proxy and site have faults of their own: none is an account's.
"""

from __future__ import annotations

import time
from typing import NamedTuple, TypeVar

from scrapy import Request
from scrapy.http import Response

from scrapy_lease.accounts.profile import Profile
from scrapy_lease.accounts.trips import Trip
from scrapy_lease.leases.pool.options import Judgement
from scrapy_lease.policy import Verdict
from scrapy_lease.pools.routing import site_of

T = TypeVar("T")

#: Accounts that must be refused a URL before it is the URL; addresses that must be before it is the account.
WITNESSES = 3
#: Sites that are remembered to have served accounts; addresses, and accounts, of each.
SITES, NAMES = 1000, 1000
#: Seconds for which a refusal is held against an account that is served nothing here since.
MEMORY = 600.0
#: Headers by which sites tell how many more requests they take, and when that begins anew.
_LIMITS = (
    ("X-RateLimit-Remaining", "X-RateLimit-Reset"), ("X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"),
    ("RateLimit-Remaining", "RateLimit-Reset"),
)  # fmt: skip
#: No number of seconds that a site means is greater: it is a moment.
_LONGEST = 1e8
#: Of an answer that is the account's affair alone, as its proxy hears of it.
ACCOUNTS_AFFAIR = Verdict("logged_out")


class _Known(NamedTuple):
    """Clock times (s) of what happened last at a site: accounts were served, and refused; addresses carried a page."""

    served: dict[str, float]
    refused: dict[str, float]
    carried: dict[str, float]


def _note(table: dict[str, T], name: str, what: T) -> None:
    """Put down *what* was last, and forget what was so long ago that too many followed."""
    table.pop(name, None)
    table[name] = what
    if len(table) > NAMES:
        del table[next(iter(table))]


class Culprits:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        #: Account -> address that was refused with it in a row -> clock time (s) at which it was first.
        self._refused_through: dict[str, dict[str, float]] = {}

    def __repr__(self) -> str:
        return f"<Culprits: {len(self._known)} sites>"

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
        self._refused_through.pop(profile.key, None)
        known = self._known_of(site)
        _note(known.served, profile.lease.id, time.monotonic())
        _note(known.carried, exit_, time.monotonic())

    def _is_accounts(self, profile: Profile, site: str, exit_: str) -> bool:
        known, mine = self._known_of(site), profile.lease.id
        _note(known.refused, mine, time.monotonic())
        through = self._refusals_of(profile)
        # What it is served itself ends its refusals: what was carried after the first was another's.
        first = through.setdefault(exit_, time.monotonic())
        if known.carried.get(exit_, 0.0) > first:
            return True
        since = min(through.values())
        are_others_served, are_others_refused = (
            any(at > since for id_, at in table.items() if id_ != mine) for table in (known.served, known.refused)
        )
        return len(through) >= WITNESSES and (are_others_served or not are_others_refused)

    def _refusals_of(self, profile: Profile) -> dict[str, float]:
        """Return the addresses that were refused with an account in a row, also under a lease of it that has ended."""
        before = time.monotonic() - MEMORY
        known = self._refused_through.get(profile.key, {})
        through = {exit_: at for exit_, at in known.items() if at > before}
        _note(self._refused_through, profile.key, through)
        return through

    def _known_of(self, site: str) -> _Known:
        if site not in self._known:
            if len(self._known) >= SITES:
                self._known.clear()
            self._known[site] = _Known({}, {}, {})
        return self._known[site]


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
