"""Real crawls whose outcomes are recorded: a local site, a scheduler that tracks, a process for all rows.

`python -m tests.integration.outcome_crawls reactor|reactorless MODULE` crawls each row of MODULE and prints
what was recorded as JSON.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import json
import logging
import os
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_lease.addon import gate_handlers
from scrapy_lease.gate import Gate, GatedHandler, handler_for
from scrapy_lease.leases.session import Session
from scrapy_lease.middlewares.downloader import GuardMiddleware, TrackMiddleware
from scrapy_lease.middlewares.spider import InnerMiddleware, OuterMiddleware
from scrapy_lease.outcomes import Kind, Outcome, Tracker, current_request
from scrapy_lease.outcomes.decisions import Seen
from scrapy_lease.pipelines import guarded

REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
LIMIT = 10.0  # seconds for one crawl


@dataclass
class Record:
    """What was seen of one crawl; requests are named by their path."""

    outcomes: dict[str, list[str]] = field(default_factory=dict)
    traces: dict[str, list[str]] = field(default_factory=dict)
    parents: list[tuple[str, str | None]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    tracked: int = 0
    downloaded: int = 0
    told: int = 0
    in_flight: int = -1
    reason: str = "the crawl did not end"
    loop_errors: list[str] = field(default_factory=list)

    def note(self, *words: object) -> None:
        self.events.append(" ".join(map(str, words)))


class RowSpider(Spider):
    """Crawls `paths`; a row overrides what it is about."""

    name = "row"
    paths: tuple[str, ...] = ("/page",)
    extra: ClassVar[dict[str, Any]] = {}
    hangs = False
    base: str
    record: Record
    tracker: Tracker

    async def start(self) -> AsyncIterator[Any]:
        for path in self.paths:
            yield self.request(path)

    def request(self, path: str, **options: Any) -> Request:
        return Request(path if "://" in path else self.base + path, **options)

    def parse(self, response: Any) -> Any:
        return None

    def current(self) -> str | None:
        """The path of the tracked request of the present context."""
        request = current_request()
        assert request is self.tracker.current()
        return None if request is None else path_of(request)


class Yields(RowSpider):
    def parse(self, response: Any) -> Any:
        yield {"n": 1}
        yield {"n": 2}


@dataclass
class Row:
    spider: type[RowSpider]
    expected: dict[str, list[str]]
    events: list[str] | None


class Rows(dict[str, Row]):
    """The rows of a module, by the name of their spider."""

    def row(
        self, expected: dict[str, list[str]], events: list[str] | None = None
    ) -> Callable[[type[RowSpider]], type[RowSpider]]:
        """Add a spider: what each path must become, hand-out by hand-out, and what it notes on the way."""

        def add(spider: type[RowSpider]) -> type[RowSpider]:
            self[spider.__name__] = Row(spider, expected, events)
            return spider

        return add


def hooks(**methods: Any) -> type:
    """Make a middleware or pipeline class of plain functions."""
    return type("Hooks", (), methods)


def options(**settings: Any) -> dict[str, Any]:
    """The settings of a row; DONE_WHEN is the tracker's."""
    return settings


def raiser(error: type[BaseException]) -> Any:
    """Make a function that raises `error` whatever it is called with."""

    def function(*_: Any, **__: Any) -> Any:
        raise error("on purpose")

    return function


def path_of(request: Request) -> str:
    return urlparse_cached(request).path


class OpenGate:
    """An extension that puts the gate before the download handlers; it lets all pass that is not stale."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> OpenGate:
        tracker = Tracker.of(crawler)
        gate = Gate(Session(node="n", ttl=60, config="", fresh=True, info={}))
        gate.is_alone, gate.is_leased = lambda: True, lambda request: True
        gate.may_send = lambda request: not tracker.is_stale(request)
        gate.on_sent, gate.on_answered = tracker.sent, tracker.answered

        def gated(scheme: str, original: Any) -> type[GatedHandler]:
            class Gated(handler_for(scheme, original)):  # type: ignore[misc]
                @classmethod
                def from_crawler(cls, crawler: Crawler) -> Any:
                    return cls(build_from_crawler(load_object(original), crawler), gate)

            return Gated

        gate_handlers(crawler.settings, gated)
        return cls()


class RecordingScheduler(Scheduler):
    """Scrapy's scheduler that tracks what it hands out, unless meta["untracked"]."""

    tracker: Tracker
    spider: RowSpider

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RecordingScheduler:
        scheduler = super().from_crawler(crawler)
        scheduler.tracker = Tracker.of(crawler)
        return scheduler

    def open(self, spider: Any) -> Any:
        self.spider = spider
        spider.tracker = self.tracker
        self.tracker.on_outcome = self.told
        self.tracker.on_downloaded = self.downloaded
        self.tracker.is_stale = lambda request: bool(getattr(spider, "stale", False))
        self.tracker.done_when = spider.extra.get("DONE_WHEN", "items")
        return super().open(spider)

    def close(self, reason: str) -> Any:
        async def close() -> None:
            await asyncio.sleep(0)
            self.spider.record.in_flight = self.tracker.in_flight
            self.spider.record.reason = reason

        super().close(reason)
        return deferred_from_coro(close())

    def enqueue_request(self, request: Request) -> bool:
        self.spider.record.parents.append((path_of(request), self.spider.current()))
        own = request is self.tracker.current()
        return super().enqueue_request(request.copy() if own else request)

    def next_request(self) -> Request | None:
        request = super().next_request()
        if request is not None and "untracked" not in request.meta:
            self.spider.record.tracked += 1
            self.tracker.track(request)
        return request

    def downloaded(self, request: Request) -> None:
        self.spider.record.downloaded += 1

    def told(self, request: Request, outcome: Outcome) -> None:
        record, path = self.spider.record, path_of(request)
        words = [outcome.kind, outcome.reason, f"+{outcome.items}" if outcome.items else ""]
        if outcome.kind is Kind.CONTINUES:
            assert outcome.next_request is not None
            words.append("itself" if outcome.next_request is request else path_of(outcome.next_request))
        record.told += 1
        record.outcomes.setdefault(path, []).append(" ".join(filter(None, words)))
        record.traces.setdefault(path, []).append(outcome.trace)


