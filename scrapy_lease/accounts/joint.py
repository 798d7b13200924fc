"""The address of an account: one leased proxy that follows it by a sticky key, on every host, or one of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scrapy import Request

from scrapy_lease.accounts.profile import Profile
from scrapy_lease.accounts.trips import Trip
from scrapy_lease.leases.pool.pool import Pool
from scrapy_lease.policy import Verdict
from scrapy_lease.providers.owned import Owner
from scrapy_lease.proxies.manager import Proxies
from scrapy_lease.settings.pools import AccountPoolSettings


class Joint:
    """What proxies ask of requests that go as accounts.

    :param profile_of: returns as whom a request goes.
    :param pools: of accounts.
    """

    def __init__(
        self, profile_of: Callable[[Request], Profile | None], trips: Mapping[Request, Trip],
        settings: Mapping[str, AccountPoolSettings], pools: Mapping[str, Pool],
    ) -> None:  # fmt: skip
        self._profile_of = profile_of
        self._trips = trips
        self._settings = settings
        self._pools = pools

    def __repr__(self) -> str:
        return f"<Joint of {', '.join(self._settings)}>"

    def attach(self, proxies: Proxies) -> None:
        """Be asked by *proxies*."""
        proxies.owner_of, proxies.is_bound, proxies.found = self.owner_of, self.is_bound, self.verdict
        proxies.on_stranded = self.on_stranded

    def owner_of(self, request: Request) -> Owner | None:
        """Return the account of *request*, None where it goes as none."""
        profile = self._profile_of(request)
        return None if profile is None else self.owner(profile)

    def owner(self, profile: Profile) -> Owner:
        """Return what proxies know an account by."""
        keeps = self._settings[profile.pool].on_proxy_lost == "wait"
        return Owner(profile.pool, profile.account.id, keeps)

    def on_stranded(self, owner: Owner, seconds: float) -> None:
        """The address of an account does not serve, and it must have no other: it rests too, and others go.

        :param seconds: for how long; 0: nobody knows.
        """
        # One that others hold too may have waited for them.
        if seconds or self._settings[owner.pool].holders == 1:
            self._pools[owner.pool].cool(owner.account, seconds)

    def is_bound(self, request: Request) -> bool:
        """Has the account of *request* a proxy of its own, in no pool?"""
        profile = self._profile_of(request)
        return profile is not None and bool(profile.account.proxy)

    def verdict(self, request: Request) -> Verdict | None:
        """Return what was found of the answer to *request*, None where nobody asked."""
        trip = self._trips.get(request)
        return None if trip is None else trip.verdict
