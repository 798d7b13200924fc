"""Crawls one site with bare Scrapy, scrapy-redis and scrapy-lease in turn, each between two runs of its base.

python -m benchmarks.crawl [--quick] [--systems bare,scrapy-redis] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import redis

from benchmarks import report
from benchmarks.nginx import Site
from benchmarks.servers import a_server
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

TIMEOUT = 300

MEASURES = (
    "rate", "cpu_ms_per_item", "wall", "server_commands_per_item", "commands_per_item", "roundtrips_per_item",
    "own_commands_per_item", "own_roundtrips_per_item",
)  # fmt: skip


#: What others are compared with: they need no server.
BASES = ("bare", "fixed proxies", "fixed cookies")


@dataclass(frozen=True)
class Column:
    """One system at one delay of the server (ms added to each round trip; 0: no relay in between)."""

    system: str
    delay: float
    budget: float | None = None
    base: str = "bare"

    def __str__(self) -> str:
        return _named(self.system, self.delay)

    @property
    def base_column(self) -> str:
        """What it is compared with, at the same delay."""
        return _named(self.base, self.delay)


def _named(system: str, delay: float) -> str:
    return system if system in BASES else f"{system}, {delay:g} ms"


COLUMNS = (
    Column("bare", 0),
    Column("scrapy-redis", 0),
    Column("scrapy-redis", 2),
    Column("scrapy-lease", 0, 1.00),
    Column("scrapy-lease", 2, 1.00),
    Column("scrapy-lease", 20, 0.95),
    Column("scrapy-lease local", 0, 0.97),
    Column("scrapy-lease local", 2, 0.97),
    Column("scrapy-lease guard", 0),
    Column("scrapy-lease guard", 2),
    Column("scrapy-lease rates", 0, 0.98, base="scrapy-lease"),
    Column("scrapy-lease rates", 2, 0.98, base="scrapy-lease"),
    Column("fixed proxies", 0),
    Column("scrapy-rotating-proxies", 0, base="fixed proxies"),
    Column("scrapy-lease proxies", 0, 0.98, base="fixed proxies"),
    Column("scrapy-lease proxies", 2, 0.98, base="fixed proxies"),
    Column("fixed cookies", 0),
    Column("scrapy-lease accounts", 0, 0.98, base="fixed cookies"),
    Column("scrapy-lease accounts", 2, 0.98, base="fixed cookies"),
)


@dataclass
class Run:
    """What one crawl took. `error` is set, and nothing else counts, when it did not scrape every product."""

    column: str
    round: int
    items: int = 0
    rate: float = 0.0
    cpu_ms_per_item: float = 0.0
    wall: float = 0.0
    server_commands_per_item: float | None = None
    commands_per_item: float | None = None
    roundtrips_per_item: float | None = None
    own_commands_per_item: float | None = None
    own_roundtrips_per_item: float | None = None
    error: str | None = None
    lease: dict[str, Any] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if every crawl was complete and every budget kept."""
    options = _options(arguments)
    report.end_in_order()
    columns = [column for column in COLUMNS if column.system in options.systems]
    runs: list[Run] = []
    with Site(options.products) as site, a_server(options.server) as server:
        for number in range(options.rounds):
            for column in _in_turn(columns, number):
                runs.append(_run(column, number, site, server))
                report.progress(runs[-1])
        environment = report.environment() | {"server": server.info("server")["redis_version"]}
    rows = [_summary(column, runs) for column in columns]
    settings = {"products": options.products, "rounds": options.rounds, "quick": options.quick}
    report.write(options.out, "crawl", {
        "settings": settings, "environment": environment, "rows": rows, "runs": [asdict(run) for run in runs],
    })  # fmt: skip
    report.table(options.out, "crawl", rows)
    report.plot_ratios(options.out, [row for row in rows if row["ratios"]])
    return int(any(row["failed_runs"] or row["within_budget"] is False for row in rows))


def _in_turn(columns: Sequence[Column], number: int) -> Iterator[Column]:
    """Yield the columns of a round in the order of their crawls: each between two crawls of its base.

    The speed of a machine drifts by more than what is compared here. Against the mean of the crawls just before and
    just after, a steady drift cancels out.
    """
    by_name = {str(column): column for column in columns}
    compared = [column for column in columns if str(column) != column.base_column]
    turn = number % len(compared)
    last = None
    for column in compared[turn:] + compared[:turn]:
        base = by_name[column.base_column]
        if last is not base:
            yield base
        yield column
        yield base
        last = base


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl", description=__doc__.splitlines()[0])
    systems = list(dict.fromkeys(column.system for column in COLUMNS))
    parser.add_argument("--quick", action="store_true", help="300 products, 2 rounds: only to see that it works")
    parser.add_argument("--products", type=int, help="items of each crawl (default 5000)")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--systems", default=",".join(systems), help="default: all")
    parser.add_argument("--server", choices=("redis", "valkey"), default="redis")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(arguments)
    options.systems = options.systems.split(",")
    if unknown := set(options.systems) - set(systems):
        parser.error(f"--systems: {', '.join(sorted(unknown))}; known are {', '.join(systems)}")
    needed = {column.base for column in COLUMNS if column.system in options.systems}
    if missing := needed - set(options.systems):
        parser.error(f"--systems must hold {' and '.join(sorted(missing))}, which others are compared with")
    options.products = options.products or (300 if options.quick else 5000)
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


