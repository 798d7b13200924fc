"""``scrapy-lease pause|resume``: stop a job from fetching, and let it go on."""

from __future__ import annotations

import click

from scrapy_lease.cli import json_option, print_fields, store_options
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.store.tools import Tools


def steer(job: str, as_json: bool, *, pause: bool) -> None:
    """Set or remove the pause of *job* and say so; that it was set or not before is all the same."""
    lease = lease_settings()

    async def work(tools: Tools) -> bool:
        await tools.set_flag(f"pause:{job}", pause)
        return job in {known for known, _ in await tools.scopes()}

    is_known = run_with_store(work, lease)
    print_fields({"job": job, "paused": pause, "known": is_known}, as_json)
    if not is_known:
        click.echo(f"No crawl of job {job!r} has used namespace {lease.namespace!r} yet.", err=True)


@click.command(name="pause")
@click.argument("name", metavar="JOB")
@store_options
@json_option
def command(name: str, as_json: bool) -> None:
    """Lease nothing more in JOB, in all its runs, until `resume`.

    What nodes have leased already is still fetched: at most LEASE_WINDOW requests and those in flight, each. Crawls of
    a paused job stay, and requests can be pushed.
    """
    steer(name, as_json, pause=True)
