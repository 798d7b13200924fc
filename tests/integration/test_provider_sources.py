"""What a source makes of what a provider delivers: resources, and those of them that pass a check."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler

from scrapy_lease.leases.pool.supply import Delivery
from scrapy_lease.providers.address import Address
from scrapy_lease.providers.base import ProviderError, Proxy
from scrapy_lease.providers.checking import AT_ONCE, Check, checked_check
from scrapy_lease.providers.source import ProxySource, read_body
from scrapy_lease.providers.supplies import checked_provider, provider_of
from tests.helpers.providers import LOOPBACK, CheckedProxy

WALL = 1_800_000_000_000


def source(provider: Any, check: Check | None = None) -> ProxySource:
    return ProxySource(provider, pool="p", namespace="ns", check=check)


def deliver(fetch: Callable[[int], Awaitable[Any]], count: int = 3) -> Delivery[Any]:
    """What a source makes of a provider's fetch."""

    class Own:
        async def fetch(self, count: int) -> Any:
            return await fetch(count)

    return asyncio.run(source(Own()).fetch(count, lambda: WALL))


# What a source makes of it


def test_resources(caplog: pytest.LogCaptureFixture) -> None:
    """A proxy becomes a resource: its id without secrets, its end on the server's clock, its body with the URL."""

    async def fetch(count: int) -> list[Proxy]:
        return [
            Proxy("http://u:p@h:1", "1.2.3.4", provider="own", lifetime=60),
            Proxy("http://h:2", expires=WALL / 1000 + 5),
            Proxy("http://h:3", expires=WALL + 5000),
        ]

    one, two, three = deliver(fetch).resources
    assert (one.id[:6], one.exit, one.expiry) == ("h:1/u#", "1.2.3.4", WALL + 60_000)
    assert (read_body(one.body).url, read_body(one.body).provider) == ("http://u:p@h:1", "own")
    assert two.expiry == three.expiry == WALL + 5000
    assert not caplog.records


