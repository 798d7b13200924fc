"""``scrapy-lease resume``: see :mod:`scrapy_lease.cli.pause`."""

from __future__ import annotations

import click

from scrapy_lease.cli import json_option, store_options
from scrapy_lease.cli.pause import steer


@click.command(name="resume")
@click.argument("name", metavar="JOB")
@store_options
@json_option
def command(name: str, as_json: bool) -> None:
    """Let JOB go on after `pause`."""
    steer(name, as_json, pause=False)