class Site:
    """A local site; the path says what it answers."""

    def __init__(self) -> None:
        self.hits: dict[str, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).split(maxsplit=2)
        if len(request) < 2:
            return
        path = request[1].decode()
        self.hits[path] = self.hits.get(path, 0) + 1
        if path == "/reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        else:
            writer.write(self.answer(path))
            await writer.drain()
        writer.close()

    def answer(self, path: str) -> bytes:
        kind, _, rest = path.partition("?")[0].strip("/").partition("/")
        status, headers, body = "200 OK", "Content-Type: text/html", b"<html>hello</html>"
        if kind == "status":
            status = f"{rest} Status"
        elif kind == "flaky" and self.hits[path] == 1:
            status = "500 Once"
        elif kind == "redirect":
            status, headers = "302 Found", f"Location: /{rest or f'redirect?{len(self.hits)}'}"
        elif kind == "gzip":
            headers, body = "Content-Encoding: gzip", b"\x1f\x8b\x08\x00\x00"
        elif kind == "robots.txt":
            headers, body = "Content-Type: text/plain", b"User-agent: *\nDisallow: /private\n"
        head = f"HTTP/1.1 {status}\r\n{headers}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body


def settings(mode: str, row: Row) -> dict[str, Any]:
    extra = dict(row.spider.extra)
    return {
        "SCHEDULER": RecordingScheduler,
        "ITEM_PROCESSOR": guarded("scrapy.pipelines.ItemPipelineManager", None),
        "DOWNLOADER_MIDDLEWARES": {TrackMiddleware: -1000, GuardMiddleware: 950}
        | extra.pop("DOWNLOADER_MIDDLEWARES", {}),
        "SPIDER_MIDDLEWARES": {OuterMiddleware: -1000, InnerMiddleware: 2000} | extra.pop("SPIDER_MIDDLEWARES", {}),
        "TELNETCONSOLE_ENABLED": False,
        "EXTENSIONS": {"scrapy.extensions.remote_control.RemoteControl": None, OpenGate: 0},
        "LOG_ENABLED": False,
        "RETRY_TIMES": 1,
        "TWISTED_REACTOR_ENABLED": mode == "reactor",
        "CONCURRENT_ITEMS": 10,
        **{key: value for key, value in extra.items() if key != "DONE_WHEN"},
    }


async def crawl(mode: str, row: Row) -> Record:
    record, loop = Record(), asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: record.loop_errors.append(str(context)))
    server = await asyncio.start_server(Site().serve, "127.0.0.1", 0)
    runner = AsyncCrawlerRunner(settings(mode, row))
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    task = runner.crawl(row.spider, base=base, record=record)
    ends = [task, loop.create_task(told_all(record))] if row.spider.hangs else [task]
    await asyncio.wait(ends, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    return record


async def told_all(record: Record) -> None:
    """Wait until each tracked request has its outcome, and then for an end of the crawl that does not come."""
    while not 0 < record.tracked == record.told:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)


async def left_behind() -> dict[str, int]:
    """How many objects of the crawls so far are alive, once timers and generators have had time to end."""
    for _ in range(10):
        await asyncio.sleep(0.01)
        gc.collect()
        kinds = Counter(type(each) for each in gc.get_objects())
        left = {kind.__name__: kinds[kind] for kind in (Seen, Tracker, Crawler) if kinds[kind]}
        if not left:
            break
    return left


async def crawl_all(mode: str, module: str) -> None:
    rows: dict[str, Row] = importlib.import_module(module).ROWS
    # The rows that Scrapy never ends come last: their crawlers stay behind in this process.
    ending = {name: vars(await crawl(mode, row)) for name, row in rows.items() if not row.spider.hangs}
    left = await left_behind()
    hanging = {name: vars(await crawl(mode, row)) for name, row in rows.items() if row.spider.hangs}
    print(json.dumps({"left": left, "rows": ending | hanging}), flush=True)
    os._exit(0)


def main(mode: str, module: str) -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    if mode == "reactorless":
        asyncio.run(crawl_all(mode, module))
    from scrapy.utils.reactor import install_reactor

    install_reactor(REACTOR)
    from twisted.internet.task import react

    react(lambda _: deferred_from_coro(crawl_all(mode, module)))


def run(mode: str, module: str, folder: Path) -> tuple[dict[str, Record], dict[str, int]]:
    """Crawl all rows of `module` in a process of their own; also return what they left alive there.

    Whoever shares `folder` shares the crawls: the first crawls, the others wait for what it saw.
    """
    told = folder / f"{mode}-{module}.json"
    with told.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            told.write_text(crawl_apart(mode, module))
    result = json.loads(told.read_text())
    return {name: Record(**record) for name, record in result["rows"].items()}, result["left"]


def crawl_apart(mode: str, module: str) -> str:
    """Return what a process that crawls all rows of `module` prints."""
    command = [sys.executable, "-W", "error", "-m", "tests.integration.outcome_crawls", mode, module]
    root = Path(__file__).parents[2]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
