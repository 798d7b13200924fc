"""What the store costs its server, measured on the server: CPU seconds and bytes, not the client's time.

python -m benchmarks.store [--quick] [--server redis|valkey|both] [MEASUREMENT ...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from benchmarks import report
from benchmarks.nginx import Site
from benchmarks.servers import a_server
from scrapy_lease.payload import from_spec
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.pool_scripts import PoolScripts, Resource, Verdict
from scrapy_lease.store.scripts import Entry, Grant, Scripts, Settlement
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server

SLOT = "shop.example"
PAGES = f"https://{SLOT}/products/"
SID = "bench-session"
TTL = 3_600_000
WAVE = 20_000
HELD = 1000
ROUNDS = 5
PUSH = 1000


class Bench:
    """One open session on a real server, and the server's own account of what it spent."""

    def __init__(self, scripts: Scripts, client: redis.Redis) -> None:
        self.scripts = scripts
        self.client = client
        self._numbers = dict.fromkeys(("push", "lease", "settle"), 0)

    def next(self, verb: str) -> int:
        """Return the number of the next call of `verb`."""
        self._numbers[verb] += 1
        return self._numbers[verb]

    def cpu(self) -> float:
        """Seconds that the server's main thread has used."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])

    def memory(self) -> int:
        """Bytes that the server's data and structures take."""
        return int(self.client.info("memory")["used_memory"])

    def script_calls(self) -> tuple[int, int]:
        """Return how many scripts the server ran, and the microseconds it spent in them."""
        stats = self.client.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
        return int(stats["calls"]), int(stats["usec"])

    async def push(self, first: int, count: int, pages: str = PAGES) -> None:
        """Push the items numbered from `first` below `pages`, in batches of the size a node sends."""
        for begin in range(first, first + count, PUSH):
            entries = [entry(pages, number) for number in range(begin, min(begin + PUSH, first + count))]
            answer = await self.scripts.push(SID, self.next("push"), entries)
            assert answer == "+" * len(entries), f"the server refused a push: {answer[:20]}"

    async def lease(self, want: int) -> list[Grant]:
        """Lease up to `want` items."""
        _, grants = await self.scripts.lease(SID, self.next("lease"), want=want, rooms={SLOT: want})
        return grants

    async def beat(self) -> None:
        """Renew the session."""
        await self.scripts.beat(SID, ttl=TTL, node="bench")

    async def complete(self, grants: Sequence[Grant]) -> None:
        """Report the items as done."""
        settlements = [Settlement(grant.digest, grant.fence, "done", ("keep",)) for grant in grants]
        answer = await self.scripts.settle(SID, self.next("settle"), settlements)
        assert answer == "+" * len(grants), f"the server refused a completion: {answer[:20]}"


def entry(pages: str, number: int) -> Entry:
    """Return the item of a product page, with a callback and its depth, as a node pushes it."""
    digits = str(number).encode()
    slot, url, before, after = around(pages, len(digits))
    return Entry(blake2b(url + digits, digest_size=16).digest(), slot, 0, before + digits + after, "auto")


@cache
def around(pages: str, width: int) -> tuple[str, bytes, bytes, bytes]:
    """Return download slot, URL and what stands in a payload before and after a page's number of *width* digits.

    Payloads of one width differ in these digits only; to make each anew would cost most of the time.
    """
    url = pages + "7" * width
    payload = from_spec({"url": url, "callback": "parse_product", "meta": {"depth": 2}})
    before, after = payload.split(url.encode())
    return urlsplit(pages).hostname or "", pages.encode(), before + pages.encode(), after


