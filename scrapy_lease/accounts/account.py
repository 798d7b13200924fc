"""An account as people and providers give it. No error or repr shows anything of it but its id."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, Self
from urllib.parse import unquote

from scrapy_lease.providers.address import parse_address
from scrapy_lease.providers.minted import is_gateway

#: An id is shown: in listings, logs and ``response.meta``.
_ID = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\r\n\0]*")
_COOKIE_FIELDS = frozenset({"name", "value", "domain", "path", "secure"})
#: What is shorter may stand in any text by chance.
_SHORTEST_SECRET = 4

Cookies = Mapping[str, str] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """An account of a site.

    :param id: its name in listings, logs and ``response.meta``; no secret, and no spaces in it.
    :param cookies: a mapping of name to value, for whichever site its requests go to; or a list of mappings with
        ``name``, ``value``, and as known ``domain``, ``path``, ``secure``.
    :param headers: sent with each of its requests; ``User-Agent`` among them is its own.
    :param username: for who logs in, as is *password*.
    :param proxy: URL of the proxy through which all its requests go, for ever.
    """

    id: str
    cookies: Cookies = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    username: str = ""
    password: str = ""
    proxy: str = ""

    def __repr__(self) -> str:
        return f"<Account {self.id}>"

    @classmethod
    def of(cls, given: object) -> Self:
        """Return *given*, a mapping or an account, as an account.

        :raises ValueError: it cannot be one; the text says why, without secrets.
        """
        if isinstance(given, cls):
            values = {name: getattr(given, name) for name in FIELDS}
        elif isinstance(given, Mapping):
            values = {key: value for key, value in given.items() if value is not None}
        else:
            raise ValueError(f"is a {type(given).__name__}, not a dict")
        if unknown := [key for key in values if key not in FIELDS]:
            raise ValueError(f"has {str(unknown[0])!r}, which is no field of an account: {', '.join(FIELDS)}")
        id_ = values.get("id")
        if not isinstance(id_, str) or not _ID.fullmatch(id_):
            raise ValueError("has no id: text without spaces, by which people know it")
        return cls(
            id_, _cookies(values.get("cookies", {})), _headers(values.get("headers", {})),
            _text("username", values.get("username", "")), _text("password", values.get("password", "")),
            _proxy(values.get("proxy", "")),
        )  # fmt: skip

    @property
    def digest(self) -> bytes:
        """Of what it logs in with: another one is not logged in by the cookies that this one got."""
        given = (self.cookies, self.headers, self.username, self.password)
        return blake2b(json.dumps(given, sort_keys=True, default=dict).encode(), digest_size=8).digest()

    @property
    def agent(self) -> str:
        """Its own User-Agent; "" if it has none."""
        return next((value for name, value in self.headers.items() if name.lower() == "user-agent"), "")

    @property
    def secrets(self) -> set[str]:
        """Every text of it that must be shown nowhere."""
        cookies = self.cookies.values() if isinstance(self.cookies, Mapping) else (one["value"] for one in self.cookies)
        headers = (value for name, value in self.headers.items() if name.lower() != "user-agent")
        credentials = self.proxy.partition("://")[2].rpartition("@")[0].partition(":")[2]
        found = {self.password, *cookies, *headers, credentials, unquote(credentials)}
        return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}

    def hide(self, text: str) -> str:
        """Return *text* with none of the account's secrets in it."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


FIELDS = tuple(each.name for each in fields(Account))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"has a {name} that is no text")
    return value


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("has headers that are no mapping of name to value")
    for name, text in value.items():
        is_right = isinstance(name, str) and _NAME.fullmatch(name) and isinstance(text, str) and _VALUE.fullmatch(text)
        if not is_right:
            raise ValueError("has a header that cannot be one")
    return dict(value)


def _cookies(value: object) -> Cookies:
    if isinstance(value, Mapping):
        if not all(_is_cookie(name, text) for name, text in value.items()):
            raise ValueError("has a cookie that cannot be one")
        return dict(value)
    if not isinstance(value, list | tuple):
        raise ValueError("has cookies that are neither a mapping of name to value nor a list of mappings")
    for cookie in value:
        if not isinstance(cookie, Mapping) or not _is_cookie(cookie.get("name"), cookie.get("value")):
            raise ValueError("has a cookie without name and value")
        if unknown := cookie.keys() - _COOKIE_FIELDS:
            raise ValueError(
                f"has a cookie with {sorted(map(str, unknown))[0]!r}; allowed: name, value, domain, path, secure"
            )
        if not all(isinstance(cookie.get(name, ""), str) for name in ("domain", "path")):
            raise ValueError("has a cookie whose domain or path is no text")
    return [dict(cookie) for cookie in value]


def _is_cookie(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and bool(_NAME.fullmatch(name))
        and isinstance(value, str)
        and bool(_VALUE.fullmatch(value))
    )


def _proxy(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("has a proxy that is no URL")
    if not value:
        return ""
    if is_gateway(value):
        raise ValueError("has a proxy that is a gateway, whose ids nobody would fill in: name it in LEASE_PROXIES")
    try:
        return parse_address(value).url
    except ValueError as error:
        raise ValueError(f"has a proxy that {error}") from None
