"""Requests as bytes for the backlog, and back.

Reading a payload imports nothing and runs nothing: a callback is a name that must be a method of this
spider, a request class is a name that must belong to a subclass of `scrapy.Request` which this process has
already imported. Whatever else the bytes hold ends in `CorruptPayload` or `UnknownCallback`.

What it cannot do: keep an attribute that a `Request` subclass does not list in its ``attributes``; Scrapy's
own disk queue cannot either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MethodType
from typing import Any

import msgspec
from scrapy import Request, Spider
from scrapy.http.request import NO_CALLBACK

from scrapy_lease.exceptions import CorruptPayload, PayloadError, UnknownCallback, Unserialisable
from scrapy_lease.payload.values import Refused
from scrapy_lease.payload.wire import (
    PLAIN_CLASS,
    VERSION,
    build,
    fields_of,
    pack,
    plain_dict,
    read,
    readable_fields,
    shown_url,
)

_NO_CALLBACK_NAME = "<NO_CALLBACK>"
_BASE_ATTRIBUTES = frozenset(Request.attributes)


class Codec:
    """Turns requests of one spider into payloads, and payloads into requests with that spider's callbacks."""

    def __init__(self, spider: Spider) -> None:
        self._spider = spider
        self._names: dict[Callable[..., Any], str] = {}
        self._known_names: set[str] = set()
        self._classes: dict[str, type[Request]] = {}
        self._proved: set[type[Request]] = {Request}

    def __repr__(self) -> str:
        return f"<Codec of spider {self._spider.name!r}>"

    def encode(self, request: Request) -> bytes:
        """Return the payload of `request`, which is not changed.

        Raises `Unserialisable`, naming the request and the part of it that cannot be stored.
        """
        try:
            wire = self._wire_of(request)
        except Refused as refused:
            raise Unserialisable(f"{shown_url(request.url)}: {refused}") from None
        except Exception as exc:  # of an attribute or a comparison that the user's class defines
            raise Unserialisable(f"{shown_url(request.url)}: {type(exc).__name__}: {exc}") from exc
        payload = pack(wire)
        if type(request) not in self._proved:
            self._prove(request, payload)
        return payload

    def decode(self, payload: bytes) -> Request:
        """Return the request that `payload` holds.

        Raises `UnknownCallback` where this spider lacks a method that the request names, or a newer version
        wrote the payload: another node can run it. Raises `CorruptPayload` for everything else that is not a
        request.
        """
        wire = read(payload)
        if wire.v > VERSION:
            raise UnknownCallback(
                f"{shown_url(wire.url)}: payload version {wire.v} is newer than {VERSION}; upgrade this node"
            )
        callback = None if wire.callback is None else self._method(wire.callback, wire.url)
        errback = None if wire.errback is None else self._method(wire.errback, wire.url)
        cls = Request if wire.cls == PLAIN_CLASS else self._class_of(wire.cls, wire.url)
        try:
            return build(cls, wire, callback, errback)
        except Exception as exc:
            raise CorruptPayload(f"{shown_url(wire.url)}: {type(exc).__name__}: {exc}") from exc

    def _wire_of(self, request: Request) -> dict[str, Any]:
        wire = fields_of(request)
        if request.callback is not None:
            wire["callback"] = self._name_of(request.callback, "callback")
        if request.errback is not None:
            wire["errback"] = self._name_of(request.errback, "errback")
        if type(request) is not Request:
            wire.update(self._class_fields(request))
        return wire

    def _name_of(self, function: Any, field: str) -> str:
        if function is NO_CALLBACK:
            return _NO_CALLBACK_NAME
        bound = _is_bound_to(function, self._spider)
        if bound and function.__func__ in self._names:
            return self._names[function.__func__]
        for name in _possible_names(function, self._spider):
            if _is_callback_name(name, self._spider) and getattr(self._spider, name) == function:
                if bound:
                    self._names[function.__func__] = name
                return name
        shown = getattr(function, "__qualname__", type(function).__qualname__)
        raise Refused(f"{field} {shown} is no method of spider {self._spider.name!r}")

    def _method(self, name: str, url: str) -> Callable[..., Any]:
        if name == _NO_CALLBACK_NAME:
            return NO_CALLBACK
        if name not in self._known_names:
            if not name.isidentifier():
                raise CorruptPayload(f"{shown_url(url)}: {name[:80]!r} cannot be the name of a callback")
            if not _is_callback_name(name, self._spider):
                raise UnknownCallback(f"{shown_url(url)}: spider {self._spider.name!r} has no method {name[:80]!r}")
            self._known_names.add(name)
        method: Callable[..., Any] = getattr(self._spider, name)
        return method

    def _class_fields(self, request: Request) -> dict[str, Any]:
        cls = type(request)
        name = f"{cls.__module__}.{cls.__qualname__}"
        if self._classes.get(name) is not cls:
            self._classes = _request_classes()
            if "<locals>" in name or self._classes[name] is not cls:
                raise Refused(f"its class {name} cannot be found again by that name")
        extra = {key: getattr(request, key) for key in cls.attributes if key not in _BASE_ATTRIBUTES}
        return {"cls": name, "attributes": plain_dict(extra, "attributes")}

    def _class_of(self, name: str, url: str) -> type[Request]:
        if name not in self._classes:
            self._classes = _request_classes()
        if name not in self._classes:
            raise CorruptPayload(f"{shown_url(url)}: no imported request class is called {name[:120]!r}")
        return self._classes[name]

    def _prove(self, request: Request, payload: bytes) -> None:
        # A constructor that needs more than the attributes would fail only where the payload is read.
        cls = type(request)
        try:
            self.decode(payload)
        except PayloadError as exc:
            raise Unserialisable(f"{cls.__qualname__} cannot be rebuilt from its attributes: {exc}") from exc
        self._proved.add(cls)


