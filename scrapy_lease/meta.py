"""The ``request.meta`` keys of scrapy-lease, and the item key of a request.

In, set by the spider: ``lease_item`` (the item key, or False: not an item), ``lease_done_ttl`` (seconds).
Out, set on the request whose response the spider gets: ``lease``, a `LeaseRecord`.

Whoever asks here and gets `RequestRefused` must not fetch the request: without its key nobody can tell
whether another host has it. It must not vanish either: what yielded it has failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from hashlib import blake2b
from typing import Any, TypedDict, cast

from scrapy import Request, Spider
from scrapy.utils.misc import load_object
from scrapy.utils.request import RequestFingerprinterProtocol

from scrapy_lease.exceptions import LeaseError
from scrapy_lease.fingerprints import fingerprint_by
from scrapy_lease.payload.wire import shown_url

ITEM = "lease_item"
DONE_TTL = "lease_done_ttl"
LEASE = "lease"

DIGEST_SIZE = 16
"""Bytes of a digest: 128 bits, so that two keys of a billion items meet with a chance of 10⁻²¹."""


class RequestRefused(LeaseError):
    """A request whose ``lease_…`` meta is wrong or whose item key cannot be computed; it is not fetched."""


class LeaseRecord(TypedDict):
    """``response.meta["lease"]``: the lease of the fetch; proxy and account in the form shown to people."""

    item: str
    fence: int
    proxy: str | None
    account: str | None
    session: str


def write_record(
    meta: MutableMapping[str, Any],
    *,
    item: str,
    fence: int,
    session: str,
    proxy: str | None = None,
    account: str | None = None,
) -> None:
    """Put the lease record of this try into `meta`, in the place of any record copied from another page."""
    meta[LEASE] = LeaseRecord(item=item, fence=fence, proxy=proxy, account=account, session=session)


def read_record(meta: Mapping[str, Any]) -> LeaseRecord | None:
    """Return the lease record in `meta`, None where there is none."""
    record: LeaseRecord | None = meta.get(LEASE)
    return record


def drop_record(meta: MutableMapping[str, Any]) -> None:
    """Remove a lease record that ``meta=response.meta`` copied from another page."""
    meta.pop(LEASE, None)


def explicit_key(request: Request) -> str | bool | None:
    """Return what ``meta["lease_item"]`` says: the item key, False (not an item), None (not set).

    Raises `RequestRefused` for anything else.
    """
    value = request.meta.get(ITEM)
    if value is None or value is False or (isinstance(value, str) and value):
        return cast("str | bool | None", value)
    raise _refused(request, f'meta["{ITEM}"] is {value!r}; it must be a string that is not empty, or False')


def done_ttl(request: Request) -> int | None:
    """Return ``meta["lease_done_ttl"]`` in whole seconds, rounded up (0: for ever), None where it is not set.

    Raises `RequestRefused` unless it is a number from 0.
    """
    value = request.meta.get(DONE_TTL)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise _refused(request, f'meta["{DONE_TTL}"] is {value!r}; it must be a number of seconds, 0: for ever')
    return math.ceil(value)


def digest_of(key: str) -> bytes:
    """Return the 16 bytes under which the store knows the item `key`."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def is_enforced(digest: bytes, share: float) -> bool:
    """Return whether the key of `digest` (from `digest_of`) is among the `share` (0 to 1) under enforcement.

    The digest alone decides: every host and process says the same, and a larger share contains the smaller one.
    """
    return int.from_bytes(digest[:8], "big") < share * 2.0**64


class ItemKeys:
    """Computes item keys as LEASE_ITEM_KEY says for one spider.

    `key_setting` is ``"fingerprint"`` or a dotted path to ``f(request, spider) -> str | None``, which is
    imported here; a method ``lease_item_key`` of the spider wins over both.
    """

    def __init__(self, spider: Spider, key_setting: str, fingerprinter: RequestFingerprinterProtocol) -> None:
        self._fingerprint_of = fingerprint_by(fingerprinter)
        self._compute, self._source = self._choose(spider, key_setting)

    def __repr__(self) -> str:
        return f"<ItemKeys by {self._source}>"

    def key_of(self, request: Request, *, is_start: bool = False, occurrence: int = 0) -> str | None:
        """Return the item key of `request`, None if it is not an item.

        A request with ``dont_filter`` and no key in its meta is not an item, unless ``start()`` yielded it:
        then it is the item of its `occurrence`, counted from 0 among the start requests of one fingerprint.
        Raises `RequestRefused`, also for whatever the user's function raises.
        """
        explicit = explicit_key(request)
        if explicit is not None:
            return explicit or None  # type: ignore[return-value]
        if request.dont_filter:
            return f"start:{occurrence}:{self.fingerprint_of(request)}" if is_start else None
        try:
            key = self._compute(request)
        except Exception as exc:
            raise _refused(request, f"{self._source} raised {type(exc).__name__}: {exc}") from exc
        if key is not None and not (isinstance(key, str) and key):
            raise _refused(request, f"{self._source} returned {key!r}; it must be a string that is not empty, or None")
        return key

    def fingerprint_of(self, request: Request) -> str:
        """Return the fingerprint in hex. Raises `RequestRefused` for what the fingerprinter raises."""
        try:
            return self._fingerprint(request)
        except Exception as exc:
            raise _refused(request, f"the request fingerprinter raised {type(exc).__name__}: {exc}") from exc

    def _fingerprint(self, request: Request) -> str:
        return self._fingerprint_of(request).hex()

    def _choose(self, spider: Spider, key_setting: str) -> tuple[Callable[[Request], Any], str]:
        method = getattr(spider, "lease_item_key", None)
        if callable(method):
            return method, f"the method lease_item_key of spider {spider.name!r}"
        if key_setting == "fingerprint":
            return self._fingerprint, "the request fingerprinter"
        function = load_object(key_setting)
        return lambda request: function(request, spider), f"LEASE_ITEM_KEY {key_setting}"


def _refused(request: Request, fault: str) -> RequestRefused:
    return RequestRefused(f"{shown_url(request.url)}: {fault}")
