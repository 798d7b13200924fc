"""A server that comes back without its last writes, as after the crash of a machine: the nodes remember them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.fleet import Fleet, until
from tests.helpers.servers import Server

LONG = os.environ.get("SCRAPY_LEASE_TEST_LONG") == "1"


def journal(server: Server) -> Path:
    """The append-only file that grows."""
    return next(server.directory.glob("appendonlydir/*.incr.aof"))


def restart_at(server: Server, size: int) -> None:
    """Kill the server and start it with what its file held when it was *size* bytes long."""
    server.kill()
    path = journal(server)
    assert path.stat().st_size > size
    os.truncate(path, size)
    server.start()


@pytest.mark.parametrize("seed", range(6 if LONG else 1))
def test_a_second_is_lost(fleet: Callable[..., Fleet], own_server: Server, seed: int) -> None:
    """What was done, leased and found in the lost second stands: nothing lost, nothing fetched twice, no hang."""
    shop = fleet(url=own_server.url, products=140, latency=0.25)
    nodes = [shop.crawl("a", per_page=10), shop.crawl("b", per_page=10)]
    shop.wait_for_hits(20 + 10 * seed)
    size = journal(own_server).stat().st_size
    time.sleep(0.9)
    restart_at(own_server, size)
    shop.wait(timeout=40)
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    for node in nodes:
        assert " ERROR: " not in node.log
        assert node.stats["finish_reason"] == "finished"


@pytest.mark.parametrize("seconds", [0.6, *([1.2, 1.8, 2.4] if LONG else [])])
def test_the_session_itself_is_lost(fleet: Callable[..., Fleet], own_server: Server, seconds: float) -> None:
    """A server that forgot even the session gets everything again from the node: nothing lost, no hang."""
    shop = fleet(url=own_server.url, products=80, latency=0.25)
    until(lambda: journal(own_server).exists())
    size = journal(own_server).stat().st_size
    node = shop.crawl("a", per_page=40)
    shop.wait_for_hits(1)
    time.sleep(seconds)
    restart_at(own_server, size)
    shop.wait(timeout=40)
    assert not shop.verdict().lost
    assert node.stats["lease/session/lost"] == 1
    # To the node that is a store which was emptied.
    assert [line for line in node.log.splitlines() if " ERROR: " in line and "came back empty" not in line] == []


def test_a_holder_that_died_with_the_server(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A node and the server die together, and the server forgets a second: the other node finishes the run."""
    shop = fleet(url=own_server.url, products=240, latency=0.25)
    shop.crawl("a")
    shop.wait_for_hits(1)
    dead = shop.crawl("b")
    until(lambda: any(hit.node == "b" for hit in shop.hits("/product/")))
    size = journal(own_server).stat().st_size
    time.sleep(0.5)
    kill = dead.kill()
    restart_at(own_server, size)
    shop.wait(shop.nodes[:1], timeout=40)
    verdict = shop.verdict(kill)
    assert not verdict.lost
    again = {path for path in verdict.twice if any(h.node == "b" for h in shop.hits(path) if h.path == path)}
    assert verdict.twice == again, "the living node fetched twice what it had fetched itself"


def test_the_end_of_start_is_told_again(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A server that forgot that start() had ended would keep everybody waiting for more; it is told once more."""
    shop = fleet(url=own_server.url, products=20, latency=0.25)
    node = shop.crawl("a")
    shop.wait_for_hits(1)
    data = journal(own_server).read_bytes()
    told = data.index(b":producing", data.index(b"SREM"))
    restart_at(own_server, data.rindex(b"*1\r\n$5\r\nMULTI\r\n", 0, told))
    shop.wait(timeout=25)
    assert not shop.verdict().lost
    assert node.stats["lease/session/lost"] == 0
