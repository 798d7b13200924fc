"""``scrapy-lease demo``: several nodes crawl a local shop together, and one of them is killed half way.

Everything is real: the shop, the server, and ``scrapy crawl`` of the example project, each a process of its
own. The verdict is not the crawlers' word: it is counted from the shop's log of every hit and from what the
database holds.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.live import Live

from scrapy_lease.cli import json_option
from scrapy_lease.cli.demo_report import Picture, verdict_fields, verdict_table
from scrapy_lease.store import embedded

POLL = 0.1
"""Seconds between two looks at the shop's log."""

CRAWL_SECONDS = 10.0
"""About how long the crawl shall take: the shop is made slow enough for the takeover to be seen."""

REQUESTS_AT_ONCE = 8
"""Scrapy's default of CONCURRENT_REQUESTS_PER_DOMAIN: all pages are of one site."""

END_TIMEOUT = 5.0
"""Seconds that a process has to follow SIGTERM."""

SERVER = "server"
TAIL_LINES = 25


class Example:
    """The example project beside this package; its modules are found by path, for the package needs none."""

    def __init__(self) -> None:
        self.clone = Path(__file__).resolve().parents[2]
        self.path = self.clone / "example_project"
        if not (self.path / "scrapy.cfg").is_file():
            raise click.ClickException(
                f"the demo crawls the example project; {self.path} is not there. It is part of the source, "
                "not of the installed package: run `scrapy-lease demo` from a clone (pip install -e .)."
            )
        sys.path.insert(0, str(self.path))
        try:
            self.hits: Any = importlib.import_module("example.hits")
            self.products: Any = importlib.import_module("example.products")
        except ModuleNotFoundError as missing:
            raise click.ClickException(
                f"the example project needs {missing.name}, which is not installed: run "
                f"pip install -e '{self.clone}[example]'"
            ) from missing

    def start(self, *arguments: str, log: Path, **options: Any) -> subprocess.Popen[bytes]:
        """Starts ``python -m ARGUMENTS`` in the project, with stderr in ``log``."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")}
        paths = [str(self.clone), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with log.open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                # Ctrl-C is for this process alone, which then ends the others in order.
                start_new_session=True,
                **options,
            )


@dataclass
class Node:
    """One ``scrapy crawl`` process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    was_killed: bool = False

    @property
    def has_failed(self) -> bool:
        return not self.was_killed and self.process.returncode != 0


class Demo:
    """The shop, the nodes and what is seen of them; ``folder`` takes every file."""

    def __init__(self, example: Example, folder: Path, items: int) -> None:
        self.example = example
        self.folder = folder
        self.items = items
        self.database = f"sqlite:///{folder / 'shop.db'}"
        self.reader = example.hits.HitReader(folder / "hits.jsonl")
        self.nodes: list[Node] = []
        self.kill: Any = None
        self.hits: list[Any] = []
        self.seconds = 0.0

    def start(self, nodes: int, running: ExitStack) -> None:
        """Starts the shop and the nodes; leaving ``running`` ends each, and the nodes' server last."""
        running.callback(embedded.stop, self.folder / SERVER)
        latency = min(0.5, max(0.02, CRAWL_SECONDS * nodes * REQUESTS_AT_ONCE / self.items))
        shop = self.example.start(
            *f"example.shop --port=0 --json --products={self.items} --latency={latency:.3f}".split(),
            f"--log={self.folder / 'hits.jsonl'}",
            log=self.folder / "shop.log",
            stdout=subprocess.PIPE,
        )
        running.callback(end, [shop])
        assert shop.stdout is not None
        first_line = shop.stdout.readline()
        if not first_line:
            raise click.ClickException(f"the shop did not start:\n{tail(self.folder / 'shop.log')}")
        # Known before the first is started: an interrupt between two starts must end the one that runs.
        running.callback(lambda: end([node.process for node in self.nodes]))
        for number in range(1, nodes + 1):
            self.nodes.append(self._start_node(f"node-{number}", json.loads(first_line)["url"]))

    def _start_node(self, name: str, url: str) -> Node:
        log = self.folder / f"{name}.log"
        settings = {
            "LEASE_REDIS_URL": f"embedded://{self.folder / SERVER}",
            "LEASE_NAMESPACE": "demo",
            "LEASE_NODE": name,
            "SHOP_DATABASE_URL": self.database,
            "LOG_LEVEL": "INFO",
        }
        options = [option for pair in settings.items() for option in ("-s", "=".join(pair))]
        arguments = ["scrapy", "crawl", "s01_catalog", "-a", f"base={url}", *options]
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


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends processes: SIGTERM, and SIGKILL for those that do not follow it in time."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + END_TIMEOUT
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


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
@click.option("--kill/--no-kill", default=True, show_default=True, help="Kill a node half way (SIGKILL).")
@click.option("--keep", is_flag=True, help="Keep the logs and the database, and say where they are.")
@json_option
@click.option("--timeout", type=click.FloatRange(1), help="Seconds; default: 60, and more for many items.")
def command(items: int, nodes: int, kill: bool, keep: bool, as_json: bool, timeout: float | None) -> None:
    """Crawl a local shop with several nodes, kill one, and count what became of each product.

    Exit status 0: nothing was lost, and only what the killed node had in flight was fetched twice.
    """
    if kill and nodes < 2:
        raise click.UsageError("--kill needs --nodes 2 or more: somebody has to take over; or use --no-kill")
    console = Console(quiet=as_json)
    with sigterm_as_interrupt(), folder_for(keep, console) as folder, ExitStack() as running:
        demo = Demo(Example(), folder, items)
        picture = Picture(demo, console)
        demo.start(nodes, running)
        with Live(picture(), console=console, auto_refresh=False, transient=True) as live:
            demo.watch(kill, timeout or max(60.0, items / 10), lambda: live.update(picture(), refresh=True))
        running.close()
        verdict = demo.verdict()
        is_right = verdict.is_right and bool(demo.kill) == kill and not any(n.has_failed for n in demo.nodes)
        console.print(picture(), "", verdict_table(demo, verdict))
        if as_json:
            click.echo(json.dumps({"ok": is_right, **verdict_fields(demo, verdict)}))
        if not is_right:
            for node in demo.nodes:
                click.echo(f"\n--- {node.log.name}\n{tail(node.log)}", err=True)
            raise SystemExit(1)
