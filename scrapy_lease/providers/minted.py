"""Gateways: one address that gives another exit for each session id, so ids are minted as if they were proxies."""

from __future__ import annotations

import difflib
import random
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scrapy_lease.providers.address import Address, parse_address
from scrapy_lease.providers.base import Proxy

_BRACED = re.compile(r"\{([A-Za-z]+)")
_PLACE = re.compile(r"\{(session|account)(?::([0-9]{1,2}))?\}")
_COLON = "\ue000"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
#: Characters of an id whose length is not given, and the least: with fewer, two nodes soon mint the same.
USUAL, LEAST, MOST = 12, 6, 64
#: An id lives between this and all of its lifetime, so that ids minted together do not end together.
SHORTEST = 0.8


@dataclass(frozen=True, slots=True, repr=False)
class Gateway:
    """A gateway; user name and password of :attr:`template` hold places for ids."""

    template: Address

    def __repr__(self) -> str:
        return f"<Gateway {self.template.endpoint}>"

    @property
    def needs_account(self) -> bool:
        """Is there a place for an account's id?"""
        return "account" in self._places

    @property
    def needs_session(self) -> bool:
        """Is there a place for an id that is minted?"""
        return "session" in self._places

    @property
    def text(self) -> str:
        """User name and password, with their places."""
        return f"{self.template.user} {self.template.password}"

    @property
    def _places(self) -> set[str]:
        return {found[1] for found in _PLACE.finditer(self.text)}

    def mint(self, account: str = "") -> Address:
        """Return the gateway's address with a new random id in all places for one, and *account* in its places."""
        whole = "".join(secrets.choice(_LETTERS) for _ in range(MOST))

        def fill(found: re.Match[str]) -> str:
            return account if found[1] == "account" else whole[: int(found[2] or USUAL)]

        user, password = _PLACE.sub(fill, self.template.user), _PLACE.sub(fill, self.template.password)
        return replace(self.template, user=user, password=password)

    def shown_user(self, account: str) -> str:
        """Return the user name of *account* as people may see it: with the account's id, and no minted one."""
        user = self.template.user
        if "{account}" not in user:
            return f"{user}~{account}"
        return user.replace("{account}", account)

    def unfit(self, account: str, encoding: str) -> str:
        """Return why the id of an account cannot stand in its place, "" if it can.

        :param encoding: HTTPPROXY_AUTH_ENCODING of Scrapy.
        """
        # A proxy reads the user name up to the first colon: that would be another one's.
        if ":" in account and "{account}" in self.template.user:
            return "has a colon, which no user name of a proxy can have"
        try:
            account.encode(encoding)
        except UnicodeEncodeError:
            return f"has letters that HTTPPROXY_AUTH_ENCODING ({encoding}) does not"
        return ""


def is_gateway(text: str) -> bool:
    """Has *text* a place for an id, or what looks like one?"""
    words = [word.lower() for word in _BRACED.findall(text)]
    return any(difflib.get_close_matches(word, ("session", "account"), cutoff=0.7) for word in words)


def parse_gateway(text: str) -> Gateway:
    """Read the URL of a gateway.

    :raises ValueError: it is none; the text says why, without showing it.
    """
    # The colon of a place is not the one between user name and password.
    masked = _PLACE.sub(lambda found: found[0].replace(":", _COLON), text)
    at = parse_address(masked)
    gateway = Gateway(replace(at, user=at.user.replace(_COLON, ":"), password=at.password.replace(_COLON, ":")))
    places = list(_PLACE.finditer(gateway.text))
    if not places or "{" in _PLACE.sub("", gateway.text):
        raise ValueError("has braces that are no {session}, {session:8} or {account} in user name or password")
    if any(found[2] and (found[1] == "account" or not LEAST <= int(found[2]) <= MOST) for found in places):
        raise ValueError(f"has a place of a length that cannot be: {{session:{LEAST}}} to {{session:{MOST}}} can")
    return gateway


class Minted:
    """Mints ids for gateways, each in its turn.

    :param lifetime: seconds for which an id is used, at most.
    """

    def __init__(self, gateways: Sequence[Gateway], lifetime: float) -> None:
        self._gateways = gateways
        self._lifetime = lifetime
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Minted {', '.join(gateway.template.endpoint for gateway in self._gateways)}>"

    async def fetch(self, count: int) -> list[Proxy]:
        """Return *count* proxies with ids that nobody had before."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Proxy:
        gateway = self._gateways[self._turn % len(self._gateways)]
        self._turn += 1
        return Proxy(
            gateway.mint().url,
            provider="gateway",
            lifetime=self._lifetime * random.uniform(SHORTEST, 1.0),
            shown_user=gateway.template.user,
        )
