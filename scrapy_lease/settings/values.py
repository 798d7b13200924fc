"""How one value of a setting is read, checked and shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from scrapy.utils.misc import load_object

_LATER_SCHEMES = ("redis+sentinel", "redis+cluster")
_URL_OPTIONS = frozenset({"db", "username", "password", "protocol", "client_name"})
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SECRET_NAME = re.compile(r"pass|secret|token|credential|cookie|auth|account|prox", re.IGNORECASE)
#: What is set for proxies and accounts, and holds no URL or password of one.
_PLAIN_NAME = re.compile(
    r"(LEASE_)?(PROXY_(ENABLED|POOL|SESSIONS|LIFETIME|CONCURRENCY|REUSE|KEEP|BATCH|MIN_FREE|BUY_LIMIT|CHECK|CHECK_TIMEOUT|"
    r"MARGIN|BACKOFF|RETRIES|STICKY|STICKY_TTL|GRACE|WAIT)|ACCOUNT_(ENABLED|POOL|HANDLER|HOLDERS|CONCURRENCY|INTERVAL|HOURS|"
    r"QUOTA|MIN_SUCCESS|SLOW|COOLDOWN|ACTIVE|REFILL|WAIT|ON_PROXY_LOST))",
    re.IGNORECASE,
)
#: What may name a file; a value of these that can only be a path has no secret in it.
_FILE_NAME = re.compile(r"(LEASE_)?(PROXIES|ACCOUNTS)", re.IGNORECASE)
_PATH = re.compile(r"[^\s,:@\[{]+")
#: What may name a class.
_CLASS_NAME = re.compile(r"(LEASE_)?(PROXY|ACCOUNT)_PROVIDER", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_URL_USER = re.compile(r"(?<=://)(?P<user>[^:@]*)(?P<password>:.*)?@", re.DOTALL)
_URL_STRAY_PASSWORD = re.compile(r"(?<=://)(?P<user>[^:@/?\[]*):(?!\d*(?:[/?,]|$))[^@]*$", re.DOTALL)
_URL_SECRET_OPTION = re.compile(r"(?<=[?&])([^=&]*(?:pass|secret|token|user)[^=&]*)=[^&]*", re.IGNORECASE)
#: A string of JSON, or of Python.
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", re.DOTALL)


def redacted_url(url: str) -> str:
    """Return *url* without its password, valid URL or not; a user without a password is masked too."""
    url = _URL_USER.sub(lambda m: f"{m['user']}:***@" if m["password"] else "***@", url)
    url = _URL_STRAY_PASSWORD.sub(r"\g<user>:***", url)
    return _URL_SECRET_OPTION.sub(r"\1=***", url)


def _redacted(text: str) -> str:
    """Return *text* without passwords: of what looks like JSON each string by itself, so that the rest is legible."""
    if text.lstrip()[:1] not in ("{", "[") or "://" in _QUOTED.sub("", text):
        return redacted_url(text)
    return _QUOTED.sub(lambda found: redacted_url(found[0]), text)


def shown(name: str, value: object) -> str:
    """Return *value* as it may stand in an error about the setting *name*: short and without secrets."""
    if _SECRET_NAME.search(name) and not _PLAIN_NAME.fullmatch(name):
        plain = _PATH if _FILE_NAME.fullmatch(name) else _DOTTED if _CLASS_NAME.fullmatch(name) else None
        return repr(value) if plain and isinstance(value, str) and plain.fullmatch(value.strip()) else "***"
    if isinstance(value, str):
        text = repr(_redacted(value))
        return text if len(text) <= 120 else f"{text[:116]}...'"
    if isinstance(value, list | tuple) and all(isinstance(part, int | float) for part in value):
        return repr(value)
    return repr(value) if isinstance(value, int | float | None) else f"<{type(value).__name__}>"


def checked_url(url: str) -> str:
    """Return the store's *url*, its scheme in lower case; raise ValueError saying what is wrong with it."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if separator and scheme in _LATER_SCHEMES:
        raise ValueError(f"{scheme}:// is not available in this version")
    if not separator or scheme not in ("redis", "rediss", "unix", "embedded"):
        raise ValueError("is no URL of a store")
    url = f"{scheme}://{rest}"
    if scheme == "embedded":
        if "@" in rest or "?" in rest:
            raise ValueError("embedded:// takes a directory and nothing else")
    elif scheme == "unix":
        _check_socket(url)
    else:
        _check_server(url)
    return url


