"""The JSON objects of `push`: what they become, and how a wrong one is told."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request, Spider

from scrapy_lease.exceptions import PayloadError
from scrapy_lease.payload import Codec, from_spec, request_from_spec

URL = "https://shop.example/p/1"


class Shop(Spider):
    name = "shop"

    def parse_product(self, response: Any, page: int = 0) -> None: ...


def test_spec_becomes_a_request() -> None:
    """The JSON object of `push` gives the request that the spider would have made."""
    spec = {
        "url": URL, "method": "post", "headers": {"Accept": ["a", "b"]}, "body": "é", "cookies": {"s": "1"},
        "meta": {"lease_item": "p1"}, "cb_kwargs": {"page": 2}, "callback": "parse_product", "priority": 5,
        "dont_filter": True,
    }  # fmt: skip
    spider = Shop()
    expected = Request(**{**spec, "callback": spider.parse_product})
    read = Codec(spider).decode(from_spec(spec))
    assert read.to_dict(spider=spider) == expected.to_dict(spider=spider)
    assert request_from_spec(spec).to_dict() == expected.replace(callback=None).to_dict()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "url"),
        ({"url": 5}, "url"),
        ({"url": "shop.example/p"}, "url"),
        ({"url": URL, "urll": URL}, "urll"),
        ({"url": URL, "priority": "high"}, "priority"),
        ({"url": URL, "priority": True}, "priority"),
        ({"url": URL, "priority": 2**70}, "priority"),
        ({"url": URL, "meta": []}, "meta"),
        ({"url": URL, "headers": {"a": 1}}, "headers"),
        ({"url": URL, "callback": "a.b"}, "callback"),
        ({"url": URL, "errback": ""}, "errback"),
        ({"url": URL, "cookies": "a=b"}, "cookies"),
    ],
)
def test_wrong_spec_names_the_field(spec: dict[str, Any], field: str) -> None:
    """A wrong object is refused with the name of its wrong field."""
    with pytest.raises(PayloadError, match=field):
        from_spec(spec)
