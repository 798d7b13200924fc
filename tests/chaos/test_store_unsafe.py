"""LEASE_ON_STORE_DOWN = "unsafe_local": a crawl goes on while the store is away, and agrees with it afterwards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.chaos.test_store import Outage, outage
from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

UNSAFE = {"LEASE_ON_STORE_DOWN": "unsafe_local"}
#: So that much is left to be discovered, and little is fetched at a time.
SLOW = {**UNSAFE, "CONCURRENT_REQUESTS": "8", "CONCURRENT_REQUESTS_PER_DOMAIN": "8", "LEASE_WINDOW": "8"}

BEGAN, RECONCILED = "goes on without leases", "knows again what this crawl did without it"


def start(shop: Fleet, *names: str, per_page: int = 10, settings: Mapping[str, str] = {}) -> list[Node]:
    """Nodes that go on when the store is away; each list page leads to a few products and the next list."""
    return [shop.crawl(name, settings={**SLOW, **settings}, per_page=per_page) for name in names]


def fetched_between(shop: Fleet, began: float, ended: float, node: str = "") -> int:
    """How many pages the shop was asked for in that time."""
    return sum(began < hit.started < ended and node in ("", hit.node) for hit in shop.hits())


def judge(shop: Fleet, nodes: list[Node], away: Outage) -> None:
    """Nothing stood still, nothing is lost; twice only what two nodes fetched, once each, while the store was away."""
    seconds = int(away.ended - away.began)
    for second in range(2, seconds - 1):
        at = away.began + second
        assert fetched_between(shop, at, at + 1), f"nothing was fetched in second {second} of the outage"
    verdict = shop.verdict()
    assert not verdict.lost
    assert sorted(set(shop.stored())) == sorted(shop.expected)
    for path in verdict.twice:
        by = Counter(hit.node for hit in shop.hits(path) if hit.path == path)
        assert set(by.values()) == {1}, f"{path} was fetched twice by one node: {by}"
        assert any(away.began < hit.started < away.ended + 4 for hit in shop.hits(path) if hit.path == path)
    for node in nodes:
        assert (node.log.count(BEGAN), node.log.count(RECONCILED)) == (1, 1), node.log
        assert " ERROR: " not in node.log
        assert "Traceback" not in node.log
        assert node.stats["finish_reason"] == "finished"


def is_complete(shop: Fleet, url: str) -> None:
    """A second crawl finds everything done: the store knows of all that was fetched without it."""
    before = len(shop.hits("/product/"))
    again = shop.crawl("again", url=url, per_page=10)
    shop.wait([again], timeout=30)
    assert len(shop.hits("/product/")) == before


@pytest.mark.slow
@pytest.mark.parametrize("way", ["killed", "frozen"])
def test_two_nodes_go_on(fleet: Callable[..., Fleet], own_server: Server, way: str) -> None:
    """The store is away for 6 s: the crawl does not stand still, all is stored, and marked when the store is back."""
    gone, back = {"killed": (own_server.kill, own_server.start), "frozen": (own_server.pause, own_server.resume)}[way]
    shop = fleet(url=own_server.url, products=300, latency=0.3)
    nodes = start(shop, "a", "b")
    shop.wait_for_hits(40)
    with outage(gone, back, 6) as away:
        pass
    shop.wait(nodes, timeout=60)
    judge(shop, nodes, away)
    is_complete(shop, own_server.url)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["killed", "frozen"])
def test_a_single_node_fetches_nothing_twice(fleet: Callable[..., Fleet], own_server: Server, way: str) -> None:
    """Alone at the store anyway, a node fetches each page once: also what was in flight when the store went."""
    gone, back = {"killed": (own_server.kill, own_server.start), "frozen": (own_server.pause, own_server.resume)}[way]
    shop = fleet(url=own_server.url, products=200, latency=0.3)
    nodes = start(shop, "a")
    shop.wait_for_hits(40)
    with outage(gone, back, 5) as away:
        pass
    shop.wait(nodes, timeout=60)
    judge(shop, nodes, away)
    assert not shop.verdict().twice
    is_complete(shop, own_server.url)
