"""Logins: once for each account under its lease, through its own address, into its own cookiejar.

What is fetched for a login waits for a proxy and for permits like a page of its account, and costs none of its quota.
What fails on the way (a proxy, the site, the lease) is not the account's fault; what ``login`` raises itself is.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
)
from scrapy.http import Response
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost

from scrapy_lease.accounts.account import Account
from scrapy_lease.accounts.handler import Handler, LoginFailed
from scrapy_lease.accounts.profile import Profile, Profiles
from scrapy_lease.exceptions import LeaseError
from scrapy_lease.leases.pool.complaints import name_of
from scrapy_lease.leases.pool.options import Judgement
from scrapy_lease.policy import Judge

logger = logging.getLogger(__name__)

#: Key of ``request.meta``: the profile whose login a request belongs to. Such requests are never stored.
LOGIN = "lease_login"
#: Seconds that a login may take.
LONGEST = 120.0
_ON_THE_WAY = (
    LeaseError, DownloadFailedError, DownloadTimeoutError, DownloadConnectionRefusedError, CannotResolveHostError,
    ResponseDataLossError, ConnectError, ConnectionDone, ConnectionLost, OSError,
)  # fmt: skip
_NOBODYS = Judgement("unused")


class SiteFailed(LeaseError):
    """The site answered a request of a login with a fault of its own, or asked for a pause."""

    def __init__(self, text: str, judgement: Judgement) -> None:
        super().__init__(text)
        self.judgement = judgement


class Logins:
    """See the module's docstring.

    :param judge: says whether an answer is the site's fault.
    """

    def __init__(self, crawler: Crawler, handlers: Mapping[str, Handler], profiles: Profiles, judge: Judge) -> None:
        self._crawler = crawler
        self._handlers = handlers
        self._profiles = profiles
        self._judge = judge
        self._under_way: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Logins: {len(self._under_way)} under way>"

    async def run(self, profile: Profile) -> Judgement | None:
        """Log in, or wait for the login that is under way; return None when it succeeded, else what that says."""
        task = profile.login
        if task is None:
            # In a context of its own: what it fetches belongs to no page.
            task = asyncio.get_running_loop().create_task(self._run(profile), context=contextvars.Context())
            profile.login = task
            self._under_way.add(task)
            task.add_done_callback(partial(self._ended, profile))
        await asyncio.wait({task})
        # One that was cut off before its first step could catch nothing; a CancelledError would hang the crawl.
        result: Judgement | None = _NOBODYS if task.cancelled() else task.result()
        return result

    def let_go(self) -> None:
        """Cut off what is under way: the next holder logs in."""
        for task in self._under_way:
            task.cancel()

    async def stop(self) -> None:
        """End what is under way."""
        self.let_go()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, profile: Profile, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        profile.login = None

    async def _run(self, profile: Profile) -> Judgement | None:
        try:
            async with asyncio.timeout(LONGEST):
                headers = await self._log_in(profile)
        except LoginFailed as error:
            return self.failed(profile, str(error) or "login failed")
        except SiteFailed as error:
            logger.info("The login of account %s waits: %s", profile.lease.id, error)
            return error.judgement
        except TimeoutError:
            return self.failed(profile, f"login did not end within {LONGEST:g} s")
        except asyncio.CancelledError:
            return _NOBODYS
        except _ON_THE_WAY as error:
            logger.info(
                "The login of account %s came to nothing on its way (%s)", profile.lease.id, type(error).__name__
            )
            return _NOBODYS
        except Exception as error:
            return self.failed(profile, f"login of LEASE_ACCOUNT_HANDLER raised {name_of(error)}")
        profile.logged_in(headers)
        self._profiles.tell(profile, time.monotonic())
        return None

    async def _log_in(self, profile: Profile) -> dict[str, str]:
        login = self._handlers[profile.pool].login
        assert login is not None

        async def fetch(request: Request | str, **options: Any) -> Response:
            return await self._fetch(profile, Request(request, **options) if isinstance(request, str) else request)

        headers = await login(profile.account, fetch)
        try:
            return dict(Account.of({"id": profile.account.id, "headers": headers or {}}).headers)
        except ValueError:
            raise LoginFailed(
                f"login of LEASE_ACCOUNT_HANDLER returned a {type(headers).__name__} that is no dict of headers, "
                "names and values as text"
            ) from None

    async def _fetch(self, profile: Profile, request: Request) -> Response:
        request.meta[LOGIN] = profile
        # A login is no page: neither kept nor taken from what was kept, and often on another host.
        request.meta.setdefault("dont_cache", True)
        request.meta.setdefault("allow_offsite", True)
        response: Response = await self._crawler.engine.download_async(request)
        verdict = self._judge.response(request, response, is_scheduled=False)
        if verdict.word == "target":
            raise SiteFailed(f"the site answered with status {response.status}", _NOBODYS)
        if verdict.word == "limited":
            raise SiteFailed("the site asks for a pause", Judgement("limited", retry_after=verdict.wait or 0.0))
        return response

    def failed(self, profile: Profile, why: str) -> Judgement:
        """Say that an account is of no use, and *why*; return the judgement on its use."""
        why = profile.hide(why)
        logger.warning("Account %s goes to the cold pool: %s", profile.lease.id, why)
        return Judgement("cold", why=why)
