"""Addresses of proxies as people and providers write them. No error or repr shows a user name or password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

SCHEMES = ("http", "https", "socks5")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}")
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_PORT = re.compile(r"[0-9]{1,5}")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """A proxy's address; user name and password as the proxy expects them, not as a URL writes them."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"<Address {self.endpoint}>"

    @property
    def endpoint(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL with its credentials: a secret."""
        if not self.user and not self.password:
            return f"{self.scheme}://{self.endpoint}"
        # Scrapy's HttpProxyMiddleware fails at a user name without a colon.
        return f"{self.scheme}://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{self.endpoint}"


def parse_address(text: str) -> Address:
    """Read ``[scheme://][user[:password]@]host:port``, or ``host:port:user:password`` as many lists have it.

    Without a scheme it is ``http``. In user name and password what is percent-encoded is decoded; characters that a
    URL would have encoded may stand as they are.

    :raises ValueError: it is none; the text says why, without showing it.
    """
    text = text.strip()
    if not text or _BLANK.search(text):
        raise ValueError("holds a space or control character" if text else "is empty")
    scheme, rest = _split_scheme(text)
    _check_scheme(scheme)
    credentials, at, place = rest.rpartition("@")
    if not at and "://" not in text and rest.count(":") >= 3 and not rest.startswith("["):
        host, port, user, password = rest.split(":", 3)
        return address(scheme, host, port, user, password)
    host, colon, port = place.removesuffix("/").rpartition(":")
    if not colon or (host.startswith("[") and not host.endswith("]")):
        raise ValueError(f"has no port: write {scheme}://host:port")
    user, _, password = credentials.partition(":")
    return address(scheme, host, port, unquote(user), unquote(password))


def address(scheme: str, host: str, port: str | int, user: str = "", password: str = "") -> Address:
    """Return the address of these parts.

    :raises ValueError: one of them cannot be; the text shows neither user name nor password.
    """
    _check_scheme(scheme)
    if not _HOST.fullmatch(host):
        raise ValueError("has no host name or address before its port")
    if not _PORT.fullmatch(str(port)) or not 0 < int(port) < 65536:
        raise ValueError("has a port that is no number from 1 to 65535")
    if _BLANK.search(user + password):
        raise ValueError("has a space or control character in user name or password")
    return Address(scheme.lower(), host.lower(), int(port), user, password)


def _check_scheme(scheme: str) -> None:
    if scheme.lower() not in SCHEMES:
        raise ValueError(f"has another scheme than {', '.join(SCHEMES)}")


def _split_scheme(text: str) -> tuple[str, str]:
    scheme, separator, rest = text.partition("://")
    if not separator or "@" in scheme or not _SCHEME.fullmatch(scheme):
        return "http", text
    return scheme, rest
