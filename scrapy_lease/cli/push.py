"""``scrapy-lease push``: requests into the backlog of a spider, from outside."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from scrapy_lease.cli import json_option, print_fields
from scrapy_lease.cli.given_lines import fields_in, lines_of, tell_fault
from scrapy_lease.cli.spider_access import SpiderAccess, arguments_option, open_spider
from scrapy_lease.cli.store_access import run_with_store, scope_options
from scrapy_lease.cli.text_table import counted
from scrapy_lease.exceptions import LeaseError, StoreUnavailable
from scrapy_lease.store.scripts import Entry, Scripts
from scrapy_lease.store.tools import Tools

#: Most requests and most bytes of one call.
BATCH = 300
BATCH_BYTES = 1_000_000


@dataclass
class Pushed:
    """What became of the lines so far."""

    lines: int = 0
    accepted: int = 0
    duplicate: int = 0
    wrong: int = 0

    def answered(self, reply: str) -> None:
        """Take in the store's answer for a batch."""
        self.accepted += reply.count("+")
        self.duplicate += len(reply) - reply.count("+")


@click.command(name="push")
@click.argument("spider")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "-f", "--file", "source", type=click.File(encoding="utf-8"), help="A file with a request a line; -: standard input."
)
@arguments_option
@scope_options
@json_option
def command(
    spider: str, urls: tuple[str, ...], source: TextIO | None, arguments: dict[str, str], as_json: bool
) -> None:
    """Put requests into the backlog of SPIDER, each once.

    A request is a URL, or in a file also a JSON object with "url" and, as needed, "callback", "errback", "cb_kwargs",
    "meta", "priority", "method", "headers", "body", "cookies", "flags" and "dont_filter".

    Wrong lines are named and left out, and the exit status is 1.
    """
    if not urls and source is None:
        raise click.UsageError("nothing to push: give URLs, or a file with -f")
    access = open_spider(spider, arguments)
    lines = lines_of(urls, source)
    pushed = Pushed()
    try:
        run_with_store(lambda tools: _push(tools, access, lines, pushed), access.lease)
    except StoreUnavailable as error:
        safe = pushed.accepted + pushed.duplicate
        raise click.ClickException(
            f"{error}. Safe in the backlog: {counted(safe, 'request')}; push all again: but for those with dont_filter "
            "they count as duplicates then"
        ) from error
    counts = {"accepted": pushed.accepted, "duplicate": pushed.duplicate, "wrong": pushed.wrong}
    print_fields({"job": access.lease.job, **counts}, as_json)
    sys.exit(bool(pushed.wrong))


async def _push(tools: Tools, access: SpiderAccess, lines: Iterable[tuple[str, str]], pushed: Pushed) -> None:
    lease = access.lease
    scope = tools.namespace.scope(lease.job, lease.run, lease.expected_items)
    scripts = Scripts(tools.channel, await tools.sized(scope, create=True))
    console = Console(stderr=True)
    columns = (TextColumn("{task.completed} requests"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("push", total=None)
        for batch in _batches(access, lines, pushed):
            pushed.answered(await scripts.push("", 0, batch))
            progress.update(task, completed=pushed.lines)


def _batches(access: SpiderAccess, lines: Iterable[tuple[str, str]], pushed: Pushed) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for place, text in lines:
        pushed.lines += 1
        try:
            entry = access.entry(fields_in(text))
        except LeaseError as error:
            pushed.wrong += 1
            tell_fault(pushed.wrong, f"{place}: {error}")
            continue
        batch.append(entry)
        size += len(entry.payload)
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