@contextmanager
def _route(server: Server, delay: float) -> Iterator[tuple[str, Relay | None]]:
    if not delay:
        yield server.url, None
        return
    with Relay(server.url, delay=delay / 2000) as relay:
        yield relay.url, relay


def _run(column: Column, number: int, site: Site, server: Server) -> Run:
    server.flush()
    run = Run(str(column), number)
    with _route(server, column.delay) as (url, relay):
        before = _commands(server)
        begin = time.monotonic()
        figures = _crawl({"system": column.system, "url": site.url, "redis": url, "proxies": site.proxies}, run)
        run.wall = time.monotonic() - begin
        commands = _commands(server) - before
    if run.error is None and figures["items"] != site.products:
        run.error = f"{figures['items']} of {site.products} items, closed with {figures['reason']}"
    if run.error is None:
        _fill(run, figures, commands, relay)
    return run


def _fill(run: Run, figures: dict[str, Any], commands: int, relay: Relay | None) -> None:
    items = run.items = figures["items"]
    run.lease = figures["lease"]
    run.rate = items / figures["seconds"]
    run.cpu_ms_per_item = 1000 * figures["cpu"] / items
    run.server_commands_per_item = commands / items
    if relay:
        run.commands_per_item = relay.commands / items
        run.roundtrips_per_item = relay.round_trips / items
    if run.lease:
        run.own_commands_per_item = run.lease.get("lease/store/commands", 0) / items
        run.own_roundtrips_per_item = run.lease.get("lease/store/roundtrips", 0) / items


def _crawl(order: dict[str, Any], run: Run) -> dict[str, Any]:
    """Run the child and return its figures; a failure goes to `run.error`."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.crawl_child", json.dumps(order)]
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=root, env=environment)
    except subprocess.TimeoutExpired:
        run.error = f"no end within {TIMEOUT} s"
        return {}
    try:
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        run.error = next(reversed(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
        return {}
    return figures


def _commands(server: Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        stats = client.info("commandstats")
    own = {
        "cmdstat_info",
        "cmdstat_hello",
        "cmdstat_client|setinfo",
        "cmdstat_flushall",
        "cmdstat_script|flush",
    }
    return sum(entry["calls"] for name, entry in stats.items() if name not in own)


def _summary(column: Column, runs: Sequence[Run]) -> dict[str, Any]:
    """Medians over the rounds; a ratio is that to the mean of the base's crawls just before and just after."""
    own = [run for run in runs if run.column == str(column)]
    good = [run for run in own if run.error is None]
    pairs = list(_compared(column, runs))
    ratios = [run.rate / rate for run, rate, _ in pairs]
    cpu = [run.cpu_ms_per_item / base_cpu for run, _, base_cpu in pairs]
    row: dict[str, Any] = {
        "column": str(column),
        "base": column.base_column,
        "budget": column.budget,
        "failed_runs": len(own) - len(good),
    }
    for name in MEASURES:
        values = [value for run in good if (value := getattr(run, name)) is not None]
        row[name] = median(values) if values else None
    row["ratios"] = ratios
    row["ratio"] = median(ratios) if ratios else None
    row["cpu_ratio"] = median(cpu) if cpu else None
    row["within_budget"] = None if column.budget is None or not ratios else row["ratio"] >= column.budget
    row["errors"] = sorted({run.error for run in own if run.error})
    return row


def _compared(column: Column, runs: Sequence[Run]) -> Iterator[tuple[Run, float, float]]:
    """Yield the good runs of a column, with rate and CPU time of its base at that moment."""
    base = column.base_column
    for before, run, after in zip(runs, runs[1:], runs[2:], strict=False):
        bases = (before, after)
        if run.column == str(column) and not run.error and all(b.column == base and not b.error for b in bases):
            yield run, sum(b.rate for b in bases) / 2, sum(b.cpu_ms_per_item for b in bases) / 2


if __name__ == "__main__":
    sys.exit(main())
