"""How ``scrapy-lease status`` shows a pool: what there is of it, and who holds how much and waits for how much."""

from __future__ import annotations

import click

from scrapy_lease.cli.text_table import counted, print_table
from scrapy_lease.store.pool_reading import PoolPicture


def print_pool(pool: PoolPicture) -> None:
    """Print *pool* for people."""
    click.echo(f"{pool.kind} pool {pool.name}: {pool.known} known, {', '.join(_places(pool))}")
    for site, seconds in sorted(pool.paused.items()):
        click.echo(f"  {site} is paused: {f'{seconds:.0f} s left' if seconds else 'it is being probed'}")
    if pool.members:
        columns = ("node", "session", "held", "wants", "waits s")
        rows = [
            (member.node, f"{member.session}{'' if member.is_live else ' (over)'}", member.held, member.wants or None,
             None if member.waits is None else f"{member.waits:.1f}")
            for member in pool.members
        ]  # fmt: skip
        print_table(columns, rows)


def _places(pool: PoolPicture) -> list[str]:
    spotted = f" ({pool.spotted} rest for some site)" if pool.spotted else ""
    places = [f"{pool.free} free{spotted}", f"{pool.leased} leased", f"{pool.resting} resting"]
    if pool.behind:
        places.append(f"{pool.behind} behind another of their exit address")
    if pool.aside:
        places.append(f"{pool.aside} drained or revoked")
    return [*places, f"{counted(pool.waiting, 'session')} waiting"]
