"""Who may send nothing for now because a site asked for a pause, and which answers ask for one."""

from __future__ import annotations

import time

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.policy import Judge, retry_after
from scrapy_lease.proxies.manager import Proxies
from scrapy_lease.rates.addresses import exit_of
from scrapy_lease.rates.blocks import Blocks
from scrapy_lease.rates.charges import Charge
from scrapy_lease.rates.prices import site_of
from scrapy_lease.settings import LeaseSettings


class Pauses:
    """See the module's docstring.

    :ivar proxies: through which requests go; None: directly.
    """

    def __init__(self, crawler: Crawler, settings: LeaseSettings, blocks: Blocks) -> None:
        self.proxies: Proxies | None = None
        self._blocks = blocks
        self._judge = Judge.from_crawler(crawler, settings.verdicts, None)
        self._statuses = {status for status, word in settings.verdicts.items() if word == "limited"}
        self._node_ip = settings.node_ip
        self._longest = settings.rate_retry_after_max

    def __repr__(self) -> str:
        return f"<Pauses: {self._blocks}>"

    def attach(self, proxies: Proxies) -> None:
        """Hear of answers that came through leased proxies, which judge them."""
        self.proxies = proxies
        proxies.on_limited = self._limited

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
        """Does the answer to *request*, which went directly, ask for a pause?"""
        if self.proxies is not None and self.proxies.has_use(request):
            return False
        if self._judge.response(request, response, is_scheduled=is_scheduled).word != "limited":
            return False
        self._limited(request, response)
        return True

    def _limited(self, request: Request, response: Response) -> None:
        wait = retry_after(response, self._longest)
        self._blocks.limited(site_of(request), self._address_of(request), wait)

    def _address_of(self, request: Request) -> str:
        return exit_of(self.proxies, request) or self._node_ip
