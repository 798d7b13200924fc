"""What users' unit tests get: responses as a leased crawl gives them, `lease_of` and `complete` without a crawl."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ref

import attrs
import pytest
from pydantic import BaseModel
from scrapy import Field, Item, Request, Spider
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.utils.request import fingerprint

from scrapy_lease import Lease, complete, lease_of
from scrapy_lease.meta import digest_of
from scrapy_lease.testing import is_completed, processing, respond

URL = "https://shop.example/7"
DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"


class Declared(Item):
    name = Field()


@dataclass
class Plain:
    name: str


@attrs.define
class Slotted:
    name: str


class Model(BaseModel):
    name: str


ITEMS = [dict, Declared, Plain, Slotted, Model]


class Shop(Spider):
    """Yields an item with the fence of its page; completes pages by hand."""

    name = "shop"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"name": response.css("h1::text").get(), "fence": response.meta["lease"]["fence"], **kwargs}
        yield response.follow("/8")

    async def parse_by_hand(self, response: Response) -> AsyncIterator[Any]:
        yield {"lease": lease_of({})}
        if response.css("h1"):
            await complete(response)


async def outputs(of: AsyncIterator[Any]) -> list[Any]:
    return [output async for output in of]


def test_a_callback_gets_what_a_crawl_gives_it() -> None:
    """response.request is set, response.meta["lease"] is exactly the promised record, and links can be followed."""
    response = respond(URL, "<h1>Tea</h1>", item="sku-7", fence=3, proxy="10.0.0.1:80#a1b2", account="anna")
    assert (response.url, response.status, response.request.url) == (URL, 200, URL)
    assert response.meta["lease"] == {
        "item": "sku-7", "fence": 3, "proxy": "10.0.0.1:80#a1b2", "account": "anna", "session": "test"
    }  # fmt: skip
    item, request = Shop().parse(response)
    assert item == {"name": "Tea", "fence": 3}
    assert request.url == "https://shop.example/8"


def test_the_item_is_by_default_the_one_of_a_crawl() -> None:
    """Without item= it is the request's meta["lease_item"], else the digest of its fingerprint, as in a crawl."""
    assert respond(URL).meta["lease"]["item"] == digest_of(fingerprint(Request(URL)).hex()).hex()
    named = Request(URL, meta={"lease_item": "sku-7"})
    assert respond(URL, request=named).meta["lease"]["item"] == "sku-7"


def test_a_request_of_ones_own_comes_with_meta_and_arguments() -> None:
    """What the request carries is there for the callback; the page may have another URL, as after a redirect."""
    request = Request(URL, meta={"page": 2}, cb_kwargs={"color": "red"}, method="POST")
    response = respond("https://shop.example/moved", "<h1>x</h1>", request=request, status=404)
    assert response.request is request
    assert (response.url, response.status, response.meta["page"]) == ("https://shop.example/moved", 404, 2)
    assert next(Shop().parse(response, **response.cb_kwargs))["color"] == "red"


@pytest.mark.parametrize(
    ("body", "headers", "kind"),
    [
        ("<p>ü</p>", None, HtmlResponse),
        (" \n<!DOCTYPE html>ü", None, HtmlResponse),
        ("<?xml version='1.0'?><r>ü</r>", None, XmlResponse),
        ('{"a": "ü"}', None, JsonResponse),
        ("[1, 2]", None, JsonResponse),
        ({"a": "ü"}, None, JsonResponse),
        ([1, "ü"], None, JsonResponse),
        ("7 ü", None, TextResponse),
        ("", None, TextResponse),
        ("{not json ü", None, TextResponse),
        ("<p>ü</p>", {"Content-Type": "text/plain"}, TextResponse),
        ("ü", {"content-type": "text/html; charset=latin-1"}, HtmlResponse),
        ("<p>ü</p>", [("X-Any", "1")], HtmlResponse),
        (b"<html><p>x", None, HtmlResponse),
        (b"plain", None, TextResponse),
        (b"\x89PNG\x00\x01", None, Response),
        (b"\x00\x01", {"Content-Type": "image/png"}, Response),
        ({"a": 1}, {"Content-Type": "application/ld+json"}, Response),
    ],
)
def test_the_class_follows_headers_and_body(body: Any, headers: Any, kind: type[Response]) -> None:
    """Headers decide, else the body; text reads as it was given, whatever the charset."""
    response = respond(URL, body, headers=headers)
    if kind is Response:
        assert not isinstance(response, HtmlResponse | JsonResponse | XmlResponse)
    else:
        assert type(response) is kind
    if isinstance(body, str):
        assert response.text == body
    elif isinstance(body, bytes):
        assert response.body == body
    elif isinstance(response, JsonResponse):
        assert response.json() == body


