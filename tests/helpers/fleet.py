"""A shop and the nodes that crawl it, each a real process; what happened is read from the shop's own log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from sqlalchemy import create_engine, text

from example.hits import Hit, Kill, Verdict, read
from tests.helpers.nursery import Process, start_copy, start_fresh

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "example_project"

#: Settings that make a crawl short: failed items come back at once, the log says what happened.
QUICK = {
    "LOG_LEVEL": "INFO",
    "TELNETCONSOLE_ENABLED": "False",
    "REMOTE_CONTROL_ENABLED": "False",
    "LEASE_TTL": "3",
    "LEASE_ITEM_BACKOFF": "0.1,0.5",
    "RETRY_TIMES": "1",
}


def environment(**more: str) -> dict[str, str]:
    """The environment of a child process: this package and the example project can be imported."""
    paths = [str(ROOT), str(EXAMPLE), os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # A spider that is written again within a second, and is as long, would be the old one.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**os.environ, **own, **more}


class Node:
    """One crawling process."""

    def __init__(
        self, name: str, arguments: list[str], folder: Path, start: Callable[..., Process], **variables: str
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self.killed_at: float | None = None
        env = environment(**variables)
        with self.log_path.open("ab") as log:
            self.process = start("scrapy", arguments, cwd=folder, env=env, stdout=log.fileno(), stderr=log.fileno())

    def __repr__(self) -> str:
        return f"<Node {self.name} pid={self.process.pid} exit={self.process.poll()}>"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def stats(self) -> dict[str, Any]:
        """The numbers and words of the last stats dump."""
        found = re.findall(r"'([\w/]+)': ('[^']*'|[-\d.]+)", self.log.rsplit("Dumping Scrapy stats", 1)[-1])
        return {name: value.strip("'") if "'" in value else float(value) for name, value in found}

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> Kill:
        """SIGKILL."""
        self.killed_at = time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return Kill(self.name, self.killed_at)

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the process to end by itself and return its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            tail = self.log[-4000:]
            raise AssertionError(f"{self} did not end within {timeout:g} s; its log ends:\n{tail}") from None

    def wait_for(self, pattern: str, timeout: float = 20.0) -> None:
        """Wait until the log matches."""
        until(lambda: re.search(pattern, self.log), timeout, f"{pattern!r} in the log of {self}:\n{self.log[-3000:]}")

    def end(self) -> None:
        if self.is_running:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


def until(condition: Callable[[], Any], timeout: float = 20.0, what: str = "the condition") -> Any:
    """Wait until *condition* is true and return its value."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.03)
    raise AssertionError(f"waited {timeout:g} s in vain for {what}")


class Fleet:
    """A shop, a database and nodes that share a store.

    :param folder: for logs, the database, spiders.
    :param url: the store's.
    :param products: how many the shop has.
    :param latency: seconds before each of its answers.
    :param fresh: nodes are fresh interpreters, which have imported only what they need.
    """

    def __init__(
        self, folder: Path, url: str, *, products: int = 100, latency: float = 0.0, fresh: bool = False
    ) -> None:
        self.folder = folder
        self._start_node = start_fresh if fresh else start_copy
        self.url = url
        self.products = products
        self.nodes: list[Node] = []
        self.hits_path = folder / "hits.jsonl"
        self._latency = latency
        self._open_shop(port=0)

    def _open_shop(self, port: int) -> None:
        options = {"port": port, "products": self.products, "log": self.hits_path, "latency": self._latency}
        arguments = ["--json", *(f"--{name}={value}" for name, value in options.items())]
        told, stdout = os.pipe()
        self._shop = start_copy("example.shop", arguments, cwd=self.folder, env=environment(), stdout=stdout)
        os.close(stdout)
        with open(told) as lines:
            self.base = json.loads(lines.readline())["url"]

    def _close_shop(self) -> None:
        self._shop.kill()
        self._shop.wait()

    def reopen_shop(self, products: int) -> None:
        """Close the shop and open it at the same address with so many products and an empty log."""
        self._close_shop()
        self.products = products
        self.hits_path = self.hits_path.with_name("hits-again.jsonl")
        self._open_shop(int(self.base.rpartition(":")[2]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes:
            node.end()
        self._close_shop()

    @property
    def expected(self) -> list[str]:
        """The paths of all products."""
        return [f"/product/{number}" for number in range(1, self.products + 1)]

    def crawl(
        self,
        name: str,
        spider: str = "s01_catalog",
        *,
        settings: Mapping[str, Any] = {},
        url: str = "",
        **arguments: Any,
    ) -> Node:
        """Start ``scrapy crawl`` of the example project as node *name*."""
        return self._start(name, ["crawl", spider], settings, url, {"base": self.base, **arguments}, True)

    def run(self, name: str, source: str, *, settings: Mapping[str, Any] = {}, url: str = "", **arguments: Any) -> Node:
        """Start ``scrapy runspider`` of *source*, Python text with one spider, as node *name*."""
        path = self.folder / f"spider_{name}.py"
        path.write_text(textwrap.dedent(source))
        addon = {"ADDONS": '{"scrapy_lease.Addon": 500}'}
        return self._start(name, ["runspider", str(path)], {**addon, **settings}, url, {"base": self.base, **arguments})

    def hits(self, prefix: str = "/") -> list[Hit]:
        """What the shop saw."""
        return [hit for hit in read(self.hits_path) if hit.path.startswith(prefix)]

    def wait_for_hits(self, number: int, prefix: str = "/product/", timeout: float = 30.0) -> list[Hit]:
        """Wait until the shop saw *number* hits under *prefix*."""
        until(lambda: len(self.hits(prefix)) >= number, timeout, f"{number} hits of {prefix}; nodes: {self._tails()}")
        return self.hits(prefix)

    def stored(self) -> list[str]:
        """The paths of the products that the example project's pipeline stored."""
        engine = create_engine(self.database)
        try:
            with engine.connect() as connection:
                urls = connection.execute(text("select url from products")).scalars().all()
        finally:
            engine.dispose()
        return ["/" + url.split("/", 3)[3] for url in urls]

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'shop.db'}"

    def verdict(self, kill: Kill | None = None) -> Verdict:
        """What became of the products, by the shop's log and by the database."""
        return Verdict.of(self.hits("/product/"), self.expected, self.stored(), kill)

    def wait(self, nodes: Iterable[Node] | None = None, timeout: float = 60.0) -> None:
        """Wait until the nodes have ended by themselves, all with exit status 0."""
        for node in self.nodes if nodes is None else nodes:
            status = node.wait(timeout)
            assert status == 0, f"{node} ended with {status}:\n{node.log[-4000:]}"

    def _start(
        self, name: str, verb: list[str], settings: Mapping[str, Any], url: str, arguments: Mapping[str, Any],
        is_example: bool = False,
    ) -> Node:  # fmt: skip
        chosen = {
            **QUICK,
            "LEASE_NODE": name,
            "LEASE_REDIS_URL": url or self.url,
            "SHOP_DATABASE_URL": self.database,
            **settings,
        }
        command = list(verb)
        for key, value in chosen.items():
            command += ["-s", f"{key}={value}"]
        for key, value in arguments.items():
            command += ["-a", f"{key}={value}"]
        variables = {"SCRAPY_SETTINGS_MODULE": "example.settings"} if is_example else {}
        node = Node(name, command, self.folder, self._start_node, **variables)
        self.nodes.append(node)
        return node

    def _tails(self) -> str:
        return "\n".join(f"{node}\n{node.log[-1500:]}" for node in self.nodes)
