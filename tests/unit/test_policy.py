"""Verdicts: what a status, an exception, the spider's own wishes and LEASE_POLICY say, and of whom."""

from __future__ import annotations

import gzip
import logging
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from scrapy.http import HtmlResponse, Response
from scrapy.utils.test import get_crawler

from scrapy_lease.policy import RETRY_AFTER_MAX, Judge, Verdict, retry_after, words_of
from scrapy_lease.settings.proxy_values import VERDICTS

URL = "https://site.example/page"
RETRIED = frozenset({500, 502, 503, 504, 522, 524, 408, 429})


def judge_of(policy: Any = None, **options: Any) -> Judge:
    return Judge(VERDICTS, RETRIED, policy=policy, **options)


def word_of(status: int, judge: Judge | None = None, *, is_scheduled: bool = True, **meta: Any) -> str:
    request = Request(URL, meta=meta)
    return (judge or judge_of()).response(request, Response(URL, status=status), is_scheduled=is_scheduled).word


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (200, "ok"), (302, "ok"), (304, "ok"), (401, "ok"), (404, "ok"), (451, "ok"),
        (500, "target"), (503, "target"), (505, "target"), (408, "target"), (599, "target"),
        (403, "ban"), (407, "broken"), (429, "limited"), (454, "expired"),
    ],
)  # fmt: skip
def test_statuses(status: int, word: str) -> None:
    """401, 404 and 451 are the site's own answers, faults of the server its faults; 407 is the proxy's."""
    assert word_of(status) == word


def test_what_the_spider_asks_for_is_its_own_affair() -> None:
    """A status in handle_httpstatus_list, of the spider or in meta, is ok; meta wins over the spider."""
    wanting = judge_of(wanted=frozenset({403, 404}))
    assert word_of(403, wanting) == "ok"
    assert word_of(407, wanting) == "broken"
    assert word_of(403, wanting, handle_httpstatus_list=[404]) == "ban"
    assert word_of(403, handle_httpstatus_list=[403]) == "ok"
    assert word_of(429, handle_httpstatus_all=True) == "ok"


def test_what_a_media_pipeline_asks_for_is_not_the_spiders() -> None:
    """Media pipelines ask for every status; a ban of an image is a ban all the same."""
    assert word_of(403, is_scheduled=False, handle_httpstatus_all=True) == "ban"
    assert word_of(403, judge_of(wanted=frozenset({403})), is_scheduled=False) == "ban"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (DownloadConnectionRefusedError("refused"), "broken"),
        (CannotResolveHostError("no such host"), "broken"),
        (UnsupportedURLSchemeError("socks5"), "broken"),
        (DownloadTimeoutError("took longer than 3 seconds"), "hang"),
        (DownloadFailedError("lost"), "hang"),
        (ResponseDataLossError("half"), "hang"),
        (ConnectionResetError("reset"), "hang"),
        (NotImplementedError("HTTPS proxies for HTTPS destinations are not supported"), "hang"),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [{'status': 407, 'reason': b'x'}]"), "broken"),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [{'status': 454, 'reason': b'x'}]"), "expired"),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [{'status': 429, 'reason': b'x'}]"), "limited"),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [{'status': 401, 'reason': b'x'}]"), "hang"),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [{'status': 403, 'reason': b'x'}]"), "hang"),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [b'nonsense']"), "hang"),
        (DownloadFailedError("407, message='Authentication', url='http://u:p@h:1'"), "broken"),
        (DownloadConnectionRefusedError("407 Proxy Authentication Required"), "broken"),
        (DownloadConnectionRefusedError("502 Bad Gateway"), "hang"),
        (DownloadCancelledError("larger than download max size"), "unused"),
        (StopDownload(), "unused"),
        (IgnoreRequest("robots"), "unused"),
        (ValueError("a bug"), "unused"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_exceptions(error: Exception, word: str) -> None:
    """Who cannot be reached is broken; no answer, or half of one, is uncertain; all else says nothing of the proxy."""
    assert judge_of().exception(Request(URL), error, is_scheduled=True).word == word


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DownloadConnectionRefusedError("refused"), "connection refused"),
        (DownloadTimeoutError("took longer than 3 seconds"), "no answer in time"),
        (DownloadFailedError("lost"), "connection lost"),
        (
            TunnelError("Could not open CONNECT tunnel with proxy h:1 [{'status': 407, 'reason': b'x'}]"),
            "status 407 for",
        ),
        (TunnelError("Could not open CONNECT tunnel with proxy h:1 [b'nonsense']"), "CONNECT refused"),
        (ConnectionResetError("http://u:hunter2@h:1"), "ConnectionResetError"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_people_are_told_why(error: Exception, words: str) -> None:
    """In a few words, and never in the error's own, which may hold a password."""
    assert words_of(error).startswith(words)
    assert "hunter2" not in words_of(error)


def test_a_fault_of_tls_is_uncertain() -> None:
    """A handler that calls it a refused connection hides that the proxy was reached: it is not broken."""
    error = DownloadConnectionRefusedError("cannot connect")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert judge_of().exception(Request(URL), error, is_scheduled=True).word == "hang"


def in_seconds(seconds: float) -> bytes:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True).encode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"-5",
        b"0",
        b"1.5",
        b"soon",
        b"\xff",
        b"Mon, 30 Nov 2020 12:00:00 GMT",
        b"Mon, 99 Foo 2026 25:00:00 GMT",
    ],
)
def test_a_retry_after_that_says_nothing(value: bytes | None) -> None:
    """Nonsense, a past date and 0 are no wait: the pool's own back-off counts."""
    assert retry_after(asking(value)) is None


