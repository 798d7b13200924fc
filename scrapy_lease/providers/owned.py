"""Gateways with a place for an account: each account has an identity there, which no other request goes through.

Where the account's id is all that it is made of, every node makes the same one, at any time. Where an id is minted
besides, the store keeps which: by the key of the account.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from scrapy_lease.leases.pool.ties import STRICT, Own
from scrapy_lease.providers.base import Proxy
from scrapy_lease.providers.identity import identity
from scrapy_lease.providers.minted import SHORTEST, Gateway
from scrapy_lease.providers.source import resource_of

#: Accounts whose gateway is remembered.
_MOST = 10_000


def account_key(pool: str, account: str) -> str:
    """Return what tells an account from all others, whatever their pool."""
    return f"account:{pool}:{account}"


class Owner(NamedTuple):
    """The account that a request goes as.

    :param pool: of accounts; *account*: its id there.
    :param keeps: it must never have another address.
    """

    pool: str
    account: str
    keeps: bool

    @property
    def key(self) -> str:
        """What tells it from all others, whatever their pool."""
        return account_key(self.pool, self.account)

    @property
    def sticky(self) -> str:
        """The key that keeps its requests on one proxy."""
        return f"{STRICT}{self.key}" if self.keeps else self.key


class Owned:
    """See the module's docstring.

    :param gateways: each with a place for an account.
    :param lifetime: seconds for which an id that is minted besides is used, at most, where it may be another then.
    :param encoding: HTTPPROXY_AUTH_ENCODING of Scrapy.
    """

    def __init__(self, gateways: Sequence[Gateway], namespace: str, lifetime: float, encoding: str) -> None:
        self._gateways = {_name_of(gateway, namespace): gateway for gateway in gateways}
        self._namespace = namespace
        self._lifetime = lifetime
        self._encoding = encoding
        self._chosen: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Owned {', '.join(map(repr, self._gateways.values()))}>"

    def unfit(self, owner: Owner) -> str:
        """Return why an account can have no identity, "" if it can."""
        return self._gateway_of(owner).unfit(owner.account, self._encoding)

    def key_of(self, owner: Owner) -> str:
        """Return the key that the account's identity is tied to: another one for each gateway."""
        key = f"{owner.key}@{self._name_of(owner)}"
        return f"{STRICT}{key}" if self._is_for_ever(owner) else key

    def make(self, owner: Owner) -> Own:
        """Return an identity of the account: the one that it has, or one with an id that nobody had before."""
        gateway, life = self._gateway_of(owner), 0
        if not self._is_for_ever(owner):
            life = round(1000 * self._lifetime * random.uniform(SHORTEST, 1.0))
        shown = gateway.shown_user(owner.account)
        proxy = Proxy(gateway.mint(owner.account).url, provider="gateway", shown_user=shown)
        made = resource_of(proxy, self._namespace, 0)
        return Own(made.id, made.body, life)

    def _is_for_ever(self, owner: Owner) -> bool:
        return owner.keeps or not self._gateway_of(owner).needs_session

    def _gateway_of(self, owner: Owner) -> Gateway:
        return self._gateways[self._name_of(owner)]

    def _name_of(self, owner: Owner) -> str:
        """The same gateway on every node, in whatever order they are named; one that is added moves few accounts."""
        name = self._chosen.get(owner.account)
        if name is None:
            if len(self._chosen) == _MOST:
                self._chosen.clear()
            name = max(self._gateways, key=lambda each: blake2b(f"{each} {owner.account}".encode()).digest())
            self._chosen[owner.account] = name
        return name


def _name_of(gateway: Gateway, namespace: str) -> str:
    """What tells it from others, and is no secret."""
    return f"{gateway.template.scheme}://{identity(gateway.template, namespace)}"
