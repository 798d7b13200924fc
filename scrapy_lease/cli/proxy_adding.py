"""Proxies that people give, as a pool takes them. What is said of a wrong one shows no user name or password."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from scrapy_lease.cli.given_lines import fields_in, tell_fault
from scrapy_lease.exceptions import LeaseError
from scrapy_lease.providers.address import Address, parse_address
from scrapy_lease.providers.base import Proxy
from scrapy_lease.providers.checking import Check
from scrapy_lease.providers.minted import is_gateway
from scrapy_lease.providers.source import read_body, resource_of
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.pool_reading import read_instant
from scrapy_lease.store.pool_scripts import PoolScripts, Resource
from scrapy_lease.store.tools import Tools, chunks

#: What the answers of ``pool_register.lua`` are called.
_ANSWERS = {"+": "new", "=": "known", ".": "expired", "x": "revoked"}


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that is a JSON object; see :class:`~scrapy_lease.providers.base.Proxy`."""

    url: str
    exit: str = ""
    expires: float | None = None
    lifetime: float | None = None
    provider: str = "added"


@dataclass
class Added:
    """What became of the lines: *failed* did not pass the check, *wrong* are no proxies."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*_ANSWERS.values(), "failed", "wrong"), 0))

    @property
    def is_complete(self) -> bool:
        """Is each line in the pool, and free to be handed out?"""
        return not any(self.counts[name] for name in ("expired", "revoked", "failed", "wrong"))


async def add(tools: Tools, pool: PoolKeys, lines: Iterable[tuple[str, str]], check: Check | None) -> Added:
    """Put the proxies of *lines* (where each stands, and its text) into *pool*, if they pass *check*."""
    added = Added()
    wall = (await read_instant(tools)).wall
    resources: dict[str, Resource] = {}
    for place, text in lines:
        try:
            resource = _resource(text, tools.namespace.name, wall)
        except (LeaseError, ValueError) as error:
            added.counts["wrong"] += 1
            tell_fault(added.counts["wrong"], f"{place} {error}")
        else:
            resources[resource.id] = resource
    given = list(resources.values())
    passed = given if check is None else [each async for group in check.passing(given, _address_of) for each in group]
    added.counts["failed"] = len(given) - len(passed)
    scripts = PoolScripts(tools.channel, pool)
    for chunk in chunks(passed):
        for answer in await scripts.register("", 0, chunk):
            added.counts[_ANSWERS[answer]] += 1
    return added


def _resource(text: str, namespace: str, wall: int) -> Resource:
    try:
        given = msgspec.convert(fields_in(text), Given)
    except msgspec.ValidationError as error:
        raise ValueError(f"is no proxy: {error}") from None
    if is_gateway(given.url):
        raise ValueError("is a gateway: name it in LEASE_PROXIES, so that its ids are minted as they are needed")
    return resource_of(Proxy(given.url, given.exit, given.expires, given.provider, given.lifetime), namespace, wall)


def _address_of(resource: Resource) -> Address:
    return parse_address(read_body(resource.body).url)
