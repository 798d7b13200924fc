"""``scrapy-lease accounts``: what the pools have, who goes as whom, what an operator does to it. No secret is shown."""

from __future__ import annotations

import sys
from typing import TextIO

import click

from scrapy_lease.accounts.sealing import Sealer, check_key
from scrapy_lease.cli import json_option, print_fields, store_options
from scrapy_lease.cli.account_adding import Added, add
from scrapy_lease.cli.account_listing import COLUMNS, cells_of, fields_of
from scrapy_lease.cli.given_lines import lines_of
from scrapy_lease.cli.pool_finding import Things, pool_option
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.settings.routes import DEFAULT_POOL
from scrapy_lease.store.tools import Tools

ACCOUNTS = Things("account", "accounts", lambda record: {record.id})


@click.group(name="accounts")
def command() -> None:
    """Look at leased accounts and steer them. ACCOUNT is an id."""


ACCOUNTS.listing(
    command, "Show who goes as which account, and which are free, spent or cold.", COLUMNS, fields_of, cells_of
)


@command.command("add")
@click.option(
    "-f", "--file", "source", type=click.File(encoding="utf-8"), required=True,
    help="A file with an account a line; -: standard input.",
)  # fmt: skip
@click.option("--pool", metavar="NAME", default=DEFAULT_POOL, show_default=True, help="The pool they come into.")
@store_options
@json_option
def add_command(source: TextIO, pool: str, as_json: bool) -> None:
    """Put accounts into a pool, or bring what is known of them up to date; lease, rest and cookies stay as they are.

    An account is a JSON object with "id", and "cookies", "headers", "username", "password", "proxy" as needed. What the
    store keeps of it is encrypted with the LEASE_ACCOUNT_KEY of the project.

    Exit with 1 if any is wrong or was revoked; the others are taken.
    """
    lease = lease_settings()
    pools = lease.account_pools_by_name
    if pools and pool not in pools:
        raise click.UsageError(f"the project has no pool {pool!r}: name one with --pool; it has {', '.join(pools)}")
    sealer, lines = Sealer(lease.account_key or ""), lines_of((), source)

    async def work(tools: Tools) -> Added:
        await check_key(tools, sealer)
        return await add(tools, tools.namespace.pool(ACCOUNTS.kind, pool), lines, sealer)

    added = run_with_store(work, lease)
    print_fields({"pool": pool, **added.counts}, as_json)
    sys.exit(not added.is_complete)


@command.command("cool")
@ACCOUNTS.argument
@click.option("--all", "everything", is_flag=True, help="All accounts of the pool.")
@click.option("--for", "seconds", type=click.FloatRange(0.001), help="Seconds; by default LEASE_ACCOUNT_COOLDOWN.")
@pool_option
@store_options
@json_option
def cool_command(
    named: tuple[str, ...], everything: bool, seconds: float | None, pool: str | None, as_json: bool
) -> None:
    """Let nobody go as these accounts for a while; who holds one gives it back. Exit with 1 if one is not there."""
    ACCOUNTS.check_choice(named, everything)
    lease = lease_settings()
    chosen = lease.account_pools_by_name.get(pool or DEFAULT_POOL)
    length = seconds or (chosen.cooldown if chosen is not None else lease.account_cooldown)
    ACCOUNTS.steer(named, pool, lambda scripts, ids: scripts.cool(ids, int(length * 1000)), as_json)


ACCOUNTS.steering(
    command, "free", "End lease and rest of these accounts; who held one is told, and others get it once that is sure.",
    asks=True,
)  # fmt: skip
