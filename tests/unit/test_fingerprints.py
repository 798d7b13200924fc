"""The short way to a fingerprint ends where Scrapy's own does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy import FormRequest, Request
from scrapy.http import JsonRequest
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_lease import fingerprints
from scrapy_lease.fingerprints import CANONICAL, fingerprint_by

URL = "https://shop.example/p/1"


@given(st.from_regex(CANONICAL.__self__, fullmatch=True))
@settings(max_examples=500)
@example("http://shop.example:80/~x/?a=1")
@example("https://0/?page=-")
def test_a_short_way_is_taken_only_where_it_ends_at_the_same(url: str) -> None:
    """Of every URL that is taken for canonical the fingerprint is Scrapy's."""
    request = Request(url)
    short = fingerprints._short(request)
    assert short is None or short == fingerprint(request)


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, method="POST"), Request(URL, body=b"x"), Request(f"{URL}?b=2&a=1"), Request(f"{URL}#part"),
        Request(f"{URL}/%7euser"), Request(f"{URL}?a=1&a=0"), Request("ftp://h/x"), Request("HTTP://Shop.example/p/1"),
        Request(f"{URL}?b=2&a=1", meta={"verbatim_url": True}), Request(URL, meta={"verbatim_url": True}),
        Request("http://a/b/../c/./d/"), Request("http://a//b"), Request("http://a/b/.."), Request("http://a./b"),
        JsonRequest(URL, data={"a": 1}), FormRequest(URL, formdata={"a": "1"}), JsonRequest(URL), Request(f"{URL}?a"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_plain_goes_the_long_way(request_: Request) -> None:
    """Whatever a request is made of, its fingerprint is Scrapy's."""
    assert fingerprint_by(RequestFingerprinter())(request_) == fingerprint(request_)


class Own(RequestFingerprinter):
    def fingerprint(self, request: Request) -> bytes:
        return b"own"


def test_a_fingerprinter_of_the_project_is_asked_each_time() -> None:
    """REQUEST_FINGERPRINTER_CLASS decides what two requests are one."""
    assert fingerprint_by(Own())(Request(URL)) == b"own"


def test_a_scrapy_that_differs_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another form of fingerprints is noticed when a crawl begins."""

    def other(self: Any, request: Request) -> bytes:
        return b"new " + fingerprint(request)

    monkeypatch.setattr(RequestFingerprinter, "fingerprint", other)
    assert fingerprint_by(RequestFingerprinter())(Request(URL)) == b"new " + fingerprint(Request(URL))
