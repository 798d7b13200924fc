"""Requests as payloads: everything survives, what would not is refused, and no bytes can do harm."""

from __future__ import annotations

import functools
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from w3lib.url import safe_url_string

from scrapy_lease.exceptions import CorruptPayload, UnknownCallback, Unserialisable
from scrapy_lease.payload import Codec, describe
from scrapy_lease.payload.wire import QUOTED

URL = "https://shop.example/p/1"


class Base(Spider):
    def inherited(self, response: Any) -> None: ...

    def __parse(self, response: Any) -> None: ...

    def private_of_base(self) -> Any:
        return self.__parse


class Shop(Base):
    name = "shop"
    touched: list[str]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.touched = []
        self.alias = self.parse_product
        self.hook = print

    def parse_product(self, response: Any, page: int = 0) -> None: ...

    def failed(self, failure: Any) -> None: ...

    def __parse(self, response: Any) -> None: ...

    def private(self) -> Any:
        return self.__parse

    @classmethod
    def of_class(cls, response: Any) -> None: ...

    @staticmethod
    def static(response: Any) -> None: ...

    @functools.wraps(parse_product)
    def wrapped(self, *args: Any) -> None: ...

    renamed = parse_product

    @property
    def trap(self) -> Any:
        self.touched.append("trap")
        return self.parse_product

    class Nested:
        pass


class PageRequest(Request):
    attributes = (*Request.attributes, "page")

    def __init__(self, *args: Any, page: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.page = page
        self.headers.setdefault("X-Page", str(page))


class BrokenRequest(PageRequest):
    @property
    def page(self) -> int:
        raise RuntimeError("no page")

    @page.setter
    def page(self, value: int) -> None: ...


class NeedyRequest(Request):
    def __init__(self, url: str, token: str, **kwargs: Any) -> None:
        super().__init__(url, **kwargs)


@pytest.fixture(scope="module")
def spider() -> Shop:
    return Shop()


@pytest.fixture(scope="module")
def codec(spider: Shop) -> Codec:
    return Codec(spider)


def same(one: Request, other: Request) -> bool:
    """Whether two requests agree in class and in every attribute, types included."""
    return type(one) is type(other) and all(
        getattr(one, name) == getattr(other, name) and type(getattr(one, name)) is type(getattr(other, name))
        for name in one.attributes
    )


HEADER_NAMES = st.text(st.characters(codec="ascii"), min_size=1, max_size=8) | st.binary(min_size=1, max_size=8)
HEADERS = st.dictionaries(HEADER_NAMES, st.lists(st.binary(max_size=8), max_size=3), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
MAPS = st.dictionaries(st.text().filter(lambda key: key not in {"lease", "download_latency"}), VALUES, max_size=4)
COOKIES = st.dictionaries(st.text(), st.text()) | st.lists(
    st.fixed_dictionaries({"name": st.text(), "value": st.text() | st.binary()}), max_size=2
)


# A machine that others use as well may be slow to make up requests.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.text(),
    method=st.sampled_from(["GET", "POST", "purge"]),
    headers=HEADERS,
    body=st.binary(),
    cookies=COOKIES,
    meta=MAPS,
    cb_kwargs=MAPS,
    encoding=st.sampled_from(["utf-8", "cp1252", "latin-1", "ISO-8859-15", "gb18030", "koi8_u"]),
    priority=st.integers(-(2**31), 2**31),
    dont_filter=st.booleans(),
    flags=st.lists(st.text(), max_size=2),
    callback=st.sampled_from([None, "parse_product", "inherited", "of_class", "static", "wrapped"]),
)
def test_everything_survives(path: str, callback: str | None, **fields: Any) -> None:
    """Every attribute of a request comes back equal and of the same type, and so does its payload."""
    spider = Shop()
    codec = Codec(spider)
    fields["url"] = "https://shop.example/" + path.encode(fields["encoding"], "ignore").decode(fields["encoding"])
    request = Request(**fields, callback=callback and getattr(spider, callback), errback=spider.failed)
    payload = codec.encode(request)
    read = codec.decode(payload)
    assert same(read, request)
    assert codec.encode(read) == payload


@pytest.mark.parametrize(
    "request_",
    [
        JsonRequest(URL, data={"b": 1, "a": [2]}, dumps_kwargs={"indent": 2, "separators": (",", ":")}),
        FormRequest(URL, formdata={"q": "é", "l": ["1", "2"]}),
        XmlRpcRequest(URL, methodname="add", params=(1, "x")),
        PageRequest(URL, page=7),
    ],
    ids=lambda request: type(request).__name__,
)
def test_subclasses_survive(codec: Codec, request_: Request) -> None:
    """A request class keeps its own attributes, body, method and headers."""
    assert same(codec.decode(codec.encode(request_)), request_)


def test_removed_default_header_stays_removed(codec: Codec) -> None:
    """A header that a constructor adds and the spider took away does not come back."""
    request = JsonRequest(URL, data={})
    del request.headers["Accept"]
    assert "Accept" not in codec.decode(codec.encode(request)).headers


def test_callbacks_by_identity(spider: Shop, codec: Codec) -> None:
    """Inherited, renamed, aliased and name-mangled private methods, and NO_CALLBACK, are found again."""
    for callback in (
        spider.inherited, spider.renamed, spider.alias, spider.private(), spider.private_of_base(),
        Shop.of_class, Shop.static, spider.wrapped, NO_CALLBACK,
    ):  # fmt: skip
        for _ in range(2):
            assert codec.decode(codec.encode(Request(URL, callback))).callback == callback
    assert spider.private() != spider.private_of_base()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"callback": lambda response: None}, "callback"),
        ({"errback": print}, "errback print"),
        ({"callback": functools.partial(print)}, "callback"),
        ({"callback": Shop().parse_product}, "parse_product"),
        ({"callback": Shop.parse_product}, "parse_product"),
        ({"callback": Shop.Nested}, "Nested"),
        ({"meta": {"page": object()}}, r"meta\['page'\] holds a builtins.object"),
        ({"meta": {"row": "\ud800"}}, r"meta\['row'\]"),
        ({"meta": {"row": ("\ud800",)}}, r"meta\['row'\]"),
        ({"cb_kwargs": {"out": sys.stdout}}, r"cb_kwargs\['out'\]"),
        ({"cookies": {"a": object()}}, r"cookies\['a'\]"),
        ({"cookies": ({"name": "a", "value": "b"},)}, "cookies"),
        ({"flags": [object()]}, "object"),
        ({"priority": 2**70}, "priority"),
        ({"encoding": "punycode"}, "punycode"),
    ],
)
def test_refused_by_name(codec: Codec, fields: dict[str, Any], named: str) -> None:
    """What cannot be stored is named together with the URL, whose credentials are not shown."""
    request = Request("https://user:secret@shop.example/p/1", **fields)
    with pytest.raises(Unserialisable, match=named) as caught:
        codec.encode(request)
    assert "https://shop.example/p/1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_class_that_cannot_come_back_is_refused(codec: Codec) -> None:
    """A class local to a function, one with broken attributes or one that needs others, is not stored."""

    class LocalRequest(Request):
        pass

    with pytest.raises(Unserialisable, match="LocalRequest"):
        codec.encode(LocalRequest(URL))
    with pytest.raises(Unserialisable, match="RuntimeError: no page"):
        codec.encode(BrokenRequest(URL))
    for _ in range(2):
        with pytest.raises(Unserialisable, match="NeedyRequest cannot be rebuilt"):
            codec.encode(NeedyRequest(URL, "t"))


