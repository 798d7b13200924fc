"""Credentials of proxies with each of Scrapy's download handlers: right at the proxy on each try, and nowhere else."""

from __future__ import annotations

import importlib.util
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.certificates import write_certificates
from tests.helpers.proxied import Bed
from tests.helpers.socks import SocksDoor
from tests.helpers.spiders import items_of, paths_of

pytestmark = pytest.mark.one_server

HANDLERS = {
    "http11": "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler",
    "aiohttp": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler",
    "httpx": "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler",
}
HAS_HTTPX = any(importlib.util.find_spec(name) for name in ("httpx2", "httpx"))
HAS_SOCKS = HAS_HTTPX and importlib.util.find_spec("socksio") is not None
handlers = pytest.mark.parametrize(
    "handler",
    [
        pytest.param(name, marks=pytest.mark.skipif(name == "httpx" and not HAS_HTTPX, reason="needs httpx2"))
        for name in HANDLERS
    ],
)
scheme = pytest.mark.parametrize("scheme", ["http", "https"])


def context_of(folder: Path, scheme: str) -> ssl.SSLContext | None:
    if scheme == "http":
        return None
    write_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


def settings_of(handler: str) -> dict[str, str]:
    handlers = {scheme: HANDLERS[handler] for scheme in ("http", "https")}
    return {"DOWNLOAD_HANDLERS": json.dumps(handlers), "LOG_LEVEL": "DEBUG", "RETRY_TIMES": "0"}


@scheme
@handlers
def test_credentials_follow_the_lease(bed: Callable[..., Bed], tmp_path: Path, handler: str, scheme: str) -> None:
    """Users of one endpoint, one of them banned, one without a name: each try brings its own, the site sees none."""
    b = bed(context=context_of(tmp_path, scheme), latency=0.01)
    proxies = b.web.add(("anna", "hunter2-a"), ("b/en", "p@ss:w?/rd%"), ("", ""))
    for number, proxy in enumerate(proxies):
        proxy.exit = f"127.0.9.{number + 1}"
    b.site.banned = {proxies[0].exit}
    node = b.run(settings=settings_of(handler), pages=12)
    assert paths_of(items_of(b.shop)) == sorted(f"/page/{number}" for number in range(12))
    for proxy in proxies:
        expected = f"{proxy.user}:{proxy.password}" if proxy.user else ""
        assert proxy.seen
        assert {brought for _, brought in proxy.seen} == {expected}
    assert b.site.peers == b.exits()
    assert not [hit for hit in b.site.hits if "proxy-authorization" in hit.headers]
    assert "hunter2" not in node.log
    assert "p@ss" not in node.log


@scheme
@handlers
def test_a_proxy_that_refuses_its_credentials(
    bed: Callable[..., Bed], tmp_path: Path, handler: str, scheme: str
) -> None:
    """407, by an answer or by a refused CONNECT, is the proxy's fault: broken; the log shows no password."""
    b = bed(1, context=context_of(tmp_path, scheme))
    (locked,) = b.web.add(("anna", "hunter2"))
    locked.mode = 407
    node = b.run(settings={**settings_of(handler), "LEASE_PROXY_BACKOFF": "60,60"}, pages=8)
    assert len(items_of(b.shop)) == 8
    assert node.stats["lease/proxy/broken/default"] == 1
    assert b.left() == {"leased": 0, "free": 1, "resting": 1, "known": 2}
    assert len(locked.seen) <= 2
    assert "hunter2" not in node.log


@handlers
def test_a_tunnel_that_is_refused(bed: Callable[..., Bed], tmp_path: Path, handler: str) -> None:
    """401 for CONNECT is no answer of the site: the pages go through another proxy, and none fails."""
    b = bed(2, context=context_of(tmp_path, "https"))
    bad, good = b.web.proxies
    bad.mode = 401
    node = b.run(settings={**settings_of(handler), "LEASE_PROXY_BACKOFF": "60,60"}, pages=8)
    assert len(items_of(b.shop)) == 8
    assert b.site.peers == {good.exit}
    assert 1 <= len(bad.seen) <= 2
    assert "lease/items/failed" not in node.stats


@scheme
@handlers
def test_a_proxy_that_nobody_answers_for(bed: Callable[..., Bed], tmp_path: Path, handler: str, scheme: str) -> None:
    """A refused connection is the proxy's fault, one that hangs is left after the timeout; every page is fetched."""
    b = bed(3, context=context_of(tmp_path, scheme))
    dead, hanging, good = b.web.proxies
    b.web.die(dead)
    hanging.mode = "hang"
    settings = {**settings_of(handler), "DOWNLOAD_TIMEOUT": "1", "LEASE_PROXY_BACKOFF": "60,60"}
    node = b.run(settings=settings, pages=8)
    assert len(items_of(b.shop)) == 8
    assert b.site.peers == {good.exit}
    assert node.stats["lease/proxy/broken/default"] == 1
    assert node.stats["lease/proxy/banned/default"] == 1
    assert len(hanging.seen) <= 2


@pytest.mark.skipif(not HAS_SOCKS, reason="needs httpx2[socks]")
@scheme
def test_socks(bed: Callable[..., Bed], tmp_path: Path, scheme: str) -> None:
    """SOCKS 5 proxies with a password and without: one at a time on each, what one refuses another fetches."""
    b = bed(context=context_of(tmp_path, scheme), latency=0.02)
    anna, ben, nobody = b.web.add(("anna", "hunter2-a"), ("b/en", "p@ss:w?/rd%"), ("", ""), kind=SocksDoor)
    b.site.banned = {anna.exit}
    (bad,) = b.web.add(kind=SocksDoor)
    bad.mode = "refuse"
    node = b.run(settings={**settings_of("httpx"), "LEASE_PROXY_BACKOFF": "60,60"}, pages=16)
    assert paths_of(items_of(b.shop)) == sorted(f"/page/{number}" for number in range(16))
    assert b.site.peers == b.exits([anna, ben, nobody])
    assert max(hit.in_flight for hit in b.site.hits) == 1
    assert {brought for proxy in (anna, ben, nobody) for _, brought in proxy.seen} == {
        "anna:hunter2-a", "b/en:p@ss:w?/rd%", "",
    }  # fmt: skip
    assert 1 <= len(bad.seen) <= 5
    assert b.left()["leased"] == 0
    assert "hunter2" not in node.log
    assert "p@ss" not in node.log
