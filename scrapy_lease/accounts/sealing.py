"""What the store keeps of accounts, sealed: credentials and cookies are read only with LEASE_ACCOUNT_KEY.

Without a key they are stored as they are: whoever reads the store can then use the accounts.
"""

from __future__ import annotations

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from scrapy_lease.accounts.account import Account
from scrapy_lease.exceptions import LeaseError
from scrapy_lease.store.pool_scripts import Resource
from scrapy_lease.store.tools import Tools

#: First byte of what is stored.
_PLAIN, _SEALED = b"p", b"s"
_PROOF = b"accounts"
MAKE_ONE = 'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'


class WrongKey(LeaseError):
    """What another process stored of accounts cannot be read with this LEASE_ACCOUNT_KEY, or without one."""


def checked_key(value: str) -> str:
    """Return LEASE_ACCOUNT_KEY: one key, or several with commas between them, of which the first seals.

    :raises ValueError: one of them is none.
    """
    keys = [key.strip() for key in value.split(",")]
    for key in keys:
        try:
            Fernet(key)
        except ValueError:
            raise ValueError(f"holds what is no key; make one with: {MAKE_ONE}") from None
    return ",".join(keys)


class Sealer:
    """Seals and opens.

    :param key: LEASE_ACCOUNT_KEY, "" for none.
    """

    def __init__(self, key: str = "") -> None:
        self._fernet = MultiFernet([Fernet(part) for part in key.split(",")]) if key else None

    def __repr__(self) -> str:
        return f"<Sealer {'with' if self.has_key else 'without'} a key>"

    @property
    def has_key(self) -> bool:
        """Is anything sealed at all?"""
        return self._fernet is not None

    def seal(self, data: bytes) -> bytes:
        """Return *data* as it may be stored."""
        return _PLAIN + data if self._fernet is None else _SEALED + self._fernet.encrypt(data)

    def open(self, stored: bytes) -> bytes:
        """Return what was sealed.

        :raises WrongKey: with another key, or this process has none.
        """
        if stored[:1] == _PLAIN:
            return stored[1:]
        if self._fernet is None:
            raise WrongKey(
                "LEASE_ACCOUNT_KEY is not set, and what the store has of accounts is sealed: set the same key"
            )
        try:
            return self._fernet.decrypt(stored[1:])
        except InvalidToken:
            raise WrongKey(
                "LEASE_ACCOUNT_KEY is another key than the one with which the store's accounts are sealed: set the "
                "same key on every host; docs/accounts.md tells how to change it"
            ) from None


async def prove_key(tools: Tools, sealer: Sealer) -> bool:
    """Return whether the namespace has a key, or has said that it has none, and it is this one.

    :raises WrongKey: it is another one.
    """
    sealed: bytes | None = await tools.command("GET", tools.namespace.seal)
    if sealed is not None:
        sealer.open(sealed)
    return sealed is not None


async def check_key(tools: Tools, sealer: Sealer) -> None:
    """See to it that all who share a namespace have the same key.

    :raises WrongKey: others have sealed with another one.
    """
    await prove_key(tools, sealer)
    await tools.command("SET", tools.namespace.seal, sealer.seal(_PROOF))


class _Body(msgspec.Struct, frozen=True, array_like=True):
    id: str
    cookies: dict[str, str] | list[dict[str, str | bool]]
    headers: dict[str, str]
    username: str
    password: str
    proxy: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode


def resource_of(account: Account, sealer: Sealer) -> Resource:
    """Return *account* as a pool takes it."""
    fields = (account.id, account.cookies, account.headers, account.username, account.password, account.proxy)
    return Resource(account.id, sealer.seal(_encode(fields)))


def account_of(body: bytes, sealer: Sealer) -> Account:
    """Return the account of a lease's body.

    :raises WrongKey: it was sealed with another key.
    """
    read = _decode(sealer.open(body))
    return Account(read.id, read.cookies, read.headers, read.username, read.password, read.proxy)
