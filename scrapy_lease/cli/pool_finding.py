"""Leased resources as commands find them: by what people may call one, in one pool or in all."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from scrapy_lease.cli import F, json_option, print_fields, store_options
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.cli.text_table import counted, iso_time, print_table
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.pool_reading import ResourceRecord, known_pools, nodes_of, walk
from scrapy_lease.store.pool_scripts import PoolScripts
from scrapy_lease.store.tools import Tools, chunks

#: Does to some resources of a pool what an operator asks; returns one character each, as ``PoolScripts.change``.
Change = Callable[[PoolScripts, Sequence[str]], Awaitable[str]]

limit_option = click.option(
    "--limit", type=click.IntRange(0), default=100, show_default=True, help="How many to show; 0: all."
)


def pool_option(function: F) -> F:
    """Let a command take ``--pool`` as its argument ``pool``; None: all pools."""
    return click.option("--pool", metavar="NAME", help="One pool; by default all of the namespace.")(function)


@dataclass(frozen=True, slots=True)
class Found:
    """A resource of a pool, and the node that holds it, "" if nobody does or the node is not known any more.

    :param names: what people may call it by.
    """

    pool: PoolKeys
    record: ResourceRecord
    node: str
    names: frozenset[str]

    @property
    def lease(self) -> dict[str, Any]:
        """What programs are told of any resource: its state, who holds it, under which fence, since when."""
        record = self.record
        return {
            "state": record.state,
            "flag": record.flag or None,
            "node": self.node or None,
            "session": record.session or None,
            "fence": record.fence or None,
            "since": None if record.since is None else iso_time(record.since),
        }

    def state(self, *, is_timed: bool) -> str:
        """Say where it is: a flag of one that nobody holds says it all. *is_timed*: with the seconds it stays there."""
        record = self.record
        if record.state == "aside":
            return record.flag
        parts = [f"{record.state} {record.wait:.0f} s" if is_timed else record.state, record.flag]
        if record.strikes:
            parts.append(counted(record.strikes, "strike"))
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Things:
    """A kind of resource as commands know it.

    :param names_of: returns what people may call one by.
    """

    kind: str
    things: str
    names_of: Callable[[ResourceRecord], Iterable[str]]

    @property
    def argument(self) -> Callable[[F], F]:
        """Lets a command take names as its argument ``named``."""
        return click.argument("named", metavar=f"[{self.kind.upper()}]...", nargs=-1)

    async def pools(self, tools: Tools, pool: str | None) -> list[PoolKeys]:
        """Return the pools that a command is about, as `pool_option` gives it.

        :raises click.ClickException: one is named that the namespace does not know.
        """
        known = await known_pools(tools, self.kind)
        chosen = [keys for keys in known if pool in (None, keys.name)]
        if pool is not None and not chosen:
            others = f"; it knows {', '.join(keys.name for keys in known)}" if known else ""
            space = tools.namespace.name
            raise click.ClickException(f"namespace {space!r} knows no pool {pool!r} of {self.things}{others}")
        return chosen

    async def find(self, tools: Tools, pools: Iterable[PoolKeys], named: Collection[str] = ()) -> list[Found]:
        """Return what *pools* have, or those of it that are *named*: the leased ones first, by name."""
        found: list[Found] = []
        for pool in pools:
            async for records in walk(tools, pool):
                chosen = [(each, frozenset(self.names_of(each))) for each in records]
                chosen = [(each, names) for each, names in chosen if not named or names.intersection(named)]
                nodes = await nodes_of(tools, sorted({each.session for each, _ in chosen if each.session}))
                found += [Found(pool, each, nodes.get(each.session, ""), names) for each, names in chosen]
        return sorted(found, key=lambda each: (each.pool.name, each.record.state != "leased", each.record.id))

    async def change(
        self, tools: Tools, pool: str | None, named: Sequence[str], change: Change
    ) -> tuple[list[Found], int]:
        """Do something to those that are *named*, or to all; return them, and how many it changed."""
        found = await self.find(tools, await self.pools(tools, pool), named)
        by_pool: dict[PoolKeys, list[str]] = defaultdict(list)
        for each in found:
            by_pool[each.pool].append(each.record.id)
        changed = 0
        for keys, ids in by_pool.items():
            for chunk in chunks(ids):
                changed += (await change(PoolScripts(tools.channel, keys), chunk)).count("+")
        return found, changed

    def listing(
        self, group: click.Group, does: str, columns: Sequence[str],
        fields_of: Callable[[Found], dict[str, Any]], cells_of: Callable[[Found], Sequence[Any]],
    ) -> None:  # fmt: skip
        """Add ``list`` to *group*: *cells_of* makes the rows of its table, *fields_of* what it prints as JSON."""

        @group.command("list", help=f"{does} Exit with 1 if one named is not there.")
        @self.argument
        @pool_option
        @limit_option
        @store_options
        @json_option
        def list_(named: tuple[str, ...], pool: str | None, limit: int, as_json: bool) -> None:
            async def work(tools: Tools) -> list[Found]:
                return await self.find(tools, await self.pools(tools, pool), named)

            found = run_with_store(work, lease_settings(), looks_only=True)
            here = found[:limit] if limit else found
            if as_json:
                click.echo(json.dumps({"total": len(found), self.things: [fields_of(each) for each in here]}))
            else:
                click.echo(self._summary(found, len(here)))
                print_table(columns, map(cells_of, here))
            exit_if_missing(missing(named, found))

    def _summary(self, found: Sequence[Found], shown_here: int) -> str:
        states = Counter(each.record.flag if each.record.state == "aside" else each.record.state for each in found)
        here = f", {shown_here} of them here" if shown_here < len(found) else ""
        told = f": {', '.join(f'{number} {state}' for state, number in sorted(states.items()))}" if found else ""
        return f"{len(found)} {self.kind if len(found) == 1 else self.things}{told}{here}"

    def steering(self, group: click.Group, verb: str, does: str, *, asks: bool = False) -> None:
        """Add the sub-command of an operator's *verb* to *group*; *asks*: before it is done to all."""

        @group.command(verb, help=f"{does} Exit with 1 if one named is not there.")
        @self.argument
        @click.option("--all", "everything", is_flag=True, help=f"All {self.things} of the pool.")
        @pool_option
        @click.option("--yes", is_flag=True, help="Do not ask.", hidden=not asks)
        @store_options
        @json_option
        def steer(named: tuple[str, ...], everything: bool, pool: str | None, yes: bool, as_json: bool) -> None:
            self.check_choice(named, everything)
            if everything and asks and not yes:
                question = f"{verb.capitalize()} all {self.things} of {pool or 'all pools'}?"
                click.confirm(question, abort=True, err=True)
            self.steer(named, pool, lambda scripts, ids: scripts.change(verb, ids), as_json)

    def check_choice(self, named: Sequence[str], everything: bool) -> None:
        """See to it that either some are named or all are meant.

        :raises click.UsageError: neither, or both.
        """
        if bool(named) == everything:
            raise click.UsageError(f"name {self.things}, or give --all")

    def steer(self, named: Sequence[str], pool: str | None, change: Change, as_json: bool) -> None:
        """Do something to those that are *named*, print how many it changed, and exit with 1 if one is not there."""
        work = lambda tools: self.change(tools, pool, named, change)  # noqa: E731
        found, changed = run_with_store(work, lease_settings())
        print_fields({"changed": changed, "unchanged": len(found) - changed}, as_json)
        exit_if_missing(missing(named, found))


def missing(named: Sequence[str], found: Iterable[Found]) -> list[str]:
    """Return those of *named* that none of *found* is called by."""
    known = {name for each in found for name in each.names}
    return [name for name in named if name not in known]


def exit_if_missing(names: Sequence[str]) -> None:
    """End the command; with 1, and a line for each, if *names* were not there."""
    tell_missing(names)
    sys.exit(bool(names))


def tell_missing(names: Sequence[str]) -> None:
    """Say of each of *names* that it is not there."""
    for name in names:
        click.echo(f"Not there: {name}", err=True)
