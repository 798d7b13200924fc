"""``scrapy-lease queue``: the backlog as a whole: emptied, written to a file, read back."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import IO, Any, TextIO

import click
import msgspec

from scrapy_lease.cli import json_option, print_fields
from scrapy_lease.cli.queue_foreign import take_over
from scrapy_lease.cli.spider_access import arguments_option
from scrapy_lease.cli.store_access import lease_settings, run_with_store, scope_of, scope_options
from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.payload import describe
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.store.keys import Scope
from scrapy_lease.store.tools import Exported, HeldByLive, Tools

#: Items of one call of import: some hundred kilobytes.
BATCH = 300


class Line(msgspec.Struct):
    """A line of an export. ``url``, ``state`` and the like are for people; import needs those without a default."""

    digest: str
    slot: str
    order: str
    mark: str
    attempts: int
    deaths: int
    payload: str
    state: str = ""
    url: str | None = None
    method: str | None = None
    callback: str | None = None
    priority: int | None = None

    def item(self) -> Exported:
        """Return the item. Raises ValueError where a field is not what an export writes."""
        digest = bytes.fromhex(self.digest)
        if len(digest) != 16 or len(self.order) != 16 or not self.order.isdigit():
            raise ValueError("its digest or order is not that of an export")
        if self.mark not in ("auto", "run", "none"):
            raise ValueError(f"its mark is {self.mark!r}")
        payload = base64.b64decode(self.payload, validate=True)
        return Exported(digest, self.slot, self.order, self.mark, self.attempts, self.deaths, payload)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


@click.group(name="queue")
def command() -> None:
    """Clear, export or import the backlog of a job: --job names it, unless there is only one."""


@command.command("clear")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Clear even while live sessions hold items: those are lost to them.")
@scope_options
@json_option
def clear_command(yes: bool, force: bool, as_json: bool) -> None:
    """Remove all requests from the backlog; dead letters and done marks stay.

    While live sessions hold items nothing is removed and the exit status is 1, unless --force.
    """
    lease = lease_settings()

    async def work(tools: Tools) -> tuple[str, int]:
        scope = await scope_of(tools, lease, known_only=True)
        number = await tools.command("HLEN", scope.key("state"))
        if not yes and number:
            click.confirm(f"Remove {number} requests from the backlog of job {scope.name}?", abort=True, err=True)
        removed = 0
        while chunk := await tools.clear(scope, force=force):
            removed += chunk
        return scope.name, removed

    try:
        job, removed = run_with_store(work, lease)
    except HeldByLive as error:
        raise click.ClickException(
            f"{error}: nothing was removed since; drain its node, or remove them all with --force"
        ) from error
    print_fields({"job": job, "removed": removed}, as_json)


@command.command("export")
@click.option("-o", "--output", type=click.File("wb"), default="-", help="File to write; -: standard output.")
@scope_options
@json_option
def export_command(output: IO[bytes], as_json: bool) -> None:
    """Write the backlog, a JSON object a line, for `import`; nothing is changed.

    Pending, delayed and leased requests are written and told apart by "state". Of a backlog at work, what is finished
    or pushed meanwhile may be there or not, and a line may come twice; import takes each once.
    """
    lease = lease_settings()

    async def work(tools: Tools) -> dict[str, Any]:
        scope = await scope_of(tools, lease, known_only=True)
        counts = {"pending": 0, "delayed": 0, "leased": 0}
        async for line in _exported(tools, scope):
            counts[line.state] += 1
            output.write(_encode(line) + b"\n")
        return {"job": scope.name, **counts}

    fields = run_with_store(work, lease, looks_only=True)
    output.flush()
    if as_json:
        click.echo(json.dumps(fields), err=True)
    else:
        click.echo(", ".join(f"{name} {value}" for name, value in fields.items()), err=True)


async def _exported(tools: Tools, scope: Scope) -> AsyncIterator[Line]:
    async for records in tools.records(scope):
        for digest, record in records.items():
            shown = describe(record.payload)
            yield Line(
                digest.hex(), record.slot, record.order, record.mark, record.attempts, record.deaths,
                base64.b64encode(record.payload).decode(), record.state, shown["url"], shown["method"],
                shown["callback"], record.priority,
            )  # fmt: skip


@command.command("import")
@click.argument("source", metavar="[FILE]", required=False, type=click.File(encoding="utf-8"))
@click.option("--scrapy-redis", "spider", metavar="SPIDER", help="Import the scrapy-redis queue of SPIDER, not a file.")
@click.option("--from", "server", metavar="URL", help="Server of that queue, in place of REDIS_URL.")
@click.option("--key", help="Key of that queue, in place of SCHEDULER_QUEUE_KEY.")
@click.option("--trust-pickle", is_flag=True, help="Read pickles, in a process of their own: they run what they say.")
@arguments_option
@scope_options
@json_option
def import_command(
    source: TextIO | None,
    spider: str | None,
    server: str | None,
    key: str | None,
    trust_pickle: bool,
    arguments: dict[str, str],
    as_json: bool,
) -> None:
    """Bring an export (-: standard input) back into the backlog, each item once and all of them pending.

    Attempts, deaths, priorities and the order within each download slot are as they were. Wrong lines are named and
    left out, and the exit status is 1.

    With --scrapy-redis the queue of a spider of scrapy-redis is read instead, and stays as it is.
    """
    if (source is None) == (spider is None):
        raise click.UsageError("name either a file or, with --scrapy-redis, a spider")
    if spider is not None:
        fields = take_over(spider, arguments, server, key, trusts_pickle=trust_pickle)
        print_fields(fields, as_json)
        sys.exit(bool(fields["wrong"]))
    if server or key or trust_pickle or arguments:
        raise click.UsageError("--from, --key, --trust-pickle and -a are for --scrapy-redis")
    assert source is not None
    _import_file(source, as_json)


def _import_file(source: TextIO, as_json: bool) -> None:
    lease = lease_settings()
    faults = 0

    def items() -> Iterator[Exported]:
        nonlocal faults
        for number, text in enumerate(source, 1):
            try:
                if text.strip():
                    yield _decode(text).item()
            except (msgspec.DecodeError, binascii.Error, ValueError) as error:
                faults += 1
                click.echo(f"line {number}: is no line of an export: {error}", err=True)

    try:
        fields = run_with_store(lambda tools: _import(tools, lease, items()), lease)
    except StoreUnavailable as error:
        raise click.ClickException(f"{error}. Import it all again: what is there counts as duplicate") from error
    print_fields({**fields, "wrong": faults}, as_json)
    sys.exit(bool(faults))


async def _import(tools: Tools, lease: LeaseSettings, items: Iterator[Exported]) -> dict[str, Any]:
    scope = await scope_of(tools, lease)
    accepted = duplicate = 0
    while batch := list(islice(items, BATCH)):
        reply = await tools.restore(scope, batch, done_ttl=int(lease.done_ttl))
        accepted += reply.count("+")
        duplicate += len(reply) - reply.count("+")
    return {"job": scope.name, "accepted": accepted, "duplicate": duplicate}
