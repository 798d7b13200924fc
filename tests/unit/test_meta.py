"""The meta keys that users set, and the key under which hosts know an item."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_lease import meta
from scrapy_lease.exceptions import LeaseError
from scrapy_lease.meta import ItemKeys, RequestRefused

URL = "https://shop.example/p/1?b=2&a=1"


class Plain(Spider):
    name = "plain"


class Keyed(Spider):
    name = "keyed"
    answer: Any = "from the method"

    def lease_item_key(self, request: Request) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class BrokenFingerprinter:
    def fingerprint(self, request: Request) -> bytes:
        raise KeyError("no session")


def by_function(request: Request, spider: Spider) -> str:
    return f"{spider.name}:{request.url}"


def keys(spider: Spider | None = None, setting: str = "fingerprint") -> ItemKeys:
    return ItemKeys(spider or Plain(), setting, RequestFingerprinter())


def test_fingerprint_is_the_default() -> None:
    """Requests that Scrapy's duplicate filter takes for one are one item."""
    key = keys().key_of(Request(URL))
    assert key == fingerprint(Request(URL)).hex()
    assert key == keys().key_of(Request("https://shop.example/p/1?a=1&b=2#there"))
    assert key != keys().key_of(Request(URL, method="POST"))


def test_dotted_path_gets_request_and_spider() -> None:
    """LEASE_ITEM_KEY may name a function of request and spider."""
    assert keys(setting=f"{__name__}.by_function").key_of(Request(URL)) == f"plain:{URL}"


def test_spider_method_wins_over_the_setting() -> None:
    """A method lease_item_key of the spider is asked instead of the function that the setting names."""
    by_method = keys(Keyed(), f"{__name__}.by_function")
    assert by_method.key_of(Request(URL)) == "from the method"
    assert "keyed" in repr(by_method)


@pytest.mark.parametrize("dont_filter", [False, True])
def test_meta_wins_over_all(dont_filter: bool) -> None:
    """meta["lease_item"] is the key whatever else is set, also with dont_filter, also of a start request."""
    request = Request(URL, meta={"lease_item": "sku-1"}, dont_filter=dont_filter)
    assert keys(Keyed()).key_of(request) == "sku-1"
    assert keys(Keyed()).key_of(request, is_start=True, occurrence=3) == "sku-1"


def test_not_an_item() -> None:
    """False in meta, None from the function, and dont_filter without a key in meta are no items."""
    spider = Keyed()
    assert keys(spider).key_of(Request(URL, meta={"lease_item": False})) is None
    assert keys(spider).key_of(Request(URL, meta={"lease_item": False}, dont_filter=True), is_start=True) is None
    assert keys(spider).key_of(Request(URL, dont_filter=True)) is None
    spider.answer = None
    assert keys(spider).key_of(Request(URL)) is None


def test_start_request_with_dont_filter_is_told_apart_by_occurrence() -> None:
    """The n-th of several equal start requests is the same item on every host, and another than the next."""
    request = Request(URL, dont_filter=True)
    first, second = (keys().key_of(request, is_start=True, occurrence=n) for n in (0, 1))
    assert first == f"start:0:{fingerprint(request).hex()}"
    assert second == f"start:1:{fingerprint(request).hex()}"
    assert keys().key_of(Request(URL), is_start=True, occurrence=5) == fingerprint(request).hex()


@pytest.mark.parametrize("answer", ["", 5, b"bytes", True, ["a"], ValueError("boom")], ids=repr)
def test_wrong_answer_is_refused(answer: Any) -> None:
    """A key function that raises or gives no usable key refuses the request; the error names both."""
    spider = Keyed()
    spider.answer = answer
    with pytest.raises(RequestRefused, match="lease_item_key") as caught:
        keys(spider).key_of(Request("https://user:secret@shop.example/p/1"))
    assert "https://shop.example/p/1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, LeaseError)


@pytest.mark.parametrize("value", ["", True, 0, 5, b"sku", ["sku"]], ids=repr)
def test_wrong_meta_key_is_refused(value: Any) -> None:
    """meta["lease_item"] of another type is a mistake that must not decide whether something is fetched."""
    with pytest.raises(RequestRefused, match="lease_item"):
        keys().key_of(Request(URL, meta={"lease_item": value}))


@pytest.mark.parametrize("request_", [Request(URL), Request(URL, dont_filter=True)], ids=["item", "start"])
def test_broken_fingerprinter_is_refused(request_: Request) -> None:
    """An exception of the fingerprinter never reaches the engine."""
    broken = ItemKeys(Plain(), "fingerprint", BrokenFingerprinter())
    with pytest.raises(RequestRefused, match="fingerprinter raised KeyError"):
        broken.key_of(request_, is_start=True)


@given(st.text(), st.text())
def test_digest(one: str, other: str) -> None:
    """A digest has 16 bytes, depends on the key alone, and tells keys apart."""
    assert len(meta.digest_of(one)) == meta.DIGEST_SIZE == 16
    assert (meta.digest_of(one) == meta.digest_of(other)) == (one == other)


def test_digest_is_fixed() -> None:
    """The digest of a key never changes between versions, which marks of done items outlive."""
    assert meta.digest_of("sku-1").hex() == "aff000df0a3a146e16d2c7d831b5c2f0"
    assert meta.digest_of("\ud800") != meta.digest_of("\ud801")


@pytest.mark.parametrize(("value", "seconds"), [(None, None), (0, 0), (60, 60), (0.2, 1), (59.1, 60)])
def test_done_ttl(value: Any, seconds: int | None) -> None:
    """A fraction of a second is rounded up: 0 would mean for ever."""
    assert meta.done_ttl(Request(URL, meta={"lease_done_ttl": value})) == seconds
    assert meta.done_ttl(Request(URL)) is None


@pytest.mark.parametrize("value", [-1, True, "60", float("nan"), float("inf"), [1]], ids=repr)
def test_wrong_done_ttl_is_refused(value: Any) -> None:
    """lease_done_ttl must be a number from 0; the error names key and value."""
    with pytest.raises(RequestRefused, match="lease_done_ttl"):
        meta.done_ttl(Request(URL, meta={"lease_done_ttl": value}))


def test_record() -> None:
    """response.meta["lease"] has exactly the promised fields, replaces a copied record and can be removed."""
    values: dict[str, Any] = {"lease": {"item": "of another page"}, "depth": 1}
    meta.write_record(values, item="sku-1", fence=7, session="s1")
    expected = {"item": "sku-1", "fence": 7, "proxy": None, "account": None, "session": "s1"}
    assert meta.read_record(values) == values["lease"] == expected
    for _ in range(2):
        meta.drop_record(values)
        assert values == {"depth": 1}
    assert meta.read_record(values) is None
