"""The ready-made HTTP provider against a real server, the check of new proxies, and what a source makes of answers."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from aiohttp import web

from scrapy_lease.providers import http
from scrapy_lease.providers.api import checked_api
from scrapy_lease.providers.base import ProviderError
from scrapy_lease.providers.http import HttpProvider
from tests.helpers.providers import LOOPBACK, ProviderServer

BASE = {"items": "data", "host": "ip", "port": "port", "ok": ["code", 0]}
KEY = "k3y-s3cr3t"


def ask(answer: Any, count: int = 3, **api: Any) -> Any:
    """What a provider that is told *api* makes of an answer."""

    async def play() -> Any:
        server = ProviderServer()
        server.answer = answer if callable(answer) else lambda _: answer
        async with server.running():
            return await HttpProvider(checked_api({"url": server.url, **api})).fetch(count)

    return asyncio.run(play())


# What is read


def test_fields_of_json() -> None:
    """Host, port, user, password and exit come from where the paths say, or are the same for all."""
    entry = {"ip": "10.0.0.1", "port": 8000, "auth": {"u": "user", "p": "p@ss"}, "out": ["1.2.3.4"]}
    (proxy,) = ask(
        {"code": "0", "data": [entry]}, user="auth.u", password="auth.p", exit="out.0", lifetime=60, **BASE
    )  # fmt: skip
    assert (proxy.url, proxy.exit) == ("http://user:p%40ss@10.0.0.1:8000", "1.2.3.4")
    assert (proxy.expires, proxy.lifetime, proxy.provider) == (None, 60, LOOPBACK)
    (proxy,) = ask({"code": 0, "data": [entry]}, user="=fixed", password="=same", **BASE)
    assert proxy.url == "http://fixed:same@10.0.0.1:8000"


@pytest.mark.parametrize(
    ("answer", "api"),
    [
        ({"list": [{"at": "h:1"}, {"at": "h:2"}]}, {"items": "list", "endpoint": "at"}),
        (["h:1", "h:2"], {}),
        ([["h", 1], ["h", "2"]], {"host": "0", "port": 1}),
        ("h:1\r\n\r\nhttp://h:2\n", {"format": "text"}),
        ({"a": [{"list": ["h:1", "h:2"]}]}, {"items": "a.0.list"}),
    ],
)
def test_shapes_of_answers(answer: Any, api: dict[str, Any]) -> None:
    """Entries may be objects, lists or strings, deep in the answer, or lines of text."""
    assert [proxy.url for proxy in ask(answer, **api)] == ["http://h:1", "http://h:2"]


def test_addresses_of_version_6() -> None:
    """A host that is an IPv6 address needs no brackets of its own where it has a field of its own."""
    entries = [{"ip": "2001:db8::1", "port": 1}, {"ip": "[2001:db8::2]", "port": 1}]
    proxies = ask({"code": 0, "data": entries}, **BASE)
    assert [proxy.url for proxy in proxies] == ["http://[2001:db8::1]:1", "http://[2001:db8::2]:1"]


def test_credentials_of_text_lines() -> None:
    """Lines may bring credentials, in both forms; literals stand in their place."""
    lines = "h:1:u:p\nu:p@h:2"
    assert [proxy.url for proxy in ask(lines, format="text")] == ["http://u:p@h:1", "http://u:p@h:2"]
    api = {"format": "text", "user": "=x", "password": "=y"}
    assert [proxy.url for proxy in ask(lines, **api)] == ["http://x:y@h:1", "http://x:y@h:2"]


@pytest.mark.parametrize(
    ("value", "api", "expires", "lifetime"),
    [
        ("2027-01-15T08:00:00Z", {}, 1_800_000_000, None),
        ("2027-01-15 16:00:00", {"timezone": "+08:00"}, 1_800_000_000, None),
        ("2027/01/15 09:00:00", {"timezone": "Europe/Berlin"}, 1_800_000_000, None),
        ("2027-01-15 08:00:00", {}, 1_800_000_000, None),
        (1_800_000_000, {}, 1_800_000_000, None),
        ("1800000000000", {}, 1_800_000_000, None),
        (300, {}, None, 300),
        ("300", {"lifetime": 60}, None, 300),
        (5, {"expires_unit": "minutes"}, None, 300),
        (300_000, {"expires_unit": "ms"}, None, 300),
        (300, {"expires_unit": "epoch"}, 300, None),
        (None, {"lifetime": 60}, None, 60),
        ("", {}, None, None),
    ],
)
def test_ends(value: Any, api: dict[str, Any], expires: float | None, lifetime: float | None) -> None:
    """ISO times of any zone, seconds and milliseconds of the epoch, spans; without one the lifetime, or none."""
    (proxy,) = ask([{"at": "h:1", "end": value}], endpoint="at", expires="end", **api)
    assert (proxy.expires, proxy.lifetime) == (expires, lifetime)


def test_what_is_asked() -> None:
    """The count stands in the URL, no greater than one call may be; headers are sent; nothing is re-encoded."""

    async def play() -> None:
        async with ProviderServer().running() as server:
            api = {"url": server.url + "&sign=a%2Bb%2F", "max_count": 10, "headers": {"X-Key": "abc"}, **BASE}
            provider = HttpProvider(checked_api(api))
            assert len(await provider.fetch(7)) == 7
            assert len(await provider.fetch(70)) == 10
            assert server.asked == [7, 10]
            assert server.headers[0]["X-Key"] == "abc"

    asyncio.run(play())


# What goes wrong


@pytest.mark.parametrize(
    ("answer", "api", "text", "is_spent"),
    [
        ({"code": 113, "msg": f"bad key {KEY}"}, BASE, "has at 'code' '113' instead of 0: bad key ***", False),
        ({"code": 0}, BASE, "has at 'data' no list of proxies", False),
        ({"code": 0, "data": "none", "message": "sold\nout"}, BASE, "no list of proxies: sold out", False),
        ("<html>down</html>", BASE, "is no JSON", True),
        ("[" * 100_000, BASE, "is no JSON", True),
        ({"error": "x"}, {}, "has no list of proxies: x", False),
        (lambda _: web.Response(status=503), {}, "it answers with status 503", False),
        ("x" * ((8 << 20) + 9), {}, "its answer has more than 8 MiB", True),
    ],
)
def test_answers_that_are_errors(answer: Any, api: dict[str, Any], text: str, is_spent: bool) -> None:
    """A 200 that is an error is one; its words are told, the key is not; what may have been bought counts as such."""
    with pytest.raises(ProviderError) as caught:
        ask(answer, **api)
    assert text in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.is_spent == is_spent


def test_who_asks_for_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """A Retry-After is passed on, up to a quarter of an hour."""
    for header, wait in (("30", 30), ("99999", 900), ("soon", 0)):
        response = web.Response(status=429, headers={"Retry-After": header})
        with pytest.raises(ProviderError) as caught:
            ask(lambda _, response=response: response)
        assert caught.value.wait == wait


def test_nobody_there() -> None:
    """A provider that cannot be reached has sold nothing, and the error shows no key."""
    api = checked_api({"url": f"http://{LOOPBACK}:1/?key={KEY}"})
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1 cannot be reached") as caught:
        asyncio.run(HttpProvider(api).fetch(1))
    assert not caught.value.is_spent
    assert KEY not in str(caught.value)


def test_a_provider_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call has an end; what it may have bought counts."""
    monkeypatch.setattr(http, "TIMEOUT", http.ClientTimeout(total=0.2))

    async def play() -> None:
        server = ProviderServer()
        server.delay = 5
        async with server.running():
            await HttpProvider(checked_api({"url": server.url})).fetch(1)

    began = time.monotonic()
    with pytest.raises(ProviderError, match=r"gave no answer within 0\.2 s") as caught:
        asyncio.run(play())
    assert caught.value.is_spent
    assert time.monotonic() - began < 3