async def leasing(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Items leased and completed per second of the server's main thread, over the size of a batch."""
    rows = []
    count = WAVE if options.quick else 5 * WAVE
    for batch in (16, 64, 300, 1000, 3000):
        async with opened(server) as bench:
            rounds = [await lease_round(bench, number * count, count, batch) for number in range(ROUNDS)]
        spent = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        rate = count / (spent["lease"] + spent["settle"])
        micros = {name: 1e6 * seconds / count for name, seconds in spent.items()}
        rows.append({"batch": batch, "items": count, "rounds": rounds, "rate": rate, **micros})
    return rows


async def lease_round(bench: Bench, first: int, count: int, batch: int) -> dict[str, float]:
    """Push, lease and complete `count` items, HELD at a time; return the CPU seconds of the server for each verb."""
    clock = bench.cpu()
    spent = dict.fromkeys(("push", "lease", "settle"), 0.0)

    def charge(verb: str) -> None:
        nonlocal clock
        now = bench.cpu()
        spent[verb] += now - clock
        clock = now

    await bench.push(first, count)
    charge("push")
    done = 0
    while done < count:
        held = [await bench.lease(batch) for _ in range(max(1, HELD // batch))]
        charge("lease")
        for grants in filter(None, held):
            await bench.complete(grants)
            done += len(grants)
        charge("settle")
    return spent


async def done_bytes(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Bytes of the done set per completed item; each was really pushed, leased and completed."""
    rows = []
    expected = options.done or (1_000_000 if options.quick else 10_000_000)
    async with opened(server, expected) as bench:
        await finish(bench, 0, 1)
        base, finished = bench.memory(), 0
        for target in (expected // 100, expected // 10, expected):
            while finished < target:
                await finish(bench, 1 + finished, min(WAVE, target - finished))
                finished += min(WAVE, target - finished)
            rows.append({"items": finished, "bytes": (bench.memory() - base) / finished})
    return rows


async def finish(bench: Bench, first: int, count: int) -> None:
    """Push, lease and complete `count` items."""
    await bench.push(first, count)
    while grants := await bench.lease(3000):
        await bench.complete(grants)


async def heartbeat(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Microseconds of the server for one heartbeat, over the number of items that the session holds."""
    rows, held = [], 0
    beats = 200 if options.quick else 2000
    async with opened(server) as bench:
        for target in (10, 1_000, 20_000) if options.quick else (10, 1_000, 100_000, 1_000_000):
            while held < target:
                wave = min(WAVE, target - held)
                await bench.push(held, wave)
                while grants := await bench.lease(1000):
                    held += len(grants)
            await bench.beat()
            calls, usec = bench.script_calls()
            for _ in range(beats):
                await bench.beat()
            made, spent = (now - then for now, then in zip(bench.script_calls(), (calls, usec), strict=True))
            assert made == beats, f"{made} scripts ran for {beats} heartbeats"
            rows.append({"held": held, "microseconds": spent / beats})
    return rows


async def takeover(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Microseconds of the server for each item that is taken back from a session that died, over the number it held."""
    rows = []
    for held in (100, 10_000) if options.quick else (100, 10_000, 100_000):
        async with opened(server) as bench:
            await bench.push(0, held)
            while await bench.lease(1000):
                pass
            bench.client.hincrby(bench.scripts.scope.namespace.clock, "now", 2 * TTL)
            await bench.scripts.reclaim("nobody", deaths=5, policy="refetch")
            calls, usec = bench.script_calls()
            left = held
            while left:
                _, left = await bench.scripts.reclaim(SID, deaths=5, policy="refetch")
            made, spent = (now - then for now, then in zip(bench.script_calls(), (calls, usec), strict=True))
            rows.append({"held": held, "calls": made, "microseconds": spent / held, "longest": spent / made})
    return rows


async def pool(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Leases taken and given back per second of the server's main thread, over the size of a pool."""
    rows = []
    count = 5_000 if options.quick else WAVE
    sizes = (
        (1_000, 100, False),
        (10_000, 100, False),
        (100_000, 100, False),
        (100_000, 500, False),
        (100_000, 100, True),
    )
    for known, batch, exits in sizes:
        async with opened(server) as bench:
            pool = PoolScripts(bench.scripts.channel, bench.scripts.scope.namespace.pool("proxy", "bench"))
            await stock(pool, known, exits)
            rounds = [await pool_round(bench, pool, number, count, batch) for number in range(ROUNDS)]
        take, settle = (1e6 * statistics.median(each) / count for each in zip(*rounds, strict=True))
        row = {"known": known, "batch": batch, "exits": "known" if exits else "unknown", "rate": 1e6 / (take + settle)}
        rows.append({**row, "take": take, "settle": settle})
    return rows


async def stock(pool: PoolScripts, known: int, exits: bool) -> None:
    """Register `known` proxies that expire in an hour or more, each with an exit address of its own if `exits`."""
    expiry = int(time.time() * 1000) + TTL
    for first in range(0, known, PUSH):
        batch = range(first, min(first + PUSH, known))
        await pool.register("", 0, [
            Resource(
                f"proxy-{number}.example:8000#a1b2", b"http://user:password@proxy.example:8000", expiry + number,
                f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" if exits else "", number % 1001,
            )
            for number in batch
        ])  # fmt: skip
    await pool.report(SID, 1, [])


async def pool_round(bench: Bench, pool: PoolScripts, number: int, count: int, batch: int) -> tuple[float, float]:
    """Take and give back `count` leases in batches; return the CPU seconds of the server for either."""
    spent = [0.0, 0.0]
    waves = range(number * (count // 1000), (number + 1) * (count // 1000))
    for wave in waves:
        calls = range(wave * (1000 // batch) + 1, (wave + 1) * (1000 // batch) + 1)
        begun = bench.cpu()
        taken = [await pool.take(SID, n, [("shop.example", batch)], margin=10_000) for n in calls]
        between = bench.cpu()
        for n, take in zip(calls, taken, strict=True):
            assert len(take.leases) == batch, f"{len(take.leases)} leases for {batch} wanted"
            await pool.settle(SID, n, [Verdict(lease.id, lease.fence, "back") for lease in take.leases])
        spent[0] += between - begun
        spent[1] += bench.cpu() - between
    return spent[0], spent[1]


async def backlog(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Resident size of a node after the same crawl, over the number of requests that wait in the backlog."""
    rows = []
    with Site(500) as site:
        for waiting in (1_000, 20_000) if options.quick else (1_000, 100_000, 1_000_000, 10_000_000):
            server.flush()
            async with opened(server, scope="catalogue", closes=True) as bench:
                await bench.push(0, waiting, site.products_url)
            rows.append({"waiting": waiting, **crawl_beside(server, site)})
    return rows


def crawl_beside(server: Server, site: Site) -> dict[str, Any]:
    """Crawl 300 pages from a backlog that never empties, and return the node's resident size in MB."""
    settings = {"CLOSESPIDER_ITEMCOUNT": 300}
    order = {"system": "scrapy-lease", "url": site.url, "redis": server.url, "proxies": site.proxies}
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.crawl_child", json.dumps(order | {"settings": settings})],
        capture_output=True, text=True, timeout=300, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the crawl beside the backlog failed:\n{done.stderr[-2000:]}")
    figures = json.loads(done.stdout.splitlines()[-1])
    return {"rss_mb": figures["rss_kb"] / 1024, "items": figures["items"]}


@asynccontextmanager
async def opened(
    server: Server, expected: int = 10_000_000, scope: str = "bench", closes: bool = False
) -> AsyncIterator[Bench]:
    """Open a session that outlives the measurement on an emptied server."""
    server.flush()
    channel = Channel(server.url, "the benchmark's server", 60, StoreStats())
    scripts = Scripts(channel, Namespace("bench").scope(scope, expected_items=expected))
    client = server.client()
    try:
        await scripts.open(SID, ttl=TTL, config="bench", fresh=True, info={"node": "bench"})
        yield Bench(scripts, client)
        if closes:
            await scripts.close(SID)
    finally:
        await channel.close()


Measurement = Callable[[Server, argparse.Namespace], Coroutine[Any, Any, list[dict[str, Any]]]]

MEASUREMENTS: dict[str, tuple[Measurement, dict[str, str], tuple[str, str]]] = {
    "leasing": (
        leasing,
        {
            "batch": "batch",
            "items": "items",
            "rate": "items leased and completed per second of server CPU",
            "push": "µs an item: push",
            "lease": "lease",
            "settle": "settle",
        },
        ("batch", "rate"),
    ),
    "done": (done_bytes, {"items": "done items", "bytes": "bytes per done item"}, ("items", "bytes")),
    "heartbeat": (
        heartbeat,
        {"held": "items held", "microseconds": "server µs per heartbeat"},
        ("held", "microseconds"),
    ),
    "takeover": (
        takeover,
        {"held": "items held", "calls": "calls", "microseconds": "server µs per item", "longest": "server µs per call"},
        ("held", "microseconds"),
    ),
    "pool": (
        pool,
        {
            "known": "resources in the pool",
            "batch": "batch",
            "exits": "exit addresses",
            "rate": "taken and given back per second of server CPU",
            "take": "µs a lease: take",
            "settle": "settle",
        },
        ("known", "rate"),
    ),
    "backlog": (
        backlog,
        {"waiting": "waiting requests", "rss_mb": "resident size of a node, MB"},
        ("waiting", "rss_mb"),
    ),
}


def run(name: str, kind: str, options: argparse.Namespace) -> None:
    """Take one measurement on one kind of server; print and write its table and plot."""
    measure, headings, (x, y) = MEASUREMENTS[name]
    with a_server(kind) as server:
        rows = asyncio.run(measure(server, options))
        environment = report.environment() | {"server": f"{kind} {server.info('server')['redis_version']}"}
    title = name if options.server != "both" else f"{name}-{kind}"
    report.write(options.out, title, {"quick": options.quick, "environment": environment, "rows": rows})
    report.table(options.out, title, rows, headings)
    report.plot_series(options.out, title, rows, x, y, (headings[x], headings[y]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen measurements, each against an emptied server; print and write their tables and plots."""
    parser = argparse.ArgumentParser(prog="benchmarks.store", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="MEASUREMENT", help=f"default: all of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: only to see that it works")
    parser.add_argument("--done", type=int, metavar="N", help="items of the measurement done (default 10 million)")
    parser.add_argument("--server", choices=("redis", "valkey", "both"), default="redis")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(arguments)
    report.end_in_order()
    if unknown := set(options.what) - MEASUREMENTS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(MEASUREMENTS)}")
    for kind in ("redis", "valkey") if options.server == "both" else (options.server,):
        for name in options.what or MEASUREMENTS:
            run(name, kind, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