def test_bytes_are_decoded_as_their_headers_say() -> None:
    """Bytes are given as the server sent them: their charset is that of the Content-Type."""
    response = respond(URL, "ü".encode("latin-1"), headers={"Content-Type": "text/html; charset=latin-1"})
    assert response.text == "ü"


@pytest.mark.parametrize("kind", ITEMS)
def test_a_pipeline_finds_the_lease_while_a_page_is_processed(kind: Callable[..., Any]) -> None:
    """Inside of `processing` lease_of tells the page's lease for items of every kind, outside of it none."""
    item = kind(name="Tea")
    with processing(respond(URL, item="sku-7", fence=3, session="s1")):
        assert lease_of(item) == Lease("sku-7", 3, "s1")
        with processing(respond(URL, item="sku-8", fence=4)):
            assert lease_of(item) == Lease("sku-8", 4, "test")
        assert lease_of(item).fence == 3
    assert lease_of(item) is None


def test_an_async_pipeline_finds_the_lease() -> None:
    """What is awaited inside of `processing`, and a task made there, find the lease; another context does not."""

    async def process() -> Lease | None:
        await asyncio.sleep(0)
        return lease_of({})

    async def run() -> list[Lease | None]:
        outside = contextvars.copy_context()
        with processing(respond(URL, fence=3)):
            return [await process(), await asyncio.create_task(process()), outside.run(lease_of, {})]

    first, second, other = asyncio.run(run())
    assert first == second
    assert (first.fence, other) == (3, None)


def test_a_page_records_that_it_was_completed() -> None:
    """After `complete` is awaited is_completed says so, for this page and its copies only."""
    done, empty = respond(URL, "<h1>Tea</h1>", fence=3), respond(URL, "nothing")
    with processing(done):
        (item,) = asyncio.run(outputs(Shop().parse_by_hand(done)))
    asyncio.run(outputs(Shop().parse_by_hand(empty)))
    assert item["lease"].fence == 3
    assert (is_completed(done), is_completed(empty)) == (True, False)
    assert is_completed(done.replace(body=b""))
    assert not is_completed(respond(URL, request=done.request))


def test_what_respond_did_not_make_is_refused() -> None:
    """A response made by hand has no lease to process or to complete: the error says what to use."""
    bare = HtmlResponse(URL)
    for use in (is_completed, lambda response: processing(response).__enter__()):
        with pytest.raises(ValueError, match=r"not made by scrapy_lease\.testing\.respond"):
            use(bare)
    with pytest.raises(ValueError, match="cannot be completed"):
        asyncio.run(complete(bare))


def test_nothing_is_kept() -> None:
    """A page that a test is done with is freed."""
    response = respond(URL)
    asyncio.run(complete(response))
    seen = ref(response.request)
    del response
    gc.collect()
    assert seen() is None


class Named(Shop):
    def parse(self, response: Response) -> Iterator[Any]:
        yield {"name": response.css("h1::text").get()}


class ByHand(Shop):
    def parse(self, response: Response) -> AsyncIterator[Any]:
        return self.parse_by_hand(response)


class Store:
    """Keeps the price that came under the greatest fence."""

    def __init__(self) -> None:
        self.prices: dict[str, tuple[int, int]] = {}

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        lease = lease_of(item)
        assert lease is not None
        self.prices[item["url"]] = max(self.prices.get(item["url"], (0, 0)), (lease.fence, item["price"]))
        return item

    def price_of(self, url: str) -> int:
        return self.prices[url][1]


def test_the_documented_tests_pass() -> None:
    """What docs/testing.md shows runs as it stands there, against a spider and a pipeline of that kind."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {"ShopSpider": Named, "ByHandSpider": ByHand, "StorePipeline": Store}
    exec(code, names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        result = test()
        if result is not None:
            asyncio.run(result)