def test_malformed_entries(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be used is left out and told once for each kind, without its content; all of it was paid for."""
    entries = [
        {"ip": "h", "port": 1, "pw": "s3cr3t"}, {"ip": "h"}, {"port": 1}, "s3cr3t", None, {"ip": ["s3cr3t"], "port": 1},
        {"ip": "h", "port": "s3cr3t"}, {"ip": "h", "port": 2, "end": "s3cr3t"}, {"ip": "h", "port": 99999},
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        batch = ask({"code": 0, "data": entries}, expires="end", password="pw", **BASE)
    assert [proxy.address.port for proxy in batch] == [1]
    assert batch.received == 9
    assert len(caplog.records) == 4
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "has no 'url'"),
        ("{", "no JSON object"),
        (5, "is a int, not a dict"),
        ({"url": "ftp://s3cr3t"}, "'url' is no http"),
        ({"url": "http://s3cr3t:x/"}, "'url' is no http"),
        ({"itmes": "s3cr3t"}, "did you mean 'items'"),
        ({"format": "s3cr3t"}, "'format' is none of 'json', 'text'"),
        ({"host": "a"}, "one of 'host' and 'port'"),
        ({"host": "a", "port": "b", "endpoint": "c"}, "'endpoint' beside"),
        ({"expires_unit": "seconds"}, "no 'expires'"),
        ({"expires": "a", "expires_unit": "years"}, "'expires_unit' is none of"),
        ({"timezone": "Mars/Base"}, "'timezone' is 'Mars/Base', which this host does not know"),
        ({"lifetime": 0}, "'lifetime' is no number of seconds"),
        ({"max_count": 0}, "'max_count' is no whole number"),
        ({"calls": "often"}, "'calls' 'often' is no limit"),
        ({"ok": "code=0"}, "'ok' is not a path and a value"),
        ({"headers": {"a": "s3cr3t\n"}}, "'headers' has a name or value"),
        ({"headers": ["s3cr3t"]}, "'headers' is a list, not a dict"),
        ({"user": 5.5}, "'user' is a float, not a string"),
        ({"format": "text", "exit": "a", "ok": ["a", 1]}, "has 'exit', 'ok', which needs the format 'json'"),
    ],
)
def test_what_is_no_api(value: Any, reason: str) -> None:
    """The error names the key and what is allowed, and shows no value that may be secret."""
    if isinstance(value, dict) and value and "url" not in value:
        value = {"url": "http://h/", **value}
    with pytest.raises(ValueError, match=reason) as caught:
        checked_api(value)
    assert "s3cr3t" not in str(caught.value)
