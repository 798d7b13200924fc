"""``scrapy-lease drain|undrain``: let a node leave, and let it come back."""

from __future__ import annotations

import click

from scrapy_lease.cli import json_option, print_fields, store_options
from scrapy_lease.cli.status_picture import take_picture
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.store.tools import Tools


def steer(node: str, as_json: bool, *, drain: bool) -> None:
    """Set or remove the drain of *node* and say so; that it was set or not before is all the same."""
    lease = lease_settings()

    async def work(tools: Tools) -> list[str]:
        await tools.set_flag(f"drain:{node}", drain)
        picture = await take_picture(tools)
        return [session.id for session in picture.sessions if session.node == node and session.is_live]

    sessions = run_with_store(work, lease)
    print_fields({"node": node, "draining": drain, "sessions": sessions}, as_json)
    if drain and not sessions:
        click.echo(f"No live session of node {node!r} is in namespace {lease.namespace!r}.", err=True)


@click.command(name="drain")
@click.argument("node")
@store_options
@json_option
def command(node: str, as_json: bool) -> None:
    """Let the crawls of NODE (its LEASE_NODE) leave: what is under way is finished, the rest goes back at once.

    They close with the reason `lease_drained`. Crawls that start on this node leave again, until `undrain`.
    """
    steer(node, as_json, drain=True)