def asking(value: bytes | None, date: bytes | None = None) -> Response:
    """An answer that asks for a pause, from a site whose clock shows *date*."""
    given = {"Retry-After": value, "Date": date}
    return Response(URL, status=429, headers={name: text for name, text in given.items() if text is not None})


def test_retry_after_in_both_forms() -> None:
    """Seconds or a date; too long a wait is capped."""
    assert retry_after(asking(b" 120 ")) == 120
    assert retry_after(asking(in_seconds(120))) == pytest.approx(120, abs=2)
    assert retry_after(asking(b"99999")) == retry_after(asking(in_seconds(99999))) == RETRY_AFTER_MAX


def test_a_date_is_held_against_the_clock_of_the_site() -> None:
    """So neither a host nor a site whose clock is off waits for too long, or not at all."""
    assert retry_after(asking(in_seconds(3600), in_seconds(3570))) == 30
    assert retry_after(asking(in_seconds(-3600), in_seconds(-3630))) == 30
    assert retry_after(asking(in_seconds(120), b"nonsense")) == pytest.approx(120, abs=2)


def test_what_limited_says_of_the_time() -> None:
    """The verdict tells for how long."""
    limited = Response(URL, status=429, headers={"Retry-After": "7"})
    assert judge_of().response(Request(URL), limited, is_scheduled=True) == Verdict("limited", 7)


class Robot:
    """Takes pages that ask whether one is a robot for bans."""

    def judge(self, request: Request, response: Any, exception: Exception | None) -> str | None:
        if exception is not None:
            return "target" if isinstance(exception, DownloadTimeoutError) else None
        if response.status == 403:
            return "logged_out"
        return "ban" if "robot" in response.text else None


def page(text: str, *, zipped: bool = False, status: int = 200) -> HtmlResponse:
    body = text.encode()
    headers = {"Content-Encoding": "gzip"} if zipped else {}
    return HtmlResponse(URL, status, headers, gzip.compress(body) if zipped else body)


def test_the_policy_is_asked_first() -> None:
    """What it says counts, before the spider's wishes and the statuses; None leaves it to these."""
    judge, request = judge_of(Robot(), wanted=frozenset({403})), Request(URL)
    assert judge.response(request, page("Are you a robot?"), is_scheduled=True).word == "ban"
    assert judge.response(request, page("Tea"), is_scheduled=True).word == "ok"
    assert judge.response(request, page("Tea", status=403), is_scheduled=True).word == "logged_out"
    assert judge.response(request, page("Tea", status=454), is_scheduled=True).word == "expired"
    assert judge.exception(request, DownloadTimeoutError(), is_scheduled=True).word == "target"
    assert judge.exception(request, DownloadFailedError(), is_scheduled=True).word == "hang"


def test_the_policy_reads_what_came_compressed() -> None:
    """It sees the text; the response that goes on is as it came."""
    crawler = get_crawler(Spider)
    judge = Judge.from_crawler(crawler, VERDICTS, Robot)
    response = page("Are you a robot?", zipped=True)
    before = response.body, dict(response.headers)
    assert judge.response(Request(URL), response, is_scheduled=True).word == "ban"
    assert (response.body, dict(response.headers)) == before


@pytest.mark.parametrize(("said", "told"), [("bann", "said 'bann', which is no verdict"), (7, "is no verdict")])
def test_a_policy_that_says_nonsense(said: Any, told: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once; the statuses decide."""
    policy = type("Wrong", (), {"judge": lambda self, request, response, exception: said})()
    judge = judge_of(policy)
    assert [word_of(status, judge) for status in (200, 403)] == ["ok", "ban"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert told in record.getMessage()


def test_a_policy_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """Its fault is no fault of the page: it is told once, with where it was."""

    class Raises:
        def judge(self, request: Request, response: Any, exception: Any) -> str | None:
            raise KeyError("sku")

    judge = judge_of(Raises())
    assert [word_of(status, judge) for status in (200, 403)] == ["ok", "ban"]
    (record,) = caplog.records
    assert "raised KeyError" in record.getMessage()
    assert record.exc_info is not None
