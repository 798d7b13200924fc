"""``scrapy-lease proxies``: what the pools have, who holds it, what an operator does to it. No password is shown."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

import click

from scrapy_lease.cli import json_option, print_fields, store_options
from scrapy_lease.cli.given_lines import lines_of
from scrapy_lease.cli.pool_finding import Found, limit_option, missing, pool_option, tell_missing
from scrapy_lease.cli.proxy_adding import add
from scrapy_lease.cli.proxy_checking import Checked, check_all
from scrapy_lease.cli.proxy_finding import PROXIES, names_of
from scrapy_lease.cli.proxy_history import history
from scrapy_lease.cli.proxy_listing import COLUMNS, cells_of, checked_fields, fields_of, row_fields
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.cli.text_table import print_table
from scrapy_lease.providers.checking import Check, checked_check
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.settings.routes import DEFAULT_POOL
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.pool_reading import read_events, walk
from scrapy_lease.store.tools import Tools


@click.group(name="proxies")
def command() -> None:
    """Look at leased proxies and steer them.

    PROXY is what `list` shows, or an endpoint, a host or an exit address: all that it fits are meant.
    """


PROXIES.listing(
    command, "Show who holds which proxy since when, rests, expiry, exit address.", COLUMNS, fields_of, cells_of
)


@command.command("add")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "-f", "--file", "source", type=click.File(encoding="utf-8"), help="A file with a proxy a line; -: standard input."
)
@click.option("--pool", metavar="NAME", default=DEFAULT_POOL, show_default=True, help="The pool they come into.")
@click.option("--check/--no-check", default=True, show_default=True, help="Leave out what fails LEASE_PROXY_CHECK.")
@store_options
@json_option
def add_command(urls: tuple[str, ...], source: TextIO | None, pool: str, check: bool, as_json: bool) -> None:
    """Put proxies into a pool, or bring what is known of them up to date; a lease, rests and a drain stay as they are.

    A proxy is a URL, or a JSON object with "url" and, as known, "exit", "expires" (epoch) or "lifetime" (seconds).

    Exit with 1 if any is wrong, does not work, has expired or was revoked; the others are taken.
    """
    if not urls and source is None:
        raise click.UsageError("nothing to add: give URLs, or a file with -f")
    lease = lease_settings()
    if lease.pools and pool not in lease.pools:
        raise click.UsageError(
            f"the project has no pool {pool!r}: name one with --pool; it has {', '.join(lease.pools)}"
        )
    looks = _check_of(lease, pool) if check else None
    lines = lines_of(urls, source)
    added = run_with_store(lambda tools: add(tools, tools.namespace.pool(PROXIES.kind, pool), lines, looks), lease)
    print_fields({"pool": pool, **added.counts}, as_json)
    sys.exit(not added.is_complete)


@command.command("check")
@PROXIES.argument
@click.option("--via", metavar="URL", help="The page that is fetched, in place of LEASE_PROXY_CHECK.")
@click.option("--free", is_flag=True, help="Leave out those that a node holds.")
@pool_option
@store_options
@json_option
def check_command(named: tuple[str, ...], via: str | None, free: bool, pool: str | None, as_json: bool) -> None:
    """Fetch a page through each proxy, also through those that a node holds at the moment. Exit with 1 if any fails.

    What is found changes nothing; `drain` or `revoke` does.
    """
    lease = lease_settings()
    if via is not None:
        try:
            checked_check(via)
        except ValueError as error:
            raise click.UsageError(f"--via {via} {error}") from None

    async def work(tools: Tools) -> tuple[list[Found], list[Checked]]:
        found = await PROXIES.find(tools, await PROXIES.pools(tools, pool), named)
        tried: list[Checked] = []
        for name in dict.fromkeys(each.pool.name for each in found):
            chosen = [each for each in found if each.pool.name == name and not (free and each.record.session)]
            looks = _check_of(lease, name, via)
            if looks is None:
                raise click.UsageError(f"pool {name!r} has no LEASE_PROXY_CHECK: give the URL of a page with --via")
            tried += await check_all(chosen, looks)
        return found, tried

    found, tried = run_with_store(work, lease, looks_only=True)
    if as_json:
        click.echo(json.dumps({"proxies": [checked_fields(each) for each in tried]}))
    else:
        print_table(("proxy", "pool", "works", "seconds"), [[*checked_fields(each).values()] for each in tried])
    gone = missing(named, found)
    tell_missing(gone)
    sys.exit(bool(gone) or not all(each.works for each in tried))


def _check_of(lease: LeaseSettings, pool: str, via: str | None = None) -> Check | None:
    options = lease.pools.get(pool)
    url = via or (options.check if options else lease.proxy_check)
    return Check(url, options.check_timeout if options else lease.proxy_check_timeout) if url else None


PROXIES.steering(command, "drain", "Hand these proxies out no more; whoever holds one may go on with it.")
PROXIES.steering(command, "undrain", "Hand these proxies out again, as if they had never been drained or revoked.")
PROXIES.steering(
    command,
    "revoke", "Hand these proxies out no more, whatever their provider says; who holds one gives it back at once.",
    asks=True,
)  # fmt: skip
PROXIES.steering(
    command,
    "free", "End lease, rests and drain of these proxies; who held one is told, and others get it once that is sure.",
    asks=True,
)  # fmt: skip


@command.command("history")
@PROXIES.argument
@click.option("--node", help="Only what this node had.")
@pool_option
@limit_option
@store_options
@json_option
def history_command(named: tuple[str, ...], node: str | None, pool: str | None, limit: int, as_json: bool) -> None:
    """Show which node had which proxy, from when to when, and what else happened to it; the last lines, oldest first.

    An exit address is that of the time: `history 203.0.113.7` tells whom a site saw. Exit with 1 if nothing is known.
    """

    async def work(tools: Tools) -> list[dict[str, Any]]:
        rows = []
        for keys in await PROXIES.pools(tools, pool):
            rows += await _rows(tools, keys, set(named), node)
        return sorted(rows, key=lambda row: str(row["at"]))

    rows = run_with_store(work, lease_settings(), looks_only=True)
    here = rows[-limit:] if limit else rows
    if as_json:
        click.echo(json.dumps({"total": len(rows), "history": here}))
    else:
        columns = ("at", "until", "what", "proxy", "exit", "node", "session", "fence", "why")
        print_table(columns, [[row[name] for name in columns] for row in here])
    if not rows:
        click.echo("Nothing is known of that.", err=True)
    sys.exit(not rows)


async def _rows(tools: Tools, keys: PoolKeys, named: set[str], node: str | None) -> list[dict[str, Any]]:
    exits = {record.id: record.exit async for records in walk(tools, keys) for record in records}
    events = [event async for chunk in read_events(tools, keys) for event in chunk]
    return [
        row_fields(row, keys.name)
        for row in history(events[::-1], exits)
        if node in (None, row.node) and (not named or names_of(row.proxy, row.exit) & named)
    ]
