"""The name of a proxy: everything that tells it from others, and nothing that is secret."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote

from scrapy_lease.providers.address import Address, parse_address

_PLAIN = "{}+=,;:~._-@"
_SHOWN_DIGITS = 4


def identity(proxy: str | Address, namespace: str, *, shown_user: str | None = None) -> str:
    """Return the id of a proxy, given by URL or address: ``host:port/user#1a2b3c4d``, or ``host:port``.

    The digits are a digest of user name and password that only this namespace has, so other passwords are other
    proxies and no password can be looked up in a table.

    :param shown_user: stands in the place of a user name that is secret; the digest is of the real one.
    :raises ValueError: *proxy* is no address of one.
    """
    at = parse_address(proxy) if isinstance(proxy, str) else proxy
    if not at.user and not at.password:
        return at.endpoint
    key = blake2b(namespace.encode(), digest_size=32).digest()
    digest = blake2b(f"{at.user}\0{at.password}".encode(), key=key, digest_size=4).hexdigest()
    user = quote(at.user if shown_user is None else shown_user, safe=_PLAIN)
    return f"{at.endpoint}{'/' if user else ''}{user}#{digest}"


@lru_cache(maxsize=1024)
def shown(identity: str) -> str:
    """Return an id as logs, stats and ``response.meta`` show it: ``host:port#1a2b``."""
    place, _, digest = identity.rpartition("#")
    if not place:
        return identity
    return f"{place.partition('/')[0]}#{digest[:_SHOWN_DIGITS]}"
