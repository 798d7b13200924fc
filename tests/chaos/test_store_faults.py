"""The store stays, but misbehaves: it forgets its scripts, has no memory, drops connections, steps its clock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.servers import Server

SLOW = {"products": 120, "latency": 0.25}


@contextmanager
def every(seconds: float, act: Callable[[], object]) -> Iterator[None]:
    """Do *act* in a thread, again and again, while the body runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(redis.RedisError):
                act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_clean(shop: Fleet) -> None:
    """Nothing lost, nothing fetched twice, and no node alarmed anybody."""
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    for node in shop.nodes:
        assert " ERROR: " not in node.log
        assert node.stats["finish_reason"] == "finished"
        assert node.stats["lease/session/lost"] == 0


def test_the_scripts_are_forgotten(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """SCRIPT FLUSH at any moment costs a reload, nothing else; nobody even hears of it."""
    shop = fleet(url=own_server.url, **SLOW)
    client = own_server.client()
    nodes = [shop.crawl("a"), shop.crawl("b")]
    with every(0.05, client.script_flush):
        shop.wait(timeout=30)
    is_clean(shop)
    for node in nodes:
        assert " went away " not in node.log


def test_connections_are_killed(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """CLIENT KILL between any two calls, twenty times a second for seconds: nothing lost, nothing done twice."""
    shop = fleet(url=own_server.url, **SLOW)
    client = own_server.client()
    for name in ("a", "b"):
        shop.crawl(name)
    shop.wait_for_hits(5)
    with every(0.05, lambda: client.client_kill_filter(_type="normal", skipme=True)):
        time.sleep(4)
    shop.wait(timeout=30)
    is_clean(shop)


def test_the_server_has_no_memory(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """Out of memory for longer than a session lives: sessions live on, what is under way ends, nothing is lost."""
    shop = fleet(url=own_server.url, **SLOW)
    client = own_server.client()
    nodes = [shop.crawl("a"), shop.crawl("b")]
    shop.wait_for_hits(20)
    client.config_set("maxmemory", 1)
    time.sleep(4)
    seen = len(shop.hits("/product/"))
    assert seen < SLOW["products"], "the crawl was over before the memory was"
    time.sleep(1)
    assert len(shop.hits("/product/")) == seen
    client.config_set("maxmemory", 0)
    shop.wait(timeout=30)
    is_clean(shop)
    for node in nodes:
        assert (node.log.count(" went away "), node.log.count(" is back after ")) == (1, 1)
        assert "maxmemory" in node.log


@pytest.mark.parametrize("step", [3700, -3700])
def test_the_clock_is_stepped(fleet: Callable[..., Fleet], make_server: Callable[..., Server], step: int) -> None:
    """An hour forth or back: no second holder, no lease that stays, no session lost; a killed node is taken over."""
    server = make_server("redis", clock=True)
    shop = fleet(url=server.url, **SLOW)
    nodes = [shop.crawl("a"), shop.crawl("b"), shop.crawl("c")]
    shop.wait_for_hits(20)
    server.set_clock(step)
    shop.wait_for_hits(45)
    kill = nodes[2].kill()
    time.sleep(0.5)
    server.set_clock(0)
    shop.wait(nodes[:2], timeout=30)
    verdict = shop.verdict(kill)
    assert not verdict.lost
    assert verdict.twice == verdict.excused
    for node in nodes[:2]:
        assert node.stats["lease/session/lost"] == 0


def test_everything_is_deleted(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """FLUSHALL in mid-crawl: no hang; each node says so once; what is granted later has higher fences than before."""
    shop = fleet(url=own_server.url, **SLOW)
    client = own_server.client()
    nodes = [shop.crawl("a"), shop.crawl("b")]
    shop.wait_for_hits(20)
    fence = int(client.hget("{example:0}:clock", "fence") or 0)
    client.flushall()
    shop.wait(timeout=20)
    fresh = shop.crawl("c")
    shop.wait([fresh], timeout=20)
    assert fence < int(client.hget("{example:0}:clock", "fence") or 0)
    assert not shop.verdict().lost
    for node in nodes:
        assert "Traceback" not in node.log
        assert node.log.count(" came back empty: it was flushed") == 1
    assert " came back empty" not in fresh.log


def log_of(node: Node) -> str:
    """What the add-on logged."""
    return "\n".join(line for line in node.log.splitlines() if "[scrapy_lease" in line)


def test_a_killed_connection_is_no_lost_session(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A connection that breaks once is back in a moment: two lines in the log, no page later than that."""
    shop = fleet(url=own_server.url, products=60, latency=0.25)
    client = own_server.client()
    node = shop.crawl("a")
    shop.wait_for_hits(5)
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: " is back after " in node.log, 3, "the store to be back")
    shop.wait(timeout=20)
    is_clean(shop)
    assert len([line for line in log_of(node).splitlines() if "The store " in line]) == 2
