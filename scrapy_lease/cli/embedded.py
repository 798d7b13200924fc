"""``scrapy-lease embedded``: the server that crawls of this host share when no Redis is named."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from scrapy_lease.cli import StoreOptions, json_option, print_fields
from scrapy_lease.store.embedded import EmbeddedStatus, directory_of, start, status, stop

SCHEME = "embedded://"


@click.group(name="embedded")
def command() -> None:
    """Start, stop or look at the embedded server of a directory.

    DIR is, if not given, the one that LEASE_REDIS_URL or --url names, else .scrapy/lease of the project.
    """


def _directory(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path:
    if value is not None:
        return value
    url = ctx.ensure_object(StoreOptions).settings().get("LEASE_REDIS_URL") or SCHEME
    return directory_of(url if str(url).startswith(SCHEME) else SCHEME)


directory_argument = click.argument(
    "directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path), callback=_directory
)


def _report(found: EmbeddedStatus, as_json: bool) -> None:
    print_fields(asdict(found) | {"directory": str(found.directory)}, as_json)


@command.command("start")
@directory_argument
@json_option
def start_command(directory: Path, as_json: bool) -> None:
    """Start the server; it stays until `stop`, whoever comes and goes."""
    _report(start(directory), as_json)


@command.command("stop")
@directory_argument
@json_option
def stop_command(directory: Path, as_json: bool) -> None:
    """Stop the server; while crawls use it, exit with 1: the last that leaves stops it."""
    found = stop(directory)
    _report(found, as_json)
    if found.running:
        click.echo(f"Crawls still use it (process ids {', '.join(map(str, found.users))}).", err=True)
        sys.exit(1)


@command.command("status")
@directory_argument
@json_option
def status_command(directory: Path, as_json: bool) -> None:
    """Show the server; exit with 1 if none runs."""
    found = status(directory)
    _report(found, as_json)
    sys.exit(not found.running)
