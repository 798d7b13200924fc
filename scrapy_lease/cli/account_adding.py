"""Accounts that people give, as a pool takes them. What is said of a wrong one shows nothing of it but its id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scrapy_lease.accounts.listed import account_in
from scrapy_lease.accounts.sealing import Sealer, resource_of
from scrapy_lease.cli.given_lines import tell_fault
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.pool_scripts import PoolScripts, Resource
from scrapy_lease.store.tools import Tools, chunks

#: What the answers of ``pool_register.lua`` are called.
_ANSWERS = {"+": "new", "=": "known", "x": "revoked"}


@dataclass
class Added:
    """What became of the lines: *wrong* are no accounts."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*_ANSWERS.values(), "wrong"), 0))

    @property
    def is_complete(self) -> bool:
        """Is each line in the pool, and free to be handed out?"""
        return not self.counts["revoked"] and not self.counts["wrong"]


async def add(tools: Tools, pool: PoolKeys, lines: Iterable[tuple[str, str]], sealer: Sealer) -> Added:
    """Put the accounts of *lines* (where each stands, and its text) into *pool*."""
    added = Added()
    resources: dict[str, Resource] = {}
    for place, text in lines:
        try:
            resource = resource_of(account_in(text), sealer)
        except ValueError as error:
            added.counts["wrong"] += 1
            tell_fault(added.counts["wrong"], f"{place} {error}")
        else:
            resources[resource.id] = resource
    scripts = PoolScripts(tools.channel, pool)
    for chunk in chunks(list(resources.values())):
        for answer in await scripts.register("", 0, chunk):
            added.counts[_ANSWERS[answer]] += 1
    return added
