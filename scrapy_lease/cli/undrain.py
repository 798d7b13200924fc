"""``scrapy-lease undrain``: see :mod:`scrapy_lease.cli.drain`."""

from __future__ import annotations

import click

from scrapy_lease.cli import json_option, store_options
from scrapy_lease.cli.drain import steer


@click.command(name="undrain")
@click.argument("node")
@store_options
@json_option
def command(node: str, as_json: bool) -> None:
    """Let crawls of NODE stay again after `drain`."""
    steer(node, as_json, drain=False)
