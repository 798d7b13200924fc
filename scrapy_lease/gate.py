"""The last synchronous moment before a download handler.

A downloader middleware is not the moment of sending: behind it, a slot's queue may hold a request longer than a
session lives. So each configured download handler is wrapped: a leased request passes only while its session is
confirmed at that instant, its download is cut off when the session no longer is, and a response whose lease is gone
goes no further. What did not pass goes back to the scheduler
(:class:`~scrapy_lease.middlewares.downloader.GuardMiddleware` turns :class:`LeaseLost` into that).

What it cannot do: stop a process that is frozen between this check and the socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self
from weakref import WeakSet

from scrapy import Request
from scrapy.core.downloader.handlers import DownloadHandlerProtocol
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_lease.exceptions import LeaseLost
from scrapy_lease.leases.session import Session
from scrapy_lease.proxies.credentials import mend

logger = logging.getLogger(__name__)

#: Seconds between looks whether a crawl that goes on without the store may still do so.
ALONE = 0.1


class Guard(Protocol):
    """Who knows what a request goes with besides its item's lease."""

    def has_use(self, request: Request) -> bool:
        """Does it go with a lease of theirs?"""

    def may_send(self, request: Request) -> bool:
        """May it be sent at this instant, as far as that goes? Not if it needs one that it has not."""

    def sent(self, request: Request) -> None:
        """It is sent at this instant."""

    def cut_off(self, request: Request) -> None:
        """Its download is being cut off."""


class Gate:
    """Decides what may be sent, and cuts off what may no longer be under way.

    The scheduler sets ``is_leased(request)``: whether it handed the request out; ``may_send(request)``: whether the
    lease still stands; ``on_sent(request)`` and ``on_answered(request)``: called for each leased request that passes,
    and when its response is here; ``is_alone()``: whether the crawl goes on although the session is not confirmed,
    because the store is away and LEASE_ON_STORE_DOWN allows it. Where proxies or accounts are leased, each of
    ``guards`` tells whether a request goes with one, and whether that is still this process's, and hears when it is
    sent, and when its download is cut off. Where rates are limited,
    ``pay(request)`` spends what a request costs, or tells that it cannot; ``pay_in_time(request, check)`` waits for
    that, for requests that nobody can take back, and calls *check* before it spends; ``goes_again(request, response)``
    tells whether an answer is none: it asks for a pause.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_leased: Callable[[Request], bool] = lambda request: False
        self.may_send: Callable[[Request], bool] = lambda request: False
        self.on_sent: Callable[[Request], None] = lambda request: None
        self.on_answered: Callable[[Request], None] = lambda request: None
        self.is_alone: Callable[[], bool] = lambda: False
        self.guards: list[Guard] = []
        self.pay: Callable[[Request], bool] = lambda request: True
        self.goes_again: Callable[[Request, Response], bool] = lambda request, response: False
        self.pay_in_time: Callable[[Request, Callable[[Request], None]], Awaitable[None]] | None = None
        self._under_way: dict[Request, asyncio.Task[object]] = {}
        self._cut_off: set[Request] = set()
        #: Those that a slot's queue may still hold, and that nobody waits for.
        self._abandoned: WeakSet[Request] = WeakSet()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Gate: {len(self._under_way)} leased downloads under way>"

    @property
    def is_open(self) -> bool:
        """May anything leased be sent at this instant, and may results count?"""
        return self._session.is_confirmed or self.is_alone()

    def has_use(self, request: Request) -> bool:
        """Does *request* go with a leased proxy or account?"""
        return any(guard.has_use(request) for guard in self.guards)

    def is_alone_now(self) -> bool:
        """Does the crawl go on although the session is not confirmed?"""
        return not self._session.is_confirmed and self.is_alone()

    def check(self, request: Request) -> None:
        """Do nothing if *request* has with certainty at this instant what it needs, if it needs anything.

        :raises LeaseLost: the session is not confirmed, a lease is gone, or nobody waits for it.
        """
        is_leased = self.is_leased(request) or self.has_use(request)
        may_send = not is_leased or (self.is_open and self.may_send(request))
        for guard in self.guards:
            may_send = may_send and guard.may_send(request)
        if not may_send or request in self._abandoned:
            raise LeaseLost(f"{request} is not sent: what it needs is not leased with certainty at this moment")

    def enter(self, request: Request) -> None:
        """Let *request* pass, in the task that downloads it.

        :raises LeaseLost: as :meth:`check`; or a permit is missing.
        """
        self.check(request)
        if self.is_leased(request) and not self.pay(request):
            raise LeaseLost(f"{request} is not sent: there is no permit of its rate limits at this moment")
        task = asyncio.current_task()
        assert task is not None
        self._under_way[request] = task
        for guard in self.guards:
            guard.sent(request)
        self.on_sent(request)
        if self._timer is None:
            self._watch()

    def admit(self, request: Request, response: Response) -> None:
        """Let the response to *request* pass.

        :raises LeaseLost: the lease is gone, or the request has to go out again.
        """
        self.on_answered(request)
        if not self.may_send(request):
            raise LeaseLost(f"the response to {request} does not count: its lease is gone")
        self.hold(request, response)

    def hold(self, request: Request, response: Response) -> None:
        """Keep the response to *request* here, leased or not, if it asks for a pause.

        :raises LeaseLost: it does, and the request has to go out again.
        """
        if self.goes_again(request, response):
            raise LeaseLost(f"{request} goes out again: its site asks for a pause")

    def is_cut_off(self, request: Request) -> bool:
        """Was the download of *request* cut off here?"""
        return request in self._cut_off

    def leave(self, request: Request) -> None:
        """The download of *request* has ended."""
        self._under_way.pop(request, None)
        self._cut_off.discard(request)

    def cut(self, request: Request) -> None:
        """Cut off the download of *request*, if it is under way."""
        task = self._under_way.get(request)
        if task is not None and request not in self._cut_off:
            self._cut_off.add(request)
            for guard in self.guards:
                guard.cut_off(request)
            task.cancel()

    def abandon(self, request: Request) -> None:
        """Nobody waits for *request* any more, and its lease goes back: cut it off, or never let it pass."""
        self._abandoned.add(request)
        self.cut(request)

    def close(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Cut everything off once the session is not confirmed; look again when it would not be."""
        self._timer = None
        if not self._under_way:
            return
        if not self.is_open:
            logger.info("Cutting off %d downloads: the session is not confirmed", len(self._under_way))
            for request in list(self._under_way):
                self.cut(request)
            return
        wait = max(0.02, self._session.confirmed_for) if self._session.is_confirmed else ALONE
        self._timer = asyncio.get_running_loop().call_later(wait, self._watch)