def test_encode_changes_nothing_and_drops_only_the_try(codec: Codec) -> None:
    """The lease record and the latency of one try are not stored; everything else of a copied meta is."""
    meta = {
        "lease": {"item": "a", "fence": 1},
        "download_latency": 0.1,
        "depth": 3,
        "download_slot": "shop.example",
        "retry_times": 1,
        "redirect_urls": [URL],
        "proxy": "http://10.0.0.1:3128",
    }
    request = Request(URL, meta=meta)
    read = codec.decode(codec.encode(request))
    assert request.meta == meta
    assert read.meta == {key: value for key, value in meta.items() if key not in {"lease", "download_latency"}}


def test_plain_request_is_small(codec: Codec, spider: Shop) -> None:
    """Fields of a plain GET cost nothing."""
    payload = codec.encode(Request(URL, spider.parse_product, meta={"depth": 1}))
    assert msgspec.msgpack.decode(payload) == {
        "v": 1, "url": URL, "callback": "parse_product", "meta": {"depth": 1},
    }  # fmt: skip


def packed(**fields: Any) -> bytes:
    return msgspec.msgpack.encode({"v": 1, "url": URL, **fields})


def test_missing_and_unknown_fields(codec: Codec) -> None:
    """A payload with fewer fields, or with one this version does not know, is read."""
    assert same(codec.decode(packed()), Request(URL))
    assert same(codec.decode(packed(colour="red")), Request(URL))


