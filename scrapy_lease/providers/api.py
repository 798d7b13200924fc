"""LEASE_PROXY_API: what the ready-made HTTP provider is told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from scrapy_lease.leases.pool.supply import Limit
from scrapy_lease.providers.fields import Field, field_of
from scrapy_lease.providers.limits import parse_limit
from scrapy_lease.providers.moments import UNITS, parse_timezone


@dataclass(frozen=True, slots=True, repr=False)
class Api:
    """A provider that is asked by HTTP. Nearly everything here may hold a secret, so it has no repr of its own.

    :param url: ``{count}`` in it is how many are wanted.
    :param format: ``json``, or ``text``: an address on each line.
    :param items: path of the list of entries in a JSON answer.
    :param endpoint: the field that holds ``host:port`` or a URL, if :attr:`host` and :attr:`port` are not given; by
        default the entry itself.
    :param exit: the field that holds the address that sites see.
    :param expires: the field that holds the end; :attr:`expires_unit`: what it counts, "" if that shows.
    :param lifetime: seconds that a proxy lives whose entry names no end; None: for ever.
    :param timezone: of times that name none.
    :param ok: a path, and the value there that means success.
    :param max_count: the most that one call may ask for; 0: any number.
    :param calls: how often it may be called.
    """

    url: str
    format: str = "json"
    items: str = ""
    host: Field | None = None
    port: Field | None = None
    endpoint: Field | None = None
    user: Field | None = None
    password: Field | None = None
    exit: Field | None = None
    expires: Field | None = None
    expires_unit: str = ""
    lifetime: float | None = None
    timezone: tzinfo = UTC
    ok: tuple[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    max_count: int = 0
    calls: Limit | None = None

    @property
    def shown(self) -> str:
        """The host, for people."""
        return urlsplit(self.url).hostname or ""


def checked_api(value: str | Mapping[str, Any]) -> Api:
    """Read LEASE_PROXY_API, a dict or one written as JSON.

    :raises ValueError: it cannot be used; the text names the key and what is allowed, never a value with secrets.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("is a string that is no JSON object") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"is a {type(value).__name__}, not a dict")
    for key in value:
        if key not in _READERS:
            near = get_close_matches(str(key), _READERS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_READERS)}"
            raise ValueError(f"has a key {str(key)[:40]!r}; {hint}")
    if not value.get("url"):
        raise ValueError("has no 'url'")
    api = Api(**{key: _read(key, given) for key, given in value.items() if given is not None})
    _check(api)
    return api


def _read(key: str, value: Any) -> Any:
    try:
        return _READERS[key](value)
    except ValueError as error:
        raise ValueError(f"{key!r} {error}") from None


def _check(api: Api) -> None:
    if (api.host is None) != (api.port is None):
        raise ValueError("has one of 'host' and 'port': give both, or 'endpoint' (host:port)")
    if api.host is not None and api.endpoint is not None:
        raise ValueError("has 'endpoint' beside 'host' and 'port': give one or the other")
    if api.expires_unit and api.expires is None:
        raise ValueError("has 'expires_unit' and no 'expires'")
    if api.format == "text":
        fields = ("host", "port", "endpoint", "user", "password", "exit", "expires")
        paths = [name for name in fields if (found := getattr(api, name)) is not None and found.literal is None]
        if paths or api.items or api.ok is not None:
            names = [*paths, *(["items"] if api.items else []), *(["ok"] if api.ok is not None else [])]
            raise ValueError(f"has {', '.join(map(repr, names))}, which needs the format 'json'")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is a {type(value).__name__}, not a string")
    return value


def _url(value: Any) -> str:
    try:
        parts = urlsplit(_text(value))
        is_url = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url:
        raise ValueError("is no http:// or https:// URL")
    return str(value)


def _field(value: Any) -> Field:
    # A port or a path of one number is easily written as one.
    return field_of(str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value))


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"is none of {', '.join(map(repr, allowed))}")
        return str(value)

    return read


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("is no number of seconds above 0")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("is no whole number above 0")
    return value


def _ok(value: Any) -> tuple[str, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2 or isinstance(value[1], list | dict):
        raise ValueError('is not a path and a value: write ["code", 0]')
    return _text(value[0]), value[1]


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"is a {type(value).__name__}, not a dict")
    if not all(isinstance(part, str) and part.isprintable() for pair in value.items() for part in pair):
        raise ValueError("has a name or value that is no string of printable characters")
    return dict(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "url": _url,
    "format": _one_of("json", "text"),
    "items": _text,
    **dict.fromkeys(("host", "port", "endpoint", "user", "password", "exit", "expires"), _field),
    "expires_unit": _one_of(*UNITS),
    "lifetime": _seconds,
    "timezone": lambda value: parse_timezone(_text(value)),
    "ok": _ok,
    "headers": _headers,
    "max_count": _count,
    "calls": lambda value: parse_limit(_text(value), is_call=True),
}
