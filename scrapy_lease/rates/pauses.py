"""Who may send nothing for now because a site asked for a pause, and which answers ask for one."""

from __future__ import annotations

import time
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.policy import Judge, retry_after
from scrapy_lease.pools.uses import Uses
from scrapy_lease.rates.addresses import exit_of
from scrapy_lease.rates.blocks import Blocks
from scrapy_lease.rates.charges import Charge
from scrapy_lease.rates.prices import site_of
from scrapy_lease.settings import LeaseSettings


class Pauses:
    """See the module's docstring."""

    def __init__(self, crawler: Crawler, settings: LeaseSettings, blocks: Blocks) -> None:
        self._proxies: Uses[Any] | None = None
        self._accounts: Uses[Any] | None = None
        self._blocks = blocks
        self._judge = Judge.from_crawler(crawler, settings.verdicts, None)
        self._statuses = {status for status, word in settings.verdicts.items() if word == "limited"}
        self._node_ip = settings.node_ip
        self._longest = settings.rate_retry_after_max

    def __repr__(self) -> str:
        return f"<Pauses: {self._blocks}>"

    def attach(self, proxies: Uses[Any] | None, accounts: Uses[Any] | None) -> None:
        """Hear of answers that came through leased proxies, or to leased accounts, which judge them."""
        self._proxies, self._accounts = proxies, accounts
        for uses in (proxies, accounts):
            if uses is not None:
                uses.on_limited = self._limited

    def hold(self, request: Request, charge: Charge) -> bool:
        """Is *request* to wait now? If so, its charge says until when."""
        charge.is_paused = False
        if self._blocks.has_any:
            until = self._blocks.until(site_of(request), self._address_of(request))
            if until > time.monotonic():
                charge.is_paused, charge.not_before = True, until
        return charge.is_paused

    def may_ask(self, status: int) -> bool:
        """Is an answer with this status one that asks for a pause, unless the spider wants to see it?"""
        return status in self._statuses

    def asks(self, request: Request, response: Response, *, is_scheduled: bool) -> bool:
        """Does the answer to *request*, which went directly and as nobody, ask for a pause?"""
        if any(uses is not None and uses.has_use(request) for uses in (self._proxies, self._accounts)):
            return False
        if self._judge.response(request, response, is_scheduled=is_scheduled).word != "limited":
            return False
        self._limited(request, response)
        return True

    def _limited(self, request: Request, response: Response) -> None:
        wait = retry_after(response, self._longest)
        self._blocks.limited(site_of(request), self._address_of(request), wait)

    def _address_of(self, request: Request) -> str:
        use = self._accounts.use_of(request) if self._accounts is not None else None
        if use is not None:
            return f"account {use.lease.id}"
        return exit_of(self._proxies, request) or self._node_ip
