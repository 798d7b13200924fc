"""``scrapy-lease status``: who crawls what, how far it is, and what requests wait for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from scrapy_lease.cli import StoreOptions, json_option, store_options
from scrapy_lease.cli.status_picture import JobPicture, Picture, SessionPicture, take_picture
from scrapy_lease.cli.status_pool import print_pool
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.cli.text_table import counted, iso_time, print_table
from scrapy_lease.store.tools import Tools


@click.command(name="status")
@click.option("--why", is_flag=True, help="Show what requests wait for.")
@store_options
@json_option
@click.pass_context
def command(ctx: click.Context, why: bool, as_json: bool) -> None:
    """Show the sessions and jobs of the namespace, or of one --job.

    With --why: how many requests wait for each cause, and the seconds until it may end, where that is known.
    Exit with 1 if --job names one that the namespace does not know.
    """
    job = ctx.ensure_object(StoreOptions).job
    picture = run_with_store(lambda tools: _take_picture(tools, job), lease_settings(), looks_only=True)
    if as_json:
        click.echo(json.dumps(_json(picture, why)))
    else:
        _print(picture, why)


async def _take_picture(tools: Tools, job: str | None) -> Picture:
    picture = await take_picture(tools, job)
    if job is not None and not picture.jobs:
        known = sorted({repr(known) for known, _ in await tools.scopes()})
        names = ", ".join(known) or "none"
        raise click.ClickException(f"namespace {picture.namespace!r} knows no job {job!r}; it knows {names}")
    return picture


def _json(picture: Picture, why: bool) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = []
    for job in picture.jobs:
        fields = asdict(job) | {"began": None if job.began is None else iso_time(job.began)}
        jobs.append(fields | ({"why": _causes(job, picture.grace)} if why else {}))
    about = {"namespace": picture.namespace, "generation": picture.generation, "grace": picture.grace}
    pools = [{**asdict(pool), "waiting": pool.waiting} for pool in picture.pools]
    return {**about, "draining": picture.draining, "jobs": jobs, "pools": pools}


def _causes(job: JobPicture, grace: float) -> list[dict[str, Any]]:
    return [{"cause": cause, "requests": number, "seconds": seconds} for cause, number, seconds in job.waiting(grace)]


def _print(picture: Picture, why: bool) -> None:
    if picture.draining:
        click.echo(f"Asked to leave: {', '.join(_leaving(picture))}\n")
    if not picture.jobs:
        click.echo(f"No crawl has used namespace {picture.namespace} yet.")
    if picture.grace:
        click.echo(f"The server restarted: it grants nothing for up to {picture.grace:.1f} s more.\n")
    for number, job in enumerate(picture.jobs):
        if number:
            click.echo()
        _print_job(job)
        if why:
            _print_causes(job, picture.grace)
    for pool in picture.pools:
        click.echo()
        print_pool(pool)


def _leaving(picture: Picture) -> Iterator[str]:
    """Name the draining nodes; crawls that start on one of them leave again, so it is named without any too."""
    with_session = {session.node for session in picture.sessions if session.is_live}
    for node in picture.draining:
        yield node if node in with_session else f"{node} (no session; `undrain` lets its crawls stay again)"


def _print_job(job: JobPicture) -> None:
    which = f"run {job.run}" if job.run else f"run number {job.number}" if job.number else "not begun"
    began = f", began {iso_time(job.began)}" if job.began is not None else ""
    click.echo(f"job {job.job}, {which}{began}{', PAUSED' if job.paused else ''}")
    delayed = f"{job.delayed} delayed"
    if job.next_due is not None:
        delayed += f" (next in {job.next_due:.0f} s)"
    dead = counted(job.dead, "dead letter")
    click.echo(f"  backlog: {job.ready} ready, {delayed}, {job.leased} leased; {dead}")
    click.echo(f"  this run: {', '.join(_counter(name, number) for name, number in job.counters.items())}")
    click.echo(f"  start(): {_start(job)}")
    if not job.sessions:
        click.echo("  no session")
        return
    columns = ("node", "session", "state", "pid", "age s", "beat s", "left s", "ttl s", "generation", "held")
    print_table(columns, map(_row, job.sessions))


def _row(session: SessionPicture) -> tuple[Any, ...]:
    state = f"{session.state}, draining" if session.draining else session.state
    return (
        session.node, session.id, state, session.pid, _whole(session.age), _tenths(session.last_beat),
        _tenths(session.deadline_left), _tenths(session.ttl), session.generation, session.held,
    )  # fmt: skip


def _print_causes(job: JobPicture, grace: float) -> None:
    causes = list(job.waiting(grace))
    if not causes:
        click.echo("  no request waits")
        return
    print_table(("waits for", "requests", "seconds"), [(cause, number, _tenths(s)) for cause, number, s in causes])


def _start(job: JobPicture) -> str:
    if job.start_over:
        return "read"
    return f"read by {job.reader}" if job.reader else "nobody reads it"


def _counter(name: str, number: int) -> str:
    return counted(number, name) if name == "duplicate" else f"{number} {name.replace('_', ' ')}"


def _whole(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.0f}"


def _tenths(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f}"
