"""The bytes of a payload: one MessagePack map of the fields of `Wire` that differ from those of a plain GET.

Knows requests, not spiders: callbacks and request classes are names here; `scrapy_lease.payload` gives them
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import urlsplit

import msgspec
from scrapy import Request
from scrapy.http import Headers

from scrapy_lease.exceptions import CorruptPayload, Unserialisable
from scrapy_lease.payload.values import ATOMS, Refused, plain, plain_key, restore

if TYPE_CHECKING:
    from scrapy.http.request import CookiesT

VERSION = 1
"""Written into every payload; raised when a reader of the version before could misunderstand a field."""

NOT_STORED = frozenset({"lease", "download_latency"})
"""``meta`` keys about one answered try: a copy of ``response.meta`` must not carry them to another item."""

PLAIN_CLASS = f"{Request.__module__}.{Request.__qualname__}"
"""The name of `scrapy.Request`, left out of payloads."""

#: The meta key by which a request's URL is taken as it stands.
_VERBATIM = "verbatim_url"
#: Matches scheme, host and port of a URL, where they are written in their plainest form.
ORIGIN = r"https?://[a-z0-9](?:[a-z0-9.-]{0,60}[a-z0-9])?(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?"
#: Matches a URL that no quoting would change.
QUOTED = re.compile(
    ORIGIN + r"/[A-Za-z0-9._~!$&'()*+,;=:@/-]*"
    r"(?:\?[A-Za-z0-9._~!$&()*+,;=:@/-]+)?"
).fullmatch
_UNALIASED_ENCODINGS = frozenset(
    {"cp720", "cp737", "cp856", "cp874", "cp875", "cp1006", "koi8_t", "koi8_u", "utf_8_sig"}
)
_KNOWN_ENCODINGS = _UNALIASED_ENCODINGS | aliases.keys() | set(aliases.values())
_LONGEST_SHOWN_URL = 300


class Wire(msgspec.Struct):
    """A payload as read. A field that an older version did not write has its default here."""

    v: Annotated[int, msgspec.Meta(ge=1)]
    url: str
    method: str = "GET"
    callback: str | None = None
    errback: str | None = None
    headers: dict[bytes, list[bytes]] = {}
    body: bytes = b""
    cookies: dict[Any, Any] | list[dict[Any, Any]] = {}
    meta: dict[Any, Any] = {}
    cb_kwargs: dict[str, Any] = {}
    flags: list[Any] = []
    encoding: str = "utf-8"
    priority: int = 0
    dont_filter: bool = False
    cls: str = PLAIN_CLASS
    attributes: dict[str, Any] = {}


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Wire, ext_hook=restore).decode
_unpack_anything = msgspec.msgpack.Decoder(ext_hook=lambda code, data: None).decode


def fields_of(request: Request) -> dict[str, Any]:
    """Return the fields of `request` except its callbacks and class.

    Raises `Refused` naming what cannot be stored.
    """
    wire: dict[str, Any] = {"v": VERSION, "url": request.url}
    if request.method != "GET":
        wire["method"] = request.method
    if request.meta:
        wire["meta"] = plain_dict(request.meta, "meta", NOT_STORED)
    if request.cb_kwargs:
        wire["cb_kwargs"] = plain_dict(request.cb_kwargs, "cb_kwargs")
    if request.headers:
        wire["headers"] = dict(request.headers)
    if request.body:
        wire["body"] = request.body
    if request.cookies:
        wire["cookies"] = _plain_cookies(request.cookies)
    if request.flags:
        wire["flags"] = _plain_flags(request.flags)
    if request.priority:
        wire["priority"] = int(request.priority)
    if request.dont_filter:
        wire["dont_filter"] = True
    if request.encoding != "utf-8":
        if not _is_known_encoding(request.encoding):
            raise Refused(f"encoding {request.encoding!r} is no text encoding of Python")
        wire["encoding"] = request.encoding
    return wire


def plain_dict(values: dict[Any, Any], field: str, left_out: frozenset[str] = frozenset()) -> dict[Any, Any]:
    """Return a copy of `values` as `plain` writes it. Raises `Refused` naming `field` and the key."""
    written = {}
    for key, value in values.items():
        if key in left_out:
            continue
        try:
            written[plain_key(key)] = value if type(value) in ATOMS else plain(value)
        except (Refused, UnicodeEncodeError) as exc:
            raise Refused(f"{field}[{key!r}] {exc}") from None
    return written


def pack(wire: dict[str, Any]) -> bytes:
    """Return the bytes of `wire`. Raises `Unserialisable` naming the field that MessagePack refuses."""
    try:
        return _pack(wire)
    except (TypeError, OverflowError, UnicodeEncodeError) as exc:
        url = shown_url(str(wire["url"]))
        raise Unserialisable(f"{url}: {_culprit(wire)} cannot be stored: {exc}") from None


def read(payload: bytes) -> Wire:
    """Return the checked fields of a payload of any version. Raises `CorruptPayload`."""
    try:
        wire = _unpack(payload)
    except Exception as exc:
        raise CorruptPayload(f"not the payload of a request: {type(exc).__name__}: {exc}") from exc
    if wire.encoding != "utf-8" and not _is_known_encoding(wire.encoding):
        raise CorruptPayload(f"{shown_url(wire.url)}: encoding {wire.encoding[:40]!r} is no text encoding of Python")
    return wire


def readable_fields(payload: bytes) -> dict[str, Any]:
    """Return those fields of a corrupt payload that people look for and that have the right type."""
    try:
        found = _unpack_anything(payload)
    except Exception:
        return {}
    if not isinstance(found, dict):
        return {}
    kinds = {"url": str, "method": str, "callback": str, "priority": int}
    return {name: found[name] for name, kind in kinds.items() if type(found.get(name)) is kind}


def build(
    cls: type[Request], wire: Wire, callback: Callable[..., Any] | None, errback: Callable[..., Any] | None
) -> Request:
    """Return the request. Raises whatever the constructor of `cls` raises for such fields."""
    request = _build_plain(wire, callback, errback) if cls is Request else _build_subclass(cls, wire, callback, errback)
    if wire.headers or cls is not Request:
        request.headers = _headers_of(wire)
    return request


def shown_url(url: str) -> str:
    """Return `url` as it may stand in a log or an error: without credentials, on one line, not endless."""
    try:
        netloc = urlsplit(url).netloc
    except ValueError:
        return "<unreadable URL>"
    if "@" in netloc:
        url = url.replace(netloc, netloc.rpartition("@")[2], 1)
    if not url.isprintable():
        url = ascii(url)[1:-1]
    return url if len(url) <= _LONGEST_SHOWN_URL else f"{url[:_LONGEST_SHOWN_URL]}…"


def _build_plain(wire: Wire, callback: Callable[..., Any] | None, errback: Callable[..., Any] | None) -> Request:
    # The URL went through Scrapy's quoting when the request was made; a second time costs as much as all the rest.
    is_quoted = wire.encoding == "utf-8" and QUOTED(wire.url) is not None and _VERBATIM not in wire.meta
    if is_quoted:
        wire.meta[_VERBATIM] = True
    request = Request(
        wire.url, callback, wire.method, None, wire.body, cast("CookiesT", wire.cookies), wire.meta,
        wire.encoding, wire.priority, wire.dont_filter, errback, wire.flags, wire.cb_kwargs,
    )  # fmt: skip
    if is_quoted:
        del request.meta[_VERBATIM]
    return request


def _build_subclass(
    cls: type[Request], wire: Wire, callback: Callable[..., Any] | None, errback: Callable[..., Any] | None
) -> Request:
    if unknown := wire.attributes.keys() - set(cls.attributes):
        raise ValueError(f"{cls.__qualname__} has no attribute {min(unknown)!r}")
    fields = {name: getattr(wire, name) for name in Request.attributes}
    fields |= {"callback": callback, "errback": errback, "headers": _headers_of(wire)} | wire.attributes
    return cls(**{name: fields[name] for name in cls.attributes if name in fields})


def _headers_of(wire: Wire) -> Headers:
    # Headers' own update() would spell the names anew, which is not the same twice for names outside ASCII.
    headers = Headers(encoding=wire.encoding)
    dict.update(headers, wire.headers)
    return headers


def _plain_cookies(cookies: Any) -> Any:
    if type(cookies) is dict:
        return plain_dict(cookies, "cookies")
    if type(cookies) is list and all(type(cookie) is dict for cookie in cookies):
        return [plain_dict(cookie, "cookies") for cookie in cookies]
    raise Refused("cookies are neither a dict nor a list of dicts")


def _plain_flags(flags: Any) -> Any:
    if type(flags) is not list:
        raise Refused(f"flags are a {type(flags).__qualname__}, not a list")
    return plain(flags)


@lru_cache(maxsize=256)
def _is_known_encoding(name: str) -> bool:
    # An unknown name would make Python import a module called like it.
    return normalize_encoding(name).lower() in _KNOWN_ENCODINGS


def _culprit(wire: dict[str, Any]) -> str:
    for field, value in wire.items():
        if _is_packable(value):
            continue
        parts = value if type(value) is dict else {}
        return next((f"{field}[{key!r}]" for key in parts if not _is_packable({key: parts[key]})), field)
    return "the whole"


def _is_packable(value: Any) -> bool:
    try:
        _pack(value)
    except (TypeError, OverflowError, UnicodeEncodeError):
        return False
    return True