def test_newer_version_is_left_to_others(codec: Codec) -> None:
    """A payload of a newer version is no damage: a node that knows it can still run it."""
    with pytest.raises(UnknownCallback, match="version 2 is newer"):
        codec.decode(packed(v=2))


@pytest.mark.parametrize("name", ["gone", "trap", "Nested", "touched", "hook", "__init__", "__class__", "name"])
def test_only_methods_are_callbacks(codec: Codec, spider: Shop, name: str) -> None:
    """What is missing, a property, a class, data or a special method is no callback; none is evaluated."""
    with pytest.raises(UnknownCallback, match=name):
        codec.decode(packed(callback=name))
    with pytest.raises(UnknownCallback, match=name):
        codec.decode(packed(errback=name))
    assert spider.touched == []


def test_nothing_is_imported(codec: Codec) -> None:
    """Names of modules in a payload import none of them."""
    before = set(sys.modules)
    for fields in (
        {"cls": "antigravity.Request"},
        {"cls": "this"},
        {"callback": "os.system"},
        {"encoding": "hex_codec_of_mine"},
        {"encoding": "punycode"},
    ):
        with pytest.raises(CorruptPayload):
            codec.decode(packed(**fields))
    assert set(sys.modules) == before


WRONG = [None, 5, -1, 2**63, 1.5, "x", b"x", [], [1], {"a": 1}, {1: 2}, True, msgspec.msgpack.Ext(1, b"\x05")]
FIELDS = [
    "v", "url", "method", "callback", "errback", "headers", "body", "cookies", "meta", "cb_kwargs", "flags",
    "encoding", "priority", "dont_filter", "cls", "attributes",
]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_wrong_types(codec: Codec, field: str) -> None:
    """A field of a wrong type is refused, or taken where it is right; never another error."""
    outcomes = set()
    for value in WRONG:
        try:
            codec.decode(packed(**{field: value}))
        except (CorruptPayload, UnknownCallback) as exc:
            outcomes.add(type(exc))
    assert CorruptPayload in outcomes


def bomb(depth: int, opening: bytes) -> bytes:
    return msgspec.msgpack.encode({"v": 1, "url": URL, "meta": 0})[:-1] + opening * depth


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xdf\xff\xff\xff\xff")
@example(b"\xc9\xff\xff\xff\xff\x01")
@example(b"\x91" * 100_000)
@example(b"\x81\xa1a" * 100_000)
@example(bomb(100_000, b"\x81\xa1a"))
@example(packed(meta={"a": msgspec.msgpack.Ext(2, b"\x91\x90")}))
@example(packed(meta={"a": msgspec.msgpack.Ext(6, b"not a number")}))
@example(packed(meta={"a": msgspec.msgpack.Ext(99, b"")}))
@example(packed(url="no scheme"))
@example(packed(url="http://[::1"))
def test_hostile_bytes(payload: bytes) -> None:
    """Bytes that are no payload raise CorruptPayload, and people still get a description."""
    with pytest.raises(CorruptPayload):
        Codec(Shop()).decode(payload)
    assert describe(payload).keys() >= {"url", "method", "callback", "priority"}


@given(st.data())
def test_damaged_payload(data: st.DataObject) -> None:
    """A real payload with bytes changed, cut or added gives a request or one of the two errors."""
    spider = Shop()
    codec = Codec(spider)
    request = JsonRequest(URL, data={"a": 1}, callback=spider.parse_product, meta={"a": (1, {2}), "b": 2**70})
    payload = bytearray(codec.encode(request))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        payload = payload or bytearray(b"\x00")
    try:
        read = codec.decode(bytes(payload))
    except (CorruptPayload, UnknownCallback):
        return
    assert isinstance(read, Request)


def test_describe(codec: Codec, spider: Shop) -> None:
    """People see URL without credentials, method, callback and priority; corrupt payloads say why."""
    request = Request("https://u:pw@shop.example/a", spider.parse_product, method="POST", priority=-3)
    assert describe(codec.encode(request)) == {
        "url": "https://shop.example/a", "method": "POST", "callback": "parse_product", "priority": -3,
    }  # fmt: skip
    shown = describe(packed(headers=5, callback="parse"))
    assert (shown["url"], shown["callback"], shown["priority"]) == (URL, "parse", None)
    assert "headers" in shown["error"]


@given(st.from_regex(QUOTED.__self__, fullmatch=True))
def test_what_is_taken_for_quoted_is(url: str) -> None:
    """A URL that is not quoted again when it is read is one that quoting leaves as it is."""
    assert safe_url_string(url) == url
