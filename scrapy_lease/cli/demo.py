"""``scrapy-lease demo``: several nodes crawl a local shop through leased proxies, and one is killed half way.

Everything is real: the shop, the proxies, the server, and ``scrapy crawl`` of the example project, each a process of
its own. The verdict is not the crawlers' word: it is counted from the shop's log of every hit and from what the
database holds.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.live import Live

from scrapy_lease.cli import json_option
from scrapy_lease.cli.demo_processes import Example, Node, end, tail
from scrapy_lease.cli.demo_report import Picture, verdict_fields, verdict_table
from scrapy_lease.store import embedded

POLL = 0.1
"""Seconds between two looks at the shop's log."""

CRAWL_SECONDS = 10.0
"""About how long the crawl shall take: the shop is made slow enough for the takeover to be seen."""

REQUESTS_AT_ONCE = 8
"""Scrapy's default of CONCURRENT_REQUESTS_PER_DOMAIN: all pages are of one site."""

LOCAL_PROXIES = 12 if sys.platform == "linux" else 0
"""Elsewhere a host has one loopback address until others are configured, and each proxy needs its own."""

LIMIT = 40
"""Requests a second: a little less than the crawl would make."""

LATE = 0.05
"""The part of a limit that may come in a moment late, in the next window: the way to the shop takes time."""

SERVER = "server"
PROXIES = "proxies.txt"


class Demo:
    """The shop, the nodes and what is seen of them; ``folder`` takes every file."""

    def __init__(self, example: Example, folder: Path, items: int) -> None:
        self.example = example
        self.folder = folder
        self.items = items
        self.database = f"sqlite:///{folder / 'shop.db'}"
        self.reader = example.hits.HitReader(folder / "hits.jsonl")
        self.exits: Sequence[str] = ()
        self.limit = 0
        self.nodes: list[Node] = []
        self.kill: Any = None
        self.hits: list[Any] = []
        self.seconds = 0.0

    def start(self, nodes: int, proxies: int, limit: int, running: ExitStack) -> None:
        """Starts the shop, the proxies and the nodes; leaving ``running`` ends each, and the nodes' server last."""
        self.limit = limit
        running.callback(embedded.stop, self.folder / SERVER)
        at_once = nodes * REQUESTS_AT_ONCE
        latency = min(0.5, max(0.02, CRAWL_SECONDS * min(at_once, proxies or at_once) / self.items))
        shop = self.example.serve(
            *f"example.shop --port=0 --products={self.items} --latency={latency:.3f}".split(),
            f"--log={self.folder / 'hits.jsonl'}",
            log=self.folder / "shop.log",
            running=running,
        )
        if proxies:
            self.exits = self._start_proxies(proxies, running)
        # Known before the first is started: an interrupt between two starts must end the one that runs.
        running.callback(lambda: end([node.process for node in self.nodes]))
        for number in range(1, nodes + 1):
            self.nodes.append(self._start_node(f"node-{number}", shop["url"]))

    def _start_proxies(self, count: int, running: ExitStack) -> Sequence[str]:
        """Starts the proxies; returns the addresses that the shop sees of them."""
        arguments = [f"--count={count}", f"--file={self.folder / PROXIES}"]
        log = self.folder / "proxies.log"
        exits: list[str] = self.example.serve("example.proxies", *arguments, log=log, running=running)["exits"]
        return exits

    def _start_node(self, name: str, url: str) -> Node:
        log = self.folder / f"{name}.log"
        settings = {
            "LEASE_REDIS_URL": f"embedded://{self.folder / SERVER}",
            "LEASE_NAMESPACE": "demo",
            "LEASE_NODE": name,
            "SHOP_DATABASE_URL": self.database,
            "LOG_LEVEL": "INFO",
        }
        if self.exits:
            settings["LEASE_PROXIES"] = str(self.folder / PROXIES)
        if self.limit:
            settings["LEASE_RATE_LIMITS"] = json.dumps({"domain": f"{self.limit}/second"})
        spider = "s05_proxies" if self.exits else "s01_catalog"
        options = [option for pair in settings.items() for option in ("-s", "=".join(pair))]
        arguments = ["scrapy", "crawl", spider, "-a", f"base={url}", *options]
        return Node(name, self.example.start(*arguments, log=log, stdout=subprocess.DEVNULL), log)

    def watch(self, kill: bool, timeout: float, show: Callable[[], None]) -> None:
        """Looks on until every node has ended, or for ``timeout`` seconds; kills one half way if told to."""
        started = time.monotonic()
        while self.seconds < timeout and (running := self._running()):
            self.seconds = time.monotonic() - started
            self.hits = self.reader.poll()
            if kill and not self.kill and len(self.products_hit()) * 2 >= self.items:
                self._kill_the_busiest(running)
            show()
            time.sleep(POLL)

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.process.poll() is None]

    def products_hit(self) -> set[str]:
        """The products that were asked for at least once."""
        return {hit.path for hit in self.hits if hit.path.startswith("/product/")}

    def _kill_the_busiest(self, running: list[Node]) -> None:
        waiting = self.example.hits.open_by_node(self.hits)
        victim = max(running, key=lambda node: waiting[node.name])
        self.kill = self.example.hits.Kill(victim.name, time.monotonic())
        victim.process.kill()
        victim.process.wait()
        victim.was_killed = True

    def verdict(self) -> Any:
        """What became of the products, by the shop's log and the database: an ``example.hits.Verdict``."""
        with self.example.products.opened(self.database) as table:
            stored = {urlsplit(row["url"]).path for row in table.rows()}
        self.hits = self.reader.poll()
        expected = {f"/product/{number}" for number in range(1, self.items + 1)}
        return self.example.hits.Verdict.of(self.hits, expected, stored, self.kill)

    def worst_window(self) -> int:
        """The most requests that came in within one second, by the shop's log."""
        worst: int = self.example.hits.worst_window(self.hits)
        return worst

    def keeps_limit(self) -> bool:
        """Did no second see more than the limit, but for what came late?"""
        return not self.limit or self.worst_window() <= self.limit * (1 + LATE)

    def addresses(self) -> Any:
        """How the addresses of the proxies were used, by the shop's log: an ``example.addresses.Addresses``."""
        return self.example.addresses.Addresses.of(self.hits, self.exits)


