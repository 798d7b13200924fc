"""The dict of ``Request.to_dict`` as a payload, and how it comes from the process that unpickles it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any, TypeVar

import msgspec
from scrapy import Request

from scrapy_lease.exceptions import PayloadError
from scrapy_lease.payload.values import Refused
from scrapy_lease.payload.wire import PLAIN_CLASS, fields_of, pack, plain_dict

T = TypeVar("T")

#: Fields of a request that its constructor takes; the rest are names of methods, its class, and what its class adds.
_FIELDS = (
    "url", "method", "headers", "body", "cookies", "meta", "encoding", "priority", "dont_filter", "flags", "cb_kwargs",
)  # fmt: skip
_LENGTH = 8
#: What the process that reads pickles is told of the surroundings: enough to import a project, and no secret.
_PASSED_ON = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV")


class Answer(msgspec.Struct):
    """What became of one stored request: its payload, or what is wrong with it."""

    payload: bytes = b""
    fault: str = ""


def payload_of(stored: Any) -> bytes:
    """Return the payload of a request as scrapy-redis stores it, read by JSON or pickle.

    :raises PayloadError: it is no request, or holds what cannot be stored.
    """
    if not isinstance(stored, dict):
        raise PayloadError("is not the dict of a request")
    left = {_text(name): value for name, value in stored.items()}
    encoding = left.pop("_encoding", None)
    fields = {name: left.pop(name) for name in _FIELDS if name in left}
    fields.setdefault("encoding", encoding or "utf-8")
    names = {name: _method(name, left.pop(name, None)) for name in ("callback", "errback")}
    cls = _text(left.pop("_class", None) or PLAIN_CLASS)
    if left and cls == PLAIN_CLASS:
        raise PayloadError(f"has a field {min(left)!r}, which no request has")
    try:
        wire = fields_of(Request(**fields)) | {name: value for name, value in names.items() if value is not None}
        if cls != PLAIN_CLASS:
            wire |= {"cls": cls, "attributes": plain_dict(left, "attributes")}
        return pack(wire)
    except Refused as refused:
        raise PayloadError(str(refused)) from None
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise PayloadError(f"is no request ({type(error).__name__}: {error})") from None


def environment() -> Mapping[str, str]:
    """Return the environment of the process that reads pickles."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def send(stream: IO[bytes], value: Any) -> None:
    """Write *value* to a pipe."""
    data = msgspec.msgpack.encode(value)
    stream.write(len(data).to_bytes(_LENGTH, "big") + data)
    stream.flush()


def receive(stream: IO[bytes], kind: type[T]) -> T:
    """Return the next value from a pipe; EOFError where there is none, MsgspecError where it is no *kind*."""
    length = stream.read(_LENGTH)
    if len(length) < _LENGTH:
        raise EOFError
    return msgspec.msgpack.decode(stream.read(int.from_bytes(length, "big")), type=kind)


def _method(field: str, name: Any) -> str | None:
    if name is None:
        return None
    text = _text(name)
    if not text.isidentifier():
        raise PayloadError(f"its {field} {text!r} cannot be the name of a method")
    return text


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
