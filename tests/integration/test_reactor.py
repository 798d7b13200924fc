"""The reactor never waits for the store, however far away that is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet
from tests.helpers.relay import Relay

pytestmark = pytest.mark.one_server

#: A crawl that watches its own main thread: from within by a timer, from a thread by its stack.
SPIDER = """
import asyncio, sys, threading, time
import scrapy

BLOCKING = {"create_connection", "getaddrinfo", "readinto", "recv", "send", "sendall", "read", "write", "do_handshake"}
SYNCHRONOUS = {"connect", "send_packed_command", "read_response", "execute_command"}

class Probed(scrapy.Spider):
    name = "probed"

    async def start(self):
        self.samples, self.blocked, self.late, self.busy = 0, set(), [], []
        self.over = threading.Event()
        threading.Thread(target=self.sample, args=[threading.get_ident()], daemon=True).start()
        self.timer = asyncio.ensure_future(self.tick())
        for number in range(1, 151):
            yield scrapy.Request(f"{self.base}/product/{number}")

    def parse(self, response):
        yield {"url": response.url}

    def sample(self, ident):
        while not self.over.wait(0.003):
            frame = sys._current_frames()[ident]
            self.samples += 1
            name = frame.f_code.co_filename
            if name.endswith(("/socket.py", "/ssl.py")) and frame.f_code.co_name in BLOCKING:
                self.blocked.add(f"{name}:{frame.f_lineno}")
            while frame is not None:
                name = frame.f_code.co_filename
                if "/redis/" in name and "/asyncio/" not in name and frame.f_code.co_name in SYNCHRONOUS:
                    self.blocked.add(f"{name}:{frame.f_lineno}")
                frame = frame.f_back

    async def tick(self):
        while True:
            before, worked = time.monotonic(), time.thread_time()
            await asyncio.sleep(0.01)
            self.late.append(time.monotonic() - before - 0.01)
            self.busy.append(time.thread_time() - worked)

    def closed(self, reason):
        self.over.set()
        self.timer.cancel()
        stats = self.crawler.stats
        stats.set_value("probe/blocked", "; ".join(sorted(self.blocked)) or "never")
        stats.set_value("probe/samples", self.samples)
        stats.set_value("probe/late", sorted(self.late)[len(self.late) // 2])
        stats.set_value("probe/busy", sorted(self.busy)[len(self.busy) * 98 // 100])
"""


def test_a_store_far_away(fleet: Callable[..., Fleet], relay: Relay) -> None:
    """Through round trips of 200 ms a crawl works, makes no blocking call, and keeps its loop free.

    Lateness is judged by its median, and work by the processor's time: a busy machine delays every process.
    """
    shop = fleet(products=150)
    relay.delay = 0.1
    node = shop.run("a", SPIDER, url=relay.url)
    shop.wait(timeout=30)
    paths = [hit.path for hit in shop.hits("/product/")]
    assert sorted(paths) == sorted(shop.expected)
    stats = node.stats
    assert stats["item_scraped_count"] == 150
    assert stats["probe/blocked"] == "never"
    assert stats["probe/samples"] > 100
    assert stats["probe/late"] < 0.02
    assert stats["probe/busy"] < 0.03
    assert stats["lease/session/lost"] == 0