@contextmanager
def folder_for(keep: bool, console: Console) -> Iterator[Path]:
    """A folder for the logs and the database, removed at the end unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="scrapy-lease-demo-"))
    try:
        yield folder
    finally:
        if keep:
            console.print(f"Logs and database are in {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Makes SIGTERM do what Ctrl-C does, so that every process is ended in both cases."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command("demo")
@click.option("--items", default=400, show_default=True, type=click.IntRange(1), help="Products in the shop.")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1), help="Crawls at once.")
@click.option(
    "--proxies", default=LOCAL_PROXIES, show_default="12 on Linux", type=click.IntRange(0),
    help="Local proxies, each with an address of its own; 0: none, and each crawl fetches by itself.",
)  # fmt: skip
@click.option(
    "--limit", default=LIMIT, show_default=True, type=click.IntRange(0), help="Requests a second, of all nodes; 0: any."
)
@click.option("--kill/--no-kill", default=True, show_default=True, help="Kill a node half way (SIGKILL).")
@click.option("--keep", is_flag=True, help="Keep the logs and the database, and say where they are.")
@json_option
@click.option("--timeout", type=click.FloatRange(1), help="Seconds; default: 60, and more for many items.")
def command(
    items: int, nodes: int, proxies: int, limit: int, kill: bool, keep: bool, as_json: bool, timeout: float | None
) -> None:
    """Crawl a local shop with several nodes through leased proxies, kill a node, and count what became of each product.

    Exit status 0: nothing was lost, only what the killed node had in flight was fetched twice, no proxy carried two
    requests at once, none went past the proxies, and no second saw more requests than the limit.
    """
    if kill and nodes < 2:
        raise click.UsageError("--kill needs --nodes 2 or more: somebody has to take over; or use --no-kill")
    console = Console(quiet=as_json)
    with sigterm_as_interrupt(), folder_for(keep, console) as folder, ExitStack() as running:
        demo = Demo(Example(), folder, items)
        picture = Picture(demo, console)
        demo.start(nodes, proxies, limit, running)
        with Live(picture(), console=console, auto_refresh=False, transient=True) as live:
            demo.watch(kill, timeout or max(60.0, items / 10), lambda: live.update(picture(), refresh=True))
        running.close()
        verdict = demo.verdict()
        is_right = verdict.is_right and bool(demo.kill) == kill and not any(n.has_failed for n in demo.nodes)
        is_right = is_right and (not proxies or demo.addresses().is_right) and demo.keeps_limit()
        console.print(picture(), "", verdict_table(demo, verdict))
        if as_json:
            click.echo(json.dumps({"ok": is_right, **verdict_fields(demo, verdict)}))
        if not is_right:
            for node in demo.nodes:
                click.echo(f"\n--- {node.log.name}\n{tail(node.log)}", err=True)
            raise SystemExit(1)
