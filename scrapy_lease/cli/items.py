"""``scrapy-lease items``: single items: dead letters, another try for them, what is done forgotten."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from scrapy_lease.cli import json_option, print_fields
from scrapy_lease.cli.dead_letters import Letter, missing, walk
from scrapy_lease.cli.spider_access import SpiderAccess, arguments_option, open_spider, spider_names
from scrapy_lease.cli.store_access import lease_settings, run_with_store, scope_of, scope_options
from scrapy_lease.cli.text_table import counted, print_table
from scrapy_lease.store.keys import Scope
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.tools import Tools

names_argument = click.argument("named", metavar="[URL|DIGEST]...", nargs=-1)


@click.group(name="items")
def command() -> None:
    """Look at dead letters, try them again, or forget what is done: --job names the job, unless there is only one."""


@command.command("dead")
@names_argument
@click.option("--trace", is_flag=True, help="Show the end of the traceback of each.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="How many to show; 0: all.")
@scope_options
@json_option
def dead_command(named: tuple[str, ...], trace: bool, limit: int, as_json: bool) -> None:
    """List dead letters: when, why, after how many faults and dead sessions. Exit with 1 if one named is not there."""
    lease = lease_settings()

    async def work(tools: Tools) -> tuple[str, list[Letter], int]:
        scope = await scope_of(tools, lease, known_only=True)
        shown: list[Letter] = []
        total = 0
        async for letters in walk(tools, scope, named):
            total += len(letters)
            shown += letters if named or not limit else letters[: limit - len(shown)]
        return scope.name, shown, total

    job, letters, total = run_with_store(work, lease, looks_only=True)
    rows = [letter.fields(trace=trace) for letter in sorted(letters, key=lambda letter: letter.record.at)]
    if as_json:
        click.echo(json.dumps({"job": job, "total": total, "dead": rows}))
    else:
        _print_letters(job, rows, total)
    _exit_if_missing(missing(named, letters))


def _print_letters(job: str, rows: Sequence[dict[str, Any]], total: int) -> None:
    here = f", {len(rows)} of them here" if len(rows) < total else ""
    click.echo(f"job {job}: {counted(total, 'dead letter')}{here}")
    columns = ("at", "reason", "attempts", "deaths", "digest", "url")
    if not any(row.get("trace") for row in rows):
        print_table(columns, [[row[name] for name in columns] for row in rows])
        return
    for row in rows:
        print_table(columns, [[row[name] for name in columns]])
        click.echo(f"{row['trace'].rstrip()}\n")


@command.command("retry")
@names_argument
@click.option("--all", "everything", is_flag=True, help="All dead letters of the job.")
@scope_options
@json_option
def retry_command(named: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Bring dead letters back into the backlog with fresh attempts. Exit with 1 if one named is not there."""
    _check_choice(named, everything)
    lease = lease_settings()

    async def work(tools: Tools) -> tuple[str, list[Letter], int]:
        scope = await scope_of(tools, lease, known_only=True)
        scripts = Scripts(tools.channel, scope)
        found: list[Letter] = []
        accepted = 0
        async for letters in walk(tools, scope, named):
            reply = await scripts.push("", 0, [letter.entry for letter in letters])
            accepted += reply.count("+")
            found += letters
        return scope.name, found, accepted

    job, found, accepted = run_with_store(work, lease)
    print_fields({"job": job, "pending": accepted, "duplicate": len(found) - accepted}, as_json)
    _exit_if_missing(missing(named, found))


@dataclass(frozen=True, slots=True)
class _Forgotten:
    job: str
    what: str
    number: int
    missing: Sequence[str] = ()


@command.command("forget")
@names_argument
@click.option("--all", "everything", is_flag=True, help="All of the job.")
@click.option("--dead", is_flag=True, help="Remove dead letters instead of done marks.")
@click.option("--spider", help="The spider whose item keys the URLs have; by default the one called like the job.")
@arguments_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@scope_options
@json_option
def forget_command(
    named: tuple[str, ...],
    everything: bool,
    dead: bool,
    spider: str | None,
    arguments: dict[str, str],
    yes: bool,
    as_json: bool,
) -> None:
    """Forget that items are done, so that they are fetched again when they are found or pushed.

    With --dead: remove dead letters for good. Exit with 1 if one named was not there.
    """
    _check_choice(named, everything)
    lease = lease_settings()
    if everything and not yes:
        click.confirm(f"Forget all {'dead letters' if dead else 'done marks'} of the job?", abort=True, err=True)

    async def work(tools: Tools) -> _Forgotten:
        scope = await scope_of(tools, lease, known_only=True)
        if dead:
            return await _forget_dead(tools, scope, named)
        if everything:
            return _Forgotten(scope.name, "marks", await tools.forget_all(scope))
        return await _forget_done(tools, scope, named, _access(spider or scope.job, arguments))

    forgotten = run_with_store(work, lease)
    print_fields({"job": forgotten.job, forgotten.what: forgotten.number}, as_json)
    _exit_if_missing(forgotten.missing)


async def _forget_dead(tools: Tools, scope: Scope, named: Sequence[str]) -> _Forgotten:
    found: list[Letter] = []
    number = 0
    async for letters in walk(tools, scope, named):
        number += await tools.discard(scope, [letter.digest for letter in letters])
        found += letters
    return _Forgotten(scope.name, "letters", number, missing(named, found))


async def _forget_done(tools: Tools, scope: Scope, named: Sequence[str], access: SpiderAccess) -> _Forgotten:
    number, unknown = 0, []
    for name in named:
        is_digest = re.fullmatch(r"[0-9a-f]{32}", name)
        marks = await tools.forget(scope, [bytes.fromhex(name)] if is_digest else access.digests(name))
        number += marks
        if not marks:
            unknown.append(name)
    return _Forgotten(scope.name, "marks", number, unknown)


def _access(spider: str, arguments: dict[str, str]) -> SpiderAccess:
    known = spider_names()
    if known and spider not in known:
        raise click.UsageError(
            f"the project has no spider {spider!r}: name the one whose item keys are meant with --spider; "
            f"it has {', '.join(known)}"
        )
    return open_spider(spider, arguments)


def _check_choice(named: Sequence[str], everything: bool) -> None:
    if bool(named) == everything:
        raise click.UsageError("give URLs or digests, or --all")


def _exit_if_missing(names: Sequence[str]) -> None:
    for name in names:
        click.echo(f"Not there: {name}", err=True)
    sys.exit(bool(names))
