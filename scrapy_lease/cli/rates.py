"""``scrapy-lease rates``: what rate limits have counted, and limits that an operator sets."""

from __future__ import annotations

import json
from typing import Any

import click

from scrapy_lease.cli import json_option, print_fields, store_options
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.cli.text_table import print_table
from scrapy_lease.settings.rate_rules import check_rule, parse_limit
from scrapy_lease.store.rate_reading import read_counters, read_set_limits, set_limit, unset_limits
from scrapy_lease.store.rate_scripts import RateScripts
from scrapy_lease.store.tools import Tools

_COLUMNS = ("rule and key", "spent", "limit", "window", "ends in")
_CONFIGURED = "configured"


@click.group(name="rates")
def command() -> None:
    """Look at rate limits, and change them while crawls run."""


@command.command("list")
@store_options
@json_option
def list_command(as_json: bool) -> None:
    """Show each limit with what of it is spent or held in the window under way, limits set here, and pauses."""

    async def work(tools: Tools) -> dict[str, Any]:
        counters = await read_counters(tools)
        limits = await read_set_limits(tools)
        pauses = await RateScripts(tools.channel, tools.namespace).blocks()
        return {
            "limits": [
                {"name": each.name, "spent": each.count, "limit": each.limit, "window": each.length / 1000,
                 "left": round(each.left / 1000, 1)} for each in counters
            ],
            "set": [
                {"rule": rule, "limit": permits, "window": window / 1000} for (rule, window), permits in limits.items()
            ],
            "pauses": [{"key": key, "left": round(left, 1)} for key, left in sorted(pauses.items())],
        }  # fmt: skip

    found = run_with_store(work, lease_settings(), looks_only=True)
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [(*list(each.values())[:3], f"{each['window']:g} s", f"{each['left']:.0f} s") for each in found["limits"]]
    print_table(_COLUMNS, rows)
    for each in found["set"]:
        click.echo(f"set here: {each['rule']}: {each['limit']} in {each['window']:g} s")
    for each in found["pauses"]:
        click.echo(f"paused: {each['key']}: {each['left']:.0f} s")


@command.command("set")
@click.argument("rule")
@click.argument("limit")
@store_options
@json_option
def set_command(rule: str, limit: str, as_json: bool) -> None:
    """Let LIMIT hold for RULE in the place of what is configured for such a window, at once and until it is undone.

    RULE is what `list` shows without the key: a dimension ("ip"), or one with a rule ("api https://api.example.com/").
    LIMIT is like "20/second"; "configured" undoes what was set for RULE.
    """

    async def work(tools: Tools) -> int:
        if limit == _CONFIGURED:
            return await unset_limits(tools, rule)
        await set_limit(tools, rule, parsed.window, parsed.permits)
        return 1

    if limit != _CONFIGURED:
        try:
            parsed = parse_limit(limit)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="LIMIT") from None
        try:
            check_rule(rule)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="RULE") from None
    changed = run_with_store(work, lease_settings())
    print_fields({"rule": rule, "limit": limit, "changed": changed}, as_json)
    if not changed:
        raise SystemExit(1)
