"""Nothing leased is sent, or stays under way, without a confirmed session; what nobody leased passes untouched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_lease.exceptions import LeaseLost
from scrapy_lease.gate import Gate, GatedHandler, handler_for
from scrapy_lease.leases.session import Session, boot_time
from tests.state.memory import Answering, Memory
from tests.state.reactor import on_reactor

LEASED, OTHER = Request("http://site.example/1"), Request("http://site.example/2")


class Handler:
    """A download that takes until it is released."""

    lazy = False

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.seen: list[Request] = []
        self.is_closed = False

    @classmethod
    def from_crawler(cls, crawler: Any) -> Handler:
        return cls()

    async def download_request(self, request: Request) -> Response:
        self.seen.append(request)
        self.begun.set()
        await self.release.wait()
        return Response(request.url)

    async def close(self) -> None:
        self.is_closed = True


class Setup:
    """A gate whose session is confirmed for *seconds*."""

    def __init__(self, seconds: float) -> None:
        self.ahead = 0.0
        store: Any = Answering(Memory())
        self.session = Session(
            node="n", ttl=(seconds + 1) / 0.99, config="c", fresh=True, info={}, clock=lambda: boot_time() + self.ahead
        )
        self.store = store
        self.gate = Gate(self.session)
        self.gate.is_leased = lambda request: request is LEASED
        self.gate.may_send = lambda request: True
        self.sent: list[Request] = []
        self.gate.on_sent = self.sent.append
        self.handler = Handler()
        self.gated = GatedHandler(self.handler, self.gate)

    async def open(self) -> None:
        await self.session.open(self.store)

    def download(self, request: Request) -> asyncio.Task[Response]:
        return asyncio.ensure_future(self.gated.download_request(request))


class Refusing:
    """Somebody of whom each request needs what none has, while not `has_all`."""

    has_all = False

    def __init__(self) -> None:
        self.heard: list[Request] = []

    def has_use(self, request: Request) -> bool:
        return False

    def may_send(self, request: Request) -> bool:
        return self.has_all

    def sent(self, request: Request) -> None:
        self.heard.append(request)

    def cut_off(self, request: Request) -> None:
        self.heard.append(request)


@on_reactor
async def test_a_leased_request_passes_while_its_session_is_confirmed() -> None:
    """It is sent, told as sent at that instant, and its response comes through."""
    setup = Setup(60)
    await setup.open()
    setup.handler.release.set()
    response = await setup.download(LEASED)
    assert (response.url, setup.sent, setup.handler.seen) == (LEASED.url, [LEASED], [LEASED])
    assert repr(setup.gate) == "<Gate: 0 leased downloads under way>"
    setup.gate.close()


@pytest.mark.parametrize("fault", ["never opened", "not confirmed", "lost", "closed", "lease gone"])
@on_reactor
async def test_what_is_not_certain_is_not_sent(fault: str) -> None:
    """Without a session that is confirmed now, or without its lease, a request does not reach the handler."""
    setup = Setup(60)
    if fault != "never opened":
        await setup.open()
    if fault == "not confirmed":
        setup.ahead = 61
    elif fault == "lost":
        setup.session.lose()
    elif fault == "closed":
        await setup.session.close(setup.store)
    elif fault == "lease gone":
        setup.gate.may_send = lambda request: False
    with pytest.raises(LeaseLost, match="is not sent"):
        await setup.download(LEASED)
    assert (setup.sent, setup.handler.seen) == ([], [])


@on_reactor
async def test_what_nobody_leased_passes_untouched() -> None:
    """Media and robots.txt go through without a session; a cancel of them stays a cancel."""
    setup = Setup(60)
    setup.handler.release.set()
    assert (await setup.download(OTHER)).url == OTHER.url
    setup.handler.release.clear()
    setup.handler.begun.clear()
    task = setup.download(OTHER)
    await setup.handler.begun.wait()
    setup.gate.cut(OTHER)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setup.sent == []


@on_reactor
async def test_a_download_is_cut_off_when_the_session_is_no_longer_confirmed() -> None:
    """It ends with LeaseLost, an ordinary error, within moments of the end of certainty; the task is not cancelled."""
    setup = Setup(0.3)
    await setup.open()
    task = setup.download(LEASED)
    await setup.handler.begun.wait()
    with pytest.raises(LeaseLost, match="was cut off"):
        await asyncio.wait_for(task, 5)
    assert not setup.session.is_confirmed
    assert not task.cancelled()
    assert task.cancelling() == 0
    assert not setup.gate.is_cut_off(LEASED), "the request may be sent again later"


@on_reactor
async def test_a_beat_in_time_lets_a_download_go_on() -> None:
    """The gate looks again when certainty would have ended, and cuts nothing off if it was renewed."""
    setup = Setup(0.3)
    await setup.open()
    task = setup.download(LEASED)
    for _ in range(6):
        await asyncio.sleep(0.1)
        await setup.session.beat(setup.store)
    setup.handler.release.set()
    assert (await task).url == LEASED.url
    setup.gate.close()


@on_reactor
async def test_a_cancel_from_outside_stays_a_cancel() -> None:
    """Only what was cut off here becomes LeaseLost: a loop that shuts down must see its cancel obeyed."""
    setup = Setup(60)
    await setup.open()
    task = setup.download(LEASED)
    await setup.handler.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert repr(setup.gate) == "<Gate: 0 leased downloads under way>"
    setup.gate.close()


@on_reactor
async def test_cut_ends_one_download_once() -> None:
    """cut() ends what is under way, does nothing twice, and nothing to what is not there."""
    setup = Setup(60)
    await setup.open()
    setup.gate.cut(LEASED)
    task = setup.download(LEASED)
    await setup.handler.begun.wait()
    setup.gate.cut(LEASED)
    setup.gate.cut(LEASED)
    assert setup.gate.is_cut_off(LEASED)
    with pytest.raises(LeaseLost):
        await task
    assert task.cancelling() == 0
    setup.gate.close()


@pytest.mark.parametrize("request_", [LEASED, OTHER], ids=["leased", "not leased"])
@on_reactor
async def test_what_has_not_all_that_it_needs_is_not_sent(request_: Request) -> None:
    """A guard refuses: the request does not reach the handler, whoever leased it, and nobody hears that it was sent."""
    setup = Setup(60)
    await setup.open()
    setup.handler.release.set()
    guard = Refusing()
    setup.gate.guards.append(guard)
    with pytest.raises(LeaseLost, match="is not sent"):
        await setup.download(request_)
    assert (setup.sent, guard.heard, setup.handler.seen) == ([], [], [])
    guard.has_all = True
    assert (await setup.download(request_)).url == request_.url
    setup.gate.close()


@on_reactor
async def test_what_lost_what_it_needs_while_it_waits_for_a_permit_spends_none() -> None:
    """Whoever waits for permits in time is told, before anything is spent, that the request is not to be sent."""
    setup = Setup(60)
    await setup.open()
    setup.handler.release.set()
    guard = Refusing()
    guard.has_all = True
    setup.gate.guards.append(guard)
    renewed = asyncio.Event()
    spent = []

    async def pay_in_time(request: Request, check: Callable[[Request], None]) -> None:
        await renewed.wait()
        check(request)
        spent.append(request)

    setup.gate.pay_in_time = pay_in_time
    task = setup.download(OTHER)
    await asyncio.sleep(0)
    guard.has_all = False
    renewed.set()
    with pytest.raises(LeaseLost, match="is not sent"):
        await task
    assert (spent, setup.handler.seen) == ([], [])
    guard.has_all = True
    assert (await setup.download(OTHER)).url == OTHER.url
    assert spent == [OTHER]


@on_reactor
async def test_an_error_of_the_download_stays_what_it_is() -> None:
    """What the handler raises reaches Scrapy unchanged, and the download is no longer under way."""
    setup = Setup(60)
    await setup.open()

    async def fails(request: Request) -> Response:
        raise OSError("reset")

    setup.handler.download_request = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="reset"):
        await setup.download(LEASED)
    assert repr(setup.gate) == "<Gate: 0 leased downloads under way>"
    setup.gate.close()


@on_reactor
async def test_closing_reaches_the_handler() -> None:
    """The wrapped handler is closed with the gate's."""
    setup = Setup(60)
    await setup.gated.close()
    assert setup.handler.is_closed


def test_a_gated_class_keeps_what_scrapy_asks_of_a_handler() -> None:
    """The wrapper names its original and is lazy as that one is."""
    gated = handler_for("http", Handler)
    assert (gated.__name__, gated.original, gated.lazy) == ("GatedHandler", Handler, False)
