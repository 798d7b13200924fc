"""``scrapy-lease rates``: what rate limits have counted, and limits that an operator sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from scrapy_lease.cli import json_option, print_fields, store_options
from scrapy_lease.cli.store_access import lease_settings, run_with_store
from scrapy_lease.cli.text_table import print_table
from scrapy_lease.leases.rates.words import Limit
from scrapy_lease.settings.rate_rules import Dimension, check_rule, limits_of, parse_limit, without_user
from scrapy_lease.store.rate_reading import (
    CounterRecord,
    read_counters,
    read_set_limits,
    read_told,
    set_limit,
    unset_limits,
)
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
    """Show each limit with what of it is spent or held in the window under way, limits set here, and pauses.

    What live crawls limit is shown too while no window of it is open.
    """

    async def work(tools: Tools) -> dict[str, Any]:
        counters = await read_counters(tools)
        limits = await read_set_limits(tools)
        specs, pauses = await read_told(tools)
        return {
            "limits": [*map(_open, counters), *_closed(specs, counters, limits)],
            "set": [
                {"rule": rule, "limit": permits, "window": window / 1000} for (rule, window), permits in limits.items()
            ],
            "pauses": [{"key": key, "left": round(left, 1)} for key, left in pauses.items()],
        }

    found = run_with_store(work, lease_settings(), looks_only=True)
    if as_json:
        click.echo(json.dumps(found))
        return
    print_table(_COLUMNS, map(_row, found["limits"]))
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
    LIMIT is like "20/second"; "configured" undoes what was set for RULE. Exit with 1, changing nothing, if neither a
    live crawl nor the project has a limit for RULE in windows of that length.
    """
    settings, rule = lease_settings(), without_user(rule)

    async def work(tools: Tools) -> int:
        if limit == _CONFIGURED:
            return await unset_limits(tools, rule)
        specs, _ = await read_told(tools)
        known = sorted({*_limits(specs), *_of(settings.rates)})
        if not any((rule, parsed.window) == (name, its.window) for name, its in known):
            raise click.ClickException(_unknown(rule, parsed, known))
        await set_limit(tools, rule, parsed.window, parsed.permits)
        return 1

    if limit != _CONFIGURED:
        parsed = _checked(rule, limit)
    changed = run_with_store(work, settings)
    print_fields({"rule": rule, "limit": limit, "changed": changed}, as_json)
    if not changed:
        raise SystemExit(1)


def _checked(rule: str, limit: str) -> Limit:
    try:
        parsed = parse_limit(limit)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="LIMIT") from None
    try:
        check_rule(rule)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="RULE") from None
    return parsed


def _limits(specs: Iterable[str]) -> Iterator[tuple[str, Limit]]:
    """Yield the limits that live sessions told of."""
    return (found for spec in specs for found in limits_of(spec))


def _of(dimensions: Iterable[Dimension]) -> Iterator[tuple[str, Limit]]:
    return (found for dimension in dimensions for found in dimension.limits)


def _unknown(rule: str, limit: Limit, known: list[tuple[str, Limit]]) -> str:
    there = "; ".join(f"{name}: {_shown(its)}" for name, its in known)
    what_is = f"There is {there}" if there else "There are no rate limits (LEASE_RATE_LIMITS)"
    windows = f"windows of {limit.window / 1000:g} s"
    return f"nothing is changed: no live crawl, nor this project, limits {rule!r} in {windows}. {what_is}"


def _shown(limit: Limit) -> str:
    return f"{limit.permits} in {limit.window / 1000:g} s"


def _open(record: CounterRecord) -> dict[str, Any]:
    return {
        "name": record.name, "spent": record.count, "limit": record.limit, "window": record.length / 1000,
        "left": round(record.left / 1000, 1),
    }  # fmt: skip


def _closed(
    specs: Iterable[str], counters: list[CounterRecord], limits: dict[tuple[str, int], int]
) -> Iterator[dict[str, Any]]:
    """Yield the limits of live sessions of which no window is open."""
    strictest: dict[tuple[str, int], int] = {}
    for rule, limit in _limits(specs):
        key = rule, limit.window
        strictest[key] = limits.get(key, min(limit.permits, strictest.get(key, limit.permits)))
    for (rule, window), permits in sorted(strictest.items()):
        if not any(each.length == window and _is_of(each.name, rule) for each in counters):
            yield {"name": rule, "spent": 0, "limit": permits, "window": window / 1000, "left": None}


def _is_of(name: str, rule: str) -> bool:
    """Is a counter called *name* one of *rule*? What a rule of a dimension takes has no key of its own."""
    return name == f"{rule} "[:200] if " " in rule else name.startswith(f"{rule} ") and not name.endswith(" ")


def _row(each: dict[str, Any]) -> tuple[Any, ...]:
    ends = "no window open" if each["left"] is None else f"{each['left']:.0f} s"
    return each["name"], each["spent"], each["limit"], f"{each['window']:g} s", ends
