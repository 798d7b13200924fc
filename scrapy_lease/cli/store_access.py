"""How a command gets at its store and at the job it is about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from string import Formatter
from typing import Any, TypeVar

import click
from scrapy.settings import Settings

from scrapy_lease.cli import F, StoreOptions, store_options
from scrapy_lease.settings import LeaseSettings, redacted_url
from scrapy_lease.store.client import Channel
from scrapy_lease.store.embedded import acquire, directory_of
from scrapy_lease.store.embedded_home import Home
from scrapy_lease.store.keys import Namespace, Scope
from scrapy_lease.store.server import StoreStats
from scrapy_lease.store.tools import Tools

T = TypeVar("T")

_RUN = f"{__name__}.run"
_EMBEDDED = "embedded://"


def scope_options(function: F) -> F:
    """Let a command take ``--url``, ``--namespace``, ``--job`` and ``--run``."""

    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.meta[_RUN] = value

    option = click.option(
        "--run", metavar="NAME", callback=remember, expose_value=False, is_eager=True,
        help="Named run of the job, in place of LEASE_RUN.",
    )  # fmt: skip
    return store_options(option(function))


def project_settings() -> Settings:
    """Return Scrapy's settings as the project and the options of the present command give them."""
    ctx = click.get_current_context()
    settings = ctx.ensure_object(StoreOptions).settings()
    if _RUN in ctx.meta:
        settings.set("LEASE_RUN", ctx.meta[_RUN], priority="cmdline")
    return settings


def lease_settings() -> LeaseSettings:
    """Return the checked settings; LEASE_JOB keeps its braces.

    :raises SettingsError: naming all that is wrong.
    """
    return LeaseSettings.from_mapping(project_settings())


@contextlib.asynccontextmanager
async def opened(lease: LeaseSettings, *, looks_only: bool = False) -> AsyncIterator[Tools]:
    """Connect to the store of *lease*; an embedded server is used like a crawl uses it, so it is started if need be.

    :param looks_only: an embedded server that never was is an error instead: it holds nothing to look at.
    """
    url, share = lease.redis_url, None
    if url.startswith(_EMBEDDED):
        directory = directory_of(url)
        if looks_only and not Home(directory).exists:
            raise click.ClickException(
                f"no crawl has used the embedded server of {directory}: there is nothing to see. "
                "Name the store with --url or LEASE_REDIS_URL if you mean another"
            )
        share = acquire(directory)
        url = share.url
    channel = Channel(url, redacted_url(lease.redis_url), lease.store_timeout, StoreStats())
    try:
        yield Tools(channel, Namespace(lease.namespace))
    finally:
        await channel.close()
        if share is not None:
            share.release()


def run_with_store(
    work: Callable[[Tools], Coroutine[Any, Any, T]], lease: LeaseSettings, *, looks_only: bool = False
) -> T:
    """Run *work* with the store of *lease* and return its result; errors of the store pass through."""

    async def run() -> T:
        async with opened(lease, looks_only=looks_only) as tools:
            return await work(tools)

    return asyncio.run(run())


def has_fields(job: str) -> bool:
    """Return whether LEASE_JOB names arguments of a spider, so that it is not the name of one job."""
    return any(name is not None for _, name, _, _ in Formatter().parse(job))


async def scope_of(tools: Tools, lease: LeaseSettings, *, known_only: bool = False) -> Scope:
    """Return the job that a command is about: the one named, else the only one that the namespace knows.

    :param known_only: one that no crawl and no push has ever used is an error: there is nothing to look at or to do.
    :raises click.ClickException: none is named, and there is none; wrong usage if there are several.
    """
    job = lease.job
    if has_fields(job):
        scopes = await tools.scopes()
        known = sorted({job for job, run in scopes if run == lease.run})
        if not known:
            raise click.ClickException(_unknown(lease, scopes))
        if len(known) > 1:
            raise click.UsageError(f"name the job with --job; known are {', '.join(known)}")
        job = known[0]
    scope = tools.namespace.scope(job, lease.run, lease.expected_items)
    if known_only and not await tools.command("EXISTS", scope.key("meta")):
        raise click.ClickException(_unknown(lease, await tools.scopes()))
    return await tools.sized(scope)


def _unknown(lease: LeaseSettings, scopes: Collection[tuple[str, str]]) -> str:
    """Say that the namespace knows no such job or run, and which it knows."""
    if not scopes:
        return f"no job is known in namespace {lease.namespace!r}; name one with --job"
    asked = "job outside of its named runs" if has_fields(lease.job) else f"job {lease.job!r}"
    if lease.run:
        asked = f"run {lease.run!r}" + ("" if has_fields(lease.job) else f" of {asked}")
    known = (f"run {run!r} of {job!r}" if run else repr(job) for job, run in sorted(scopes))
    return f"namespace {lease.namespace!r} knows no {asked}; it knows {', '.join(known)}"
