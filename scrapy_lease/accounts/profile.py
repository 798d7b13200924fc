"""Leased accounts as this process uses them: who each is, its cookies, and what became of its requests lately."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware

from scrapy_lease.accounts.account import Account
from scrapy_lease.accounts.cookies import Cookies
from scrapy_lease.accounts.handler import Handler
from scrapy_lease.accounts.sealing import Sealer, WrongKey, account_of
from scrapy_lease.leases.pool.pool import Pool
from scrapy_lease.leases.pool.shelf import Lease
from scrapy_lease.providers.owned import account_key

logger = logging.getLogger(__name__)

#: Seconds between two words of the cookies of one account.
RENEWAL = 1.0


class Profile:
    """One account under one lease.

    :ivar key: of its cookiejar, and what keeps its requests on one proxy.
    :ivar generation: rises with each login: what was sent before one says nothing of it.
    :ivar login: the one that is under way.
    :ivar served: sites that served it.
    """

    def __init__(self, pool: str, lease: Lease, account: Account, cookies: Cookies, handler: Handler) -> None:
        self.pool = pool
        self.lease = lease
        self.cookies = cookies
        self.key = account_key(pool, account.id)
        self.generation = 0
        self.login: asyncio.Task[Any] | None = None
        self.served: set[str] = set()
        self.is_changed = False
        #: Clock time (s) at which the store was last told of the cookies.
        self.kept_at = float("-inf")
        self._given = account
        self._handler = handler
        self._account: Account | None = None

    def __repr__(self) -> str:
        return f"<Profile of {self._given.id}, {'logged in' if self.cookies.is_logged_in else 'not logged in'}>"

    @property
    def account(self) -> Account:
        """The account, with the headers that its login gave."""
        if self._account is None:
            self._account = replace(self._given, headers={**self._given.headers, **self.cookies.headers})
        return self._account

    @property
    def needs_login(self) -> bool:
        """Is it to log in before its next request?"""
        return self._handler.login is not None and not self.cookies.is_logged_in

    def logged_in(self, headers: Mapping[str, str]) -> None:
        """It has logged in, and got *headers* beside its cookies."""
        self.cookies.is_logged_in, self.cookies.headers = True, dict(headers)
        self._account = None
        self.generation += 1
        self.is_changed = True

    def logged_out(self) -> None:
        """The site says that it is not logged in any more."""
        self.cookies.start_anew()
        self._account = None
        self.is_changed = True

    def mark(self, request: Request) -> None:
        """Let *request* show who asks."""
        self._handler.apply(request, self.account)
        cookies, agent = self.cookies, request.headers.get("User-Agent")
        if cookies.agent:
            request.headers["User-Agent"] = cookies.agent
        elif agent is not None:
            cookies.agent = agent.decode("latin-1")
            self.is_changed = True
        if cookies.meet(request):
            self.is_changed = True

    def hide(self, text: str) -> str:
        """Return *text* with no secret of the account in it."""
        for secret in self.cookies.secrets():
            text = text.replace(secret, "***")
        return self.account.hide(text)


class Profiles:
    """The profiles of all leases that were used here, for as long as these are here.

    :param pools: name -> the pool; *handlers*: name -> how its accounts log in.
    :ivar on_parting: called with a profile whose lease is about to end.
    """

    def __init__(
        self, crawler: Crawler, sealer: Sealer, pools: Mapping[str, Pool], handlers: Mapping[str, Handler]
    ) -> None:
        self._crawler = crawler
        self._sealer = sealer
        self._pools = pools
        self._handlers = handlers
        self._profiles: dict[tuple[str, str], Profile] = {}
        self.on_parting: Callable[[Profile], None] = lambda profile: None
        self._found_jars: MutableMapping[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"<Profiles: {len(self._profiles)}>"

    def of(self, pool: str, lease: Lease) -> Profile:
        """Return the profile of a lease, made on first use of what its last holder left.

        :raises WrongKey: it was sealed with another key.
        """
        profile = self._profiles.get((pool, lease.id))
        if profile is None or profile.lease is not lease:
            account = account_of(lease.body, self._sealer)
            cookies = self._restored(account, lease.jar)
            profile = Profile(pool, lease, account, cookies, self._handlers[pool])
            self._profiles[pool, lease.id] = profile
            self._jars[profile.key] = cookies.jar
        return profile

    def keep(self, now: float) -> None:
        """Tell the store of cookies that have changed, of each account once a second at most."""
        for profile in self._profiles.values():
            if profile.is_changed and now - profile.kept_at >= RENEWAL:
                self.tell(profile, now)

    def tell(self, profile: Profile, now: float) -> None:
        """Tell the store of the cookies of one account."""
        profile.is_changed, profile.kept_at = False, now
        self._pools[profile.pool].keep_jar(profile.lease, profile.cookies.sealed(self._sealer))

    def parting(self, pool: str) -> Callable[[Lease], None]:
        """Return what is called when a lease of *pool* is about to end: its next holder gets the last cookies."""

        def part(lease: Lease) -> None:
            profile = self._profiles.get((pool, lease.id))
            if profile is None or profile.lease is not lease:
                return
            if profile.is_changed:
                self.tell(profile, time.monotonic())
            self.on_parting(profile)
            del self._profiles[pool, lease.id]
            self._jars.pop(profile.key, None)

        return part

    def _restored(self, account: Account, stored: bytes) -> Cookies:
        """Cookies of before the key was changed are of no use; what the account was given is."""
        try:
            return Cookies.restored(account, stored, self._sealer)
        except WrongKey:
            logger.warning("The cookies of account %s were sealed with another key: it begins without them", account.id)
            return Cookies(account)

    @property
    def _jars(self) -> MutableMapping[Any, Any]:
        """The cookiejars of Scrapy's middleware, which is there once there are requests."""
        if self._found_jars is None:
            middleware = self._crawler.get_downloader_middleware(CookiesMiddleware)
            assert middleware is not None
            self._found_jars = middleware.jars
        return self._found_jars