class _Spec(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    method: str = "GET"
    callback: str | None = None
    errback: str | None = None
    headers: dict[str, str | list[str]] = {}
    body: str = ""
    cookies: dict[str, Any] | list[dict[str, Any]] = {}
    meta: dict[str, Any] = {}
    cb_kwargs: dict[str, Any] = {}
    flags: list[str] = []
    priority: int = 0
    dont_filter: bool = False


def request_from_spec(spec: Mapping[str, Any]) -> Request:
    """Return the request, without callbacks, of a JSON object as ``scrapy-lease push`` takes it.

    Only ``url`` is required. Raises `PayloadError` naming the field that is wrong.
    """
    return _request_of(_checked(spec))


def from_spec(spec: Mapping[str, Any]) -> bytes:
    """Return the payload of the same JSON object, with its callback names; no spider is needed.

    Raises `PayloadError` naming the field that is wrong. A callback that the spider lacks shows when a node
    reads the payload.
    """
    checked = _checked(spec)
    try:
        wire = fields_of(_request_of(checked))
    except Refused as refused:
        raise PayloadError(str(refused)) from None
    for field in ("callback", "errback"):
        name = getattr(checked, field)
        if name is not None:
            wire[field] = name
    return pack(wire)


def describe(payload: bytes) -> dict[str, Any]:
    """Return ``url`` (without credentials), ``method``, ``callback`` and ``priority`` of a payload.

    For people; never raises: of a corrupt payload the readable fields are given, the others are None, and
    ``error`` says why.
    """
    shown: dict[str, Any] = dict.fromkeys(("url", "method", "callback", "priority"))
    try:
        wire = read(payload)
        shown.update((name, getattr(wire, name)) for name in tuple(shown))
    except CorruptPayload as exc:
        shown |= readable_fields(payload) | {"error": str(exc)}
    if shown["url"] is not None:
        shown["url"] = shown_url(shown["url"])
    return shown


def _checked(spec: Mapping[str, Any]) -> _Spec:
    try:
        checked = msgspec.convert(dict(spec), _Spec)
    except msgspec.ValidationError as exc:
        raise PayloadError(str(exc).replace("at `$.", "at field `")) from None
    for field in ("callback", "errback"):
        name = getattr(checked, field)
        if name is not None and not name.isidentifier():
            raise PayloadError(f"field `{field}`: {name!r} cannot be the name of a method")
    return checked


def _request_of(spec: _Spec) -> Request:
    fields = msgspec.structs.asdict(spec)
    del fields["callback"], fields["errback"]
    try:
        return Request(**fields)
    except ValueError as exc:
        raise PayloadError(f"field `url`: {exc}") from None


def _request_classes() -> dict[str, type[Request]]:
    found: dict[str, type[Request]] = {}
    waiting: list[type[Request]] = [Request]
    while waiting:
        cls = waiting.pop()
        found[f"{cls.__module__}.{cls.__qualname__}"] = cls
        waiting.extend(cls.__subclasses__())
    return found


def _is_bound_to(function: Any, spider: Spider) -> bool:
    return type(function) is MethodType and (function.__self__ is spider or function.__self__ is type(spider))


def _possible_names(function: Any, spider: Spider) -> Iterator[str]:
    name = getattr(function, "__name__", "")
    yield name
    if name.startswith("__"):
        yield from (f"_{cls.__name__.lstrip('_')}{name}" for cls in type(spider).__mro__)
    yield from dir(spider)


def _is_callback_name(name: str, spider: Spider) -> bool:
    """Whether looking `name` up on the spider gives a method, found without running a property."""
    if name.startswith("__") and name.endswith("__"):
        return False
    if name in vars(spider):
        return _is_bound_to(vars(spider)[name], spider)
    found = next((vars(cls)[name] for cls in type(spider).__mro__ if name in vars(cls)), None)
    if isinstance(found, (classmethod, staticmethod)):
        return True
    return callable(found) and not isinstance(found, (type, property, cached_property))
