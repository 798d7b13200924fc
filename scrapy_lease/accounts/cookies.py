"""The cookies of an account, from what it was given to what its last holder left in the store."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookiejar import Cookie
from typing import Any

import msgspec
from scrapy import Request
from scrapy.http.cookies import CookieJar
from scrapy.utils.httpobj import urlparse_cached

from scrapy_lease.accounts.account import Account
from scrapy_lease.accounts.sealing import Sealer

VERSION = 1
#: Latest end of a cookie that can be stored (s of the wall clock): a site may say anything.
LATEST = 2**53


class Kept(msgspec.Struct, frozen=True):
    """What the store keeps of an account.

    :param of: digest of the credentials that got these cookies.
    :param agent: the User-Agent that got them.
    :param headers: that the login gave, beside the cookies.
    :param hosts: to which the cookies that the account was given were added.
    """

    v: int
    of: bytes
    agent: str
    is_logged_in: bool
    headers: dict[str, str]
    hosts: list[str]
    cookies: list[tuple[str, str, str, str, bool, int | None, bool]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


class Cookies:
    """One account's cookies in this process.

    :ivar jar: that Scrapy's CookiesMiddleware fills and sends.
    :ivar agent: the User-Agent that the account has had since its first use; "": that is to come.
    """

    def __init__(self, account: Account) -> None:
        self.jar = CookieJar()
        self.agent = account.agent
        self.is_logged_in = False
        #: Headers that the login gave it.
        self.headers: dict[str, str] = {}
        self._account = account
        self._hosts: set[str] = set()
        self._add_given()

    def __repr__(self) -> str:
        return f"<Cookies of {self._account.id}: {len(self.jar)}>"

    @classmethod
    def restored(cls, account: Account, stored: bytes, sealer: Sealer) -> Cookies:
        """Return the cookies that the last holder left; those that the account was given, where it was another one.

        :raises WrongKey: they were sealed with another key.
        """
        cookies = cls(account)
        if not stored:
            return cookies
        kept = _decode(sealer.open(stored))
        if kept.v != VERSION or kept.of != account.digest:
            return cookies
        cookies.jar = CookieJar()
        for name, value, domain, path, secure, expires, discard in kept.cookies:
            cookies.jar.set_cookie(_cookie(name, value, domain, path, secure, expires, discard))
        cookies.agent = account.agent or kept.agent
        cookies.is_logged_in, cookies.headers = kept.is_logged_in, kept.headers
        cookies._hosts = set(kept.hosts)
        return cookies

    def sealed(self, sealer: Sealer) -> bytes:
        """Return all of it as the store keeps it."""
        cookies = [
            (each.name, each.value or "", each.domain, each.path, each.secure, _end_of(each), each.discard)
            for each in self.jar
        ]
        digest, hosts = self._account.digest, sorted(self._hosts)
        return sealer.seal(_encode(Kept(VERSION, digest, self.agent, self.is_logged_in, self.headers, hosts, cookies)))

    def secrets(self) -> set[str]:
        """Return the values of the cookies."""
        return {cookie.value for cookie in self.jar if cookie.value}

    def meet(self, request: Request) -> bool:
        """Add what the account was given without a domain for the host of *request*; True: it was not there yet."""
        given = self._account.cookies
        host = urlparse_cached(request).hostname or ""
        if not given or host in self._hosts:
            return False
        self._hosts.add(host)
        # As http.cookiejar calls a host without a dot.
        domain = host if "." in host else f"{host}.local"
        if isinstance(given, Mapping):
            for name, value in given.items():
                self._add(name, value, domain)
        else:
            for cookie in given:
                if not cookie.get("domain"):
                    self._add(**{**cookie, "domain": domain})
        return True

    def start_anew(self) -> None:
        """The login that the cookies are of is over: the next one begins with those that the account was given."""
        self.is_logged_in = False
        self.headers = {}
        self._hosts.clear()
        self.jar.clear()
        self._add_given()

    def _add_given(self) -> None:
        given = self._account.cookies
        for cookie in given if not isinstance(given, Mapping) else ():
            if cookie.get("domain"):
                self._add(**cookie)

    def _add(self, name: str, value: str, domain: str, path: str = "/", secure: bool = False) -> None:
        self.jar.set_cookie(_cookie(name, value, domain, path, secure, None, True))


def _end_of(cookie: Cookie) -> int | None:
    return None if cookie.expires is None else max(-LATEST, min(cookie.expires, LATEST))


def _cookie(name: str, value: str, domain: str, path: str, secure: bool, expires: int | None, discard: bool) -> Cookie:
    is_wide = domain.startswith(".")
    rest: dict[str, Any] = {}
    return Cookie(
        0, name, value, None, False, domain, is_wide, is_wide, path, True, secure, expires, discard, None, None, rest
    )  # fmt: skip
