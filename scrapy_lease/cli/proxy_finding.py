"""Leased proxies as commands find them: by what people may call one, in one pool or in all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import click

from scrapy_lease.cli import F
from scrapy_lease.providers.identity import shown
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.pool_reading import ResourceRecord, known_pools, nodes_of, walk
from scrapy_lease.store.tools import Tools

KIND = "proxy"

names_argument = click.argument("named", metavar="[PROXY]...", nargs=-1)


def pool_option(function: F) -> F:
    """Let a command take ``--pool`` as its argument ``pool``; None: all pools."""
    return click.option("--pool", metavar="NAME", help="One pool; by default all of the namespace.")(function)


@dataclass(frozen=True, slots=True)
class Found:
    """A proxy of a pool, and the node that holds it, "" if nobody does or the node is not known any more."""

    pool: PoolKeys
    record: ResourceRecord
    node: str

    @property
    def names(self) -> set[str]:
        """What people may call it by."""
        return names_of(self.record.id, self.record.exit)


def names_of(proxy: str, exit: str) -> set[str]:
    """Return what people may call a proxy by: its id, as it is shown, its endpoint, its host, its exit address."""
    endpoint = proxy.partition("#")[0].partition("/")[0]
    host = endpoint.rpartition(":")[0].strip("[]")
    return {proxy, shown(proxy), endpoint, host, exit} - {""}


async def pools_of(tools: Tools, pool: str | None) -> list[PoolKeys]:
    """Return the pools that a command is about, as `pool_option` gives it.

    :raises click.ClickException: one is named that the namespace does not know.
    """
    known = await known_pools(tools, KIND)
    chosen = [keys for keys in known if pool in (None, keys.name)]
    if pool is not None and not chosen:
        others = f"; it knows {', '.join(keys.name for keys in known)}" if known else ""
        raise click.ClickException(f"namespace {tools.namespace.name!r} knows no pool {pool!r} of proxies{others}")
    return chosen


async def find(tools: Tools, pools: Iterable[PoolKeys], named: Collection[str] = ()) -> list[Found]:
    """Return the proxies of *pools*, or those of them that are *named*: the leased ones first, by name."""
    found: list[Found] = []
    for pool in pools:
        async for records in walk(tools, pool):
            chosen = [each for each in records if not named or names_of(each.id, each.exit).intersection(named)]
            nodes = await nodes_of(tools, sorted({each.session for each in chosen if each.session}))
            found += [Found(pool, each, nodes.get(each.session, "")) for each in chosen]
    return sorted(found, key=lambda each: (each.pool.name, each.record.state != "leased", each.record.id))


def missing(named: Sequence[str], found: Iterable[Found]) -> list[str]:
    """Return those of *named* that none of *found* is called by."""
    known = {name for each in found for name in each.names}
    return [name for name in named if name not in known]