class GatedHandler:
    """A download handler of Scrapy with the gate in front; requests that nobody leased pass untouched."""

    lazy = True
    original: Any

    def __init__(self, handler: DownloadHandlerProtocol, gate: Gate) -> None:
        self._handler = handler
        self._gate = gate

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        from scrapy_lease.runtime import Runtime

        handler = build_from_crawler(load_object(cls.original), crawler)
        mend(handler)
        return cls(handler, Runtime.of(crawler).gate)

    async def download_request(self, request: Request) -> Response:
        gate = self._gate
        is_leased = gate.is_leased(request)
        if not is_leased and gate.pay_in_time is not None:
            await gate.pay_in_time(request, gate.check)
        if not is_leased and not gate.has_use(request):
            gate.check(request)
            response = await self._handler.download_request(request)
            gate.hold(request, response)
            return response
        gate.enter(request)
        try:
            response = await self._handler.download_request(request)
        except asyncio.CancelledError:
            # A CancelledError that leaves a download hangs Scrapy for ever; only what cuts off here becomes ordinary.
            task = asyncio.current_task()
            if task is None or not gate.is_cut_off(request):
                raise
            task.uncancel()
            raise LeaseLost(f"{request} was cut off: its session is not confirmed any more") from None
        finally:
            gate.leave(request)
        gate.admit(request, response)
        return response

    async def close(self) -> None:
        await self._handler.close()


def handler_for(scheme: str, original: Any) -> type[GatedHandler]:
    """Return a gated handler class for *scheme* around *original*, a handler class or its path."""
    cls = load_object(original)
    return type(f"Gated{cls.__name__}", (GatedHandler,), {"original": original, "lazy": getattr(cls, "lazy", True)})