def _check_server(url: str) -> None:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.fragment:
        raise ValueError(
            "its port is not a number from 1 to 65535"
            " (in a user name or password, write / ? # @ : as %2F %3F %23 %40 %3A)"
        )
    if not re.fullmatch(r"/?\d*", parts.path, re.ASCII):
        raise ValueError("what follows the port must be the number of a database, like /0")
    _check_options(parts.query, tls=parts.scheme == "rediss")


def _check_socket(url: str) -> None:
    parts = urlsplit(url)
    if len(parts.path) < 2:
        raise ValueError("names no socket: write unix:///path/to/socket")
    _check_options(parts.query, tls=False)


def _check_options(query: str, *, tls: bool) -> None:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _URL_OPTIONS and not (tls and name.startswith("ssl_")):
            known = ", ".join(sorted(_URL_OPTIONS))
            raise ValueError(f"has an option {name!r}; known are {known}{' and ssl_…' if tls else ''}")
        if name in _TLS_FILES:
            _check_file(name, value)
        if name == "db" and not re.fullmatch(r"\d+", value, re.ASCII):
            raise ValueError("its db must be a number")


def _check_file(name: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ValueError(f"its {name} names {path!r}, which cannot be read: {error.strerror}") from None


def checked_run(name: str) -> str:
    """Return the *name* of a run; raise ValueError where another name would look the same."""
    if name != name.strip() or not name.isprintable():
        raise ValueError("must have no space at either end and no control character")
    return name


def checked_item_key(path: str) -> str:
    """Return *path*; raise ValueError unless it is a fixed word or leads to something that can be called."""
    if path in ("fingerprint", "spider"):
        return path
    function_at(path)
    return path


def function_at(path: str) -> Callable[..., Any]:
    """Return what can be called at *path*; raise ValueError, which says what is there instead."""
    try:
        found = load_object(path)
    except Exception as exc:
        raise ValueError(f"cannot be imported ({type(exc).__name__}: {exc})") from None
    if not callable(found):
        raise ValueError(f"leads to {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def number_only(value: Any) -> Any:
    """Return *value*; raise ValueError for True and False, which Python takes for numbers."""
    if isinstance(value, bool):
        raise ValueError(f"{value} is no number")
    return value


def _pair(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip().removeprefix("(").removesuffix(")")
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = [part.strip() for part in text.split(",")]
    return parsed


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("the first wait is longer than the longest")
    return pair


def _endless_or_from_zero(value: float) -> float:
    if -1 < value < 0:
        raise ValueError("is neither -1 nor at least 0")
    return value


Count = Annotated[int, BeforeValidator(number_only), Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(number_only), Field(ge=0, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, BeforeValidator(number_only), Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(number_only), Field(ge=0, le=1, allow_inf_nan=False)]
"""A part of the whole."""
Stay = Annotated[
    float,
    BeforeValidator(number_only),
    Field(ge=-1, allow_inf_nan=False),
    AfterValidator(_endless_or_from_zero),
]
"""Seconds; -1: for ever."""
Waits = Annotated[tuple[PositiveSeconds, PositiveSeconds], BeforeValidator(_pair), AfterValidator(_rising)]
"""First and longest wait, in seconds."""
Name = Annotated[str, Field(min_length=1)]
"""A name that people chose: anything but empty."""
