"""Crawls with two systems at the same time, each on a core of its own, and compares the processor's time they take.

On a machine whose speed drifts, two crawls one after the other say little. Two at once meet the same conditions; the
cores are swapped with every round. All systems here are bound by the processor, so the ratio of its time is that of
their throughput, the other way round. Linux only.

python -m benchmarks.side_by_side bare scrapy-lease [--delay 2] [--products 2000] [--rounds 6]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report
from benchmarks.crawl import COLUMNS
from benchmarks.nginx import Site
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

TIMEOUT = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds; 0 if every crawl was complete."""
    options = _options(arguments)
    report.end_in_order()
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        site = stack.enter_context(Site(options.products))
        urls = [stack.enter_context(_store(options.delay)) for _ in options.systems]
        for number in range(options.rounds):
            rounds.append(_round(options.systems, number, site, urls))
            print(f"round {number + 1}  {_shown(rounds[-1])}", file=sys.stderr, flush=True)
    base, other = options.systems
    ratios = [each[other] / each[base] for each in rounds]
    figures = {
        "base": base, "other": other, "delay_ms": options.delay, "products": options.products,
        "cpu_ms_per_item": {name: median(each[name] for each in rounds) for name in options.systems},
        "cpu_ratio": median(ratios), "ratios": ratios, "environment": report.environment(),
    }  # fmt: skip
    report.write(options.out, f"side_by_side_{base}_{other}_{options.delay:g}".replace(" ", "_"), figures)
    print(f"CPU of {other} ÷ {base}, Redis at {options.delay:g} ms: {figures['cpu_ratio']:.3f} "
          f"({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)")  # fmt: skip
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.side_by_side", description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs=2, choices=sorted({column.system for column in COLUMNS}), metavar="SYSTEM")
    parser.add_argument("--delay", type=float, default=0, help="ms added to each round trip of the store")
    parser.add_argument("--products", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(arguments)
    if len(os.sched_getaffinity(0)) < len(options.systems):
        parser.error("needs two cores")
    return options


@contextmanager
def _store(delay: float) -> Iterator[tuple[Server, str]]:
    with ExitStack() as stack:
        server = stack.enter_context(Server("redis"))
        url = stack.enter_context(Relay(server.url, delay=delay / 2000)).url if delay else server.url
        yield server, url


def _round(systems: Sequence[str], number: int, site: Site, stores: Sequence[tuple[Server, str]]) -> dict[str, float]:
    cores = sorted(os.sched_getaffinity(0))[:2]
    running = []
    for place, system in enumerate(systems):
        server, url = stores[place]
        server.flush()
        order = {"system": system, "url": site.url, "redis": url, "proxies": site.proxies}
        running.append(_start(order, cores[(place + number) % 2]))
    return {system: _cpu(process, site.products) for system, process in zip(systems, running, strict=True)}


def _start(order: dict[str, Any], core: int) -> subprocess.Popen[str]:
    root = Path(__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.crawl_child", json.dumps(order)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)}, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip


def _cpu(process: subprocess.Popen[str], products: int) -> float:
    output, errors = process.communicate(timeout=TIMEOUT)
    lines = output.splitlines()
    figures: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if figures.get("items") != products:
        raise SystemExit(f"a crawl was not complete: {figures or errors[-2000:]}")
    return 1000 * float(figures["cpu"]) / products


def _shown(round_: dict[str, float]) -> str:
    return "  ".join(f"{name} {cpu:.2f} ms" for name, cpu in round_.items())


if __name__ == "__main__":
    sys.exit(main())
