"""The address of an account: one leased proxy that follows it by a sticky key, on every host, or one of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scrapy import Request

from scrapy_lease.accounts.profile import Profile
from scrapy_lease.accounts.trips import Trip
from scrapy_lease.leases.pool.ties import STRICT
from scrapy_lease.policy import Verdict
from scrapy_lease.proxies.manager import Proxies
from scrapy_lease.settings.pools import AccountPoolSettings


class Joint:
    """What proxies ask of requests that go as accounts.

    :param profile_of: returns as whom a request goes.
    """

    def __init__(
        self, profile_of: Callable[[Request], Profile | None], trips: Mapping[Request, Trip],
        settings: Mapping[str, AccountPoolSettings],
    ) -> None:  # fmt: skip
        self._profile_of = profile_of
        self._trips = trips
        self._settings = settings

    def __repr__(self) -> str:
        return f"<Joint of {', '.join(self._settings)}>"

    def attach(self, proxies: Proxies) -> None:
        """Be asked by *proxies*."""
        proxies.key_of, proxies.is_bound, proxies.found = self.key_of, self.is_bound, self.verdict

    def key_of(self, request: Request) -> str:
        """Return the key that keeps the account of *request* on its proxy, "" where it goes as none."""
        profile = self._profile_of(request)
        if profile is None:
            return ""
        return f"{STRICT}{profile.key}" if self._settings[profile.pool].on_proxy_lost == "wait" else profile.key

    def is_bound(self, request: Request) -> bool:
        """Has the account of *request* a proxy of its own, in no pool?"""
        profile = self._profile_of(request)
        return profile is not None and bool(profile.account.proxy)

    def verdict(self, request: Request) -> Verdict | None:
        """Return what was found of the answer to *request*, None where nobody asked."""
        trip = self._trips.get(request)
        return None if trip is None else trip.verdict