def test_what_is_unusable_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Doubles, expired ones, what is no proxy, and a short answer: the rest is used, each kind told once, no secret."""
    good = Proxy("http://u:s3cr3t@h:1")
    bad: list[Any] = [
        good, "http://u:s3cr3t@h:9", None, Proxy("http://u:s3cr3t@h"), Proxy("http://h:2", expires=1),
        Proxy("http://h:3", exit="s3cr3t exit"), Proxy(5), Proxy("http://h:4", lifetime=float("nan")),  # type: ignore[arg-type]
    ]  # fmt: skip

    async def fetch(count: int) -> list[Any]:
        return [good, *bad, *bad]

    delivery = deliver(fetch, 30)
    assert [resource.id[:3] for resource in delivery.resources] == ["h:1"]
    assert delivery.bought == 17
    assert "s3cr3t" not in caplog.text
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == len(set(told)) == 9


async def _nothing(count: int) -> None:
    return None


def test_a_fetch_that_returns_no_list() -> None:
    """A class that returns something else has failed, and may have bought."""
    with pytest.raises(ProviderError, match="NoneType instead of a list") as caught:
        deliver(_nothing)
    assert caught.value.is_spent


# Checks


def test_checks() -> None:
    """What answers below 400 in time works; a bad status, no answer, nobody there, wrong credentials do not."""

    async def play() -> list[bool]:
        proxies = [CheckedProxy(), CheckedProxy(503), CheckedProxy(0), CheckedProxy(200, "u:p")]
        async with proxies[0].running(), proxies[1].running(), proxies[2].running(), proxies[3].running():
            check = Check("http://check.example/ip", timeout=0.5)
            plain = [Address("http", LOOPBACK, proxy.port) for proxy in proxies]
            locked = Address("http", LOOPBACK, proxies[3].port, "u", "p")
            works = [await check.works(at) for at in (*plain, locked, Address("http", LOOPBACK, 1))]
            assert proxies[0].seen == ["GET http://check.example/ip HTTP/1.1"]
            return works

    assert asyncio.run(play()) == [True, False, False, False, True, False]


def test_checks_of_a_page_over_tls() -> None:
    """For an https page the credentials are in the CONNECT; a proxy that refuses it does not work."""

    async def play() -> None:
        proxy = CheckedProxy(200, "u:p")
        async with proxy.running():
            check = Check("https://check.example/ip", timeout=2)
            for password in ("p", "q"):
                assert not await check.works(Address("http", LOOPBACK, proxy.port, "u", password))
            assert proxy.seen == ["CONNECT check.example:443 HTTP/1.1"] * 2
            assert proxy.let_in == [True, False]

    asyncio.run(play())


@pytest.mark.parametrize("url", ["", "check.example", "ftp://check.example/", "http://", "http://h:port/"])
def test_what_is_no_page(url: str) -> None:
    """LEASE_PROXY_CHECK must be the URL of a page."""
    with pytest.raises(ValueError, match="no http:// or https:// URL"):
        checked_check(url)
    assert checked_check("https://check.example/ip") == "https://check.example/ip"


def test_checks_through_socks() -> None:
    """A socks5 proxy must take its credentials and connect to the host of the page."""

    async def play() -> list[bool]:
        good, bad, locked = CheckedProxy(), CheckedProxy(500), CheckedProxy(200, "u:p")
        async with good.running(socks=True), bad.running(socks=True), locked.running(socks=True):
            check = Check("https://check.example/ip", timeout=1)
            addresses = [Address("socks5", LOOPBACK, proxy.port) for proxy in (good, bad)]
            addresses += [Address("socks5", LOOPBACK, locked.port, "u", password) for password in ("p", "q")]
            works = [await check.works(at) for at in addresses]
            assert good.seen == ["check.example:443"]
            return works

    assert asyncio.run(play()) == [True, False, True, False]


def test_few_checks_at_once_and_none_holds_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """No more than some are under way; what works is there before what hangs has used up its time."""

    class Own:
        def __init__(self, ports: list[int]) -> None:
            self.ports = ports

        async def fetch(self, count: int) -> list[Proxy]:
            return [Proxy(f"http://user{number}:p@{LOOPBACK}:{port}") for number, port in enumerate(self.ports)]

    async def play() -> None:
        good, dead = CheckedProxy(), CheckedProxy(0)
        async with good.running(), dead.running():
            own = source(Own([dead.port, *([good.port] * 25)]), Check("http://c.example/", timeout=1.5))
            delivery = await own.fetch(26, lambda: WALL)
            began, passed, last = time.monotonic(), 0, 0.0
            async for group in own.checked(delivery.resources):
                passed, last = passed + len(group), time.monotonic() - began
            assert passed == 25
            assert last < 1.4
            assert 2 < good.most <= AT_ONCE

    asyncio.run(play())
    assert "1 of 26 new proxies did not pass LEASE_PROXY_CHECK" in caplog.text


# Classes of users


class Own:
    """A provider of a user's, built from the crawler."""

    def __init__(self, count: int) -> None:
        self.count = count

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Own:
        return cls(crawler.settings.getint("OWN_COUNT"))

    async def fetch(self, count: int) -> list[Proxy]:
        return [Proxy(f"http://h:{number + 1}") for number in range(self.count)]


def test_a_class_of_a_user() -> None:
    """A dotted path or the class itself is built from the crawler, and fetched from."""
    crawler = Crawler(Spider, {"OWN_COUNT": 2})
    crawler._apply_settings()
    for value in (Own, f"{__name__}.Own"):
        provider = provider_of(checked_provider(value), crawler)
        assert len(asyncio.run(source(provider).fetch(5, lambda: WALL)).resources) == 2


@pytest.mark.parametrize(
    ("value", "reason"), [("no.such.Provider", "cannot be imported"), ("collections.Counter", "no method fetch")]
)
def test_what_is_no_provider(value: str, reason: str) -> None:
    """The error says whether the path leads nowhere or to something else."""
    with pytest.raises(ValueError, match=reason):
        checked_provider(value)
