"""LEASE_ON_STORE_DOWN = "unsafe_local": a crawl goes on while the store is away, and agrees with it afterwards."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from example.hits import ABORTED
from tests.chaos.test_store import TTL, Outage, outage
from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.relay import Relay
from tests.helpers.servers import Server

pytestmark = pytest.mark.one_server

UNSAFE = {"LEASE_ON_STORE_DOWN": "unsafe_local"}
#: So that much is left to be discovered, and little is fetched at a time.
SLOW = {**UNSAFE, "CONCURRENT_REQUESTS": "8", "CONCURRENT_REQUESTS_PER_DOMAIN": "8", "LEASE_WINDOW": "8"}

BEGAN, RECONCILED = "goes on without leases", "knows again what this crawl did without it"


def start(shop: Fleet, *names: str, per_page: int = 10, settings: Mapping[str, str] = {}) -> list[Node]:
    """Nodes that go on when the store is away; each list page leads to a few products and the next list."""
    return [shop.crawl(name, settings={**SLOW, **settings}, per_page=per_page) for name in names]


def start_empty(server: Server) -> None:
    """Another server takes the place of the one that was killed."""
    shutil.rmtree(server.directory / "appendonlydir")
    server.start()


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


def is_complete(shop: Fleet, url: str, settings: Mapping[str, str] = {}) -> None:
    """A second crawl finds everything done: the store knows of all that was fetched without it."""
    before = len(shop.hits("/product/"))
    again = shop.crawl("again", url=url, settings=settings, per_page=10)
    shop.wait([again], timeout=30)
    assert len(shop.hits("/product/")) == before


@pytest.mark.each_server
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


@pytest.mark.slow
@pytest.mark.parametrize("queue", [{"LEASE_QUEUE": "local"}, {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}])
def test_hosts_with_queues_of_their_own_go_on(
    fleet: Callable[..., Fleet], own_server: Server, own_relay: Relay, queue: dict[str, str]
) -> None:
    """What a host comes across meanwhile, or has just asked for, it fetches without a lease, and claims it later."""
    shop = fleet(url=own_relay.url, products=300, latency=0.3)
    # So long does it take that something is asked for when the store goes.
    own_relay.delay = 0.05
    nodes = start(shop, "a", "b", settings=queue)
    shop.wait_for_hits(40)
    with outage(own_server.kill, own_server.start, 6) as away:
        pass
    shop.wait(nodes, timeout=60)
    judge(shop, nodes, away)
    is_complete(shop, own_server.url, queue)


@pytest.mark.each_server
@pytest.mark.slow
def test_the_store_comes_back_empty(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """What the node held, had found and had pushed lately is in the backlog again, and fetched once."""
    shop = fleet(url=own_server.url, products=200, latency=0.3)
    (node,) = start(shop, "a")
    shop.wait_for_hits(40)
    with outage(own_server.kill, lambda: start_empty(own_server), 4):
        pass
    shop.wait([node], timeout=60)
    assert "came back empty" in node.log
    verdict = shop.verdict()
    assert not verdict.lost
    assert sorted(set(shop.stored())) == sorted(shop.expected)
    # The session is gone with the store: what was under way under it counts no more.
    assert len(verdict.twice) <= 8


@pytest.mark.slow
def test_a_node_that_alone_is_cut_off(fleet: Callable[..., Fleet], own_server: Server, own_relay: Relay) -> None:
    """Others take over what it held meanwhile; what it fetched too is known as such, and stored once."""
    shop = fleet(url=own_server.url, products=600, latency=0.3)
    (cut,) = start(shop, "cut", per_page=50, settings={"LEASE_REDIS_URL": own_relay.url})
    # What it found itself it can go on with; what others found it has from the store only.
    until(lambda: len(shop.hits("/lists")) == 12)
    (other,) = start(shop, "other", per_page=50)
    until(lambda: any(hit.node == "other" for hit in shop.hits("/product/")))
    with outage(own_relay.cut, own_relay.restore, 6) as away:
        pass
    shop.wait(timeout=60)
    assert cut.log.count("was lost; this crawl goes on as") == 1
    assert BEGAN not in other.log
    assert fetched_between(shop, away.began + 2, away.began + 5, "cut") > 20
    verdict = shop.verdict()
    assert not verdict.lost
    assert sorted(shop.stored()) == sorted(shop.expected)
    assert cut.log.count(RECONCILED) == 1
    is_complete(shop, own_server.url)


@pytest.mark.slow
@pytest.mark.parametrize("queue", [{}, {"LEASE_QUEUE": "local"}], ids=["redis", "local"])
def test_a_node_leaves_while_it_goes_on(fleet: Callable[..., Fleet], own_server: Server, queue: dict[str, str]) -> None:
    """SIGTERM ends it within 15 s; it says what the store does not know, and the next crawl fetches all the rest."""
    shop = fleet(url=own_server.url, products=200, latency=0.3)
    (node,) = start(shop, "a", settings=queue)
    shop.wait_for_hits(40)
    own_server.kill()
    node.wait_for(BEGAN)
    time.sleep(2)
    node.terminate()
    shop.wait([node], timeout=15)
    assert node.stats["finish_reason"] == "shutdown"
    assert node.log.count("The store was away when this crawl ended, and knows nothing of what it did meanwhile") == 1
    assert "Traceback" not in node.log
    own_server.start()
    (heir,) = start(shop, "heir", settings=queue)
    shop.wait([heir], timeout=60)
    assert not shop.verdict().lost
    assert sorted(set(shop.stored())) == sorted(shop.expected)


@pytest.mark.slow
def test_the_store_is_away_for_too_long(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """LEASE_STORE_DOWN_TIMEOUT holds for a crawl that goes on, too."""
    shop = fleet(url=own_server.url, products=200, latency=0.3)
    (node,) = start(shop, "a", settings={"LEASE_STORE_DOWN_TIMEOUT": "3"})
    shop.wait_for_hits(20)
    own_server.kill()
    shop.wait([node], timeout=15)
    assert BEGAN in node.log
    assert node.stats["finish_reason"] == "lease_store_unavailable"


def test_at_start_it_refuses(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """Nobody begins without the store: what the crawl is to go on with it has not been told yet."""
    own_server.kill()
    shop = fleet(url=own_server.url, products=10)
    (node,) = start(shop, "a")
    assert node.wait(20) == 1
    assert not shop.hits()


def test_a_short_absence_is_waited_for(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A server that is back within half a second was not away: nothing is fetched without a lease."""
    shop = fleet(url=own_server.url, products=100, latency=0.2)
    nodes = start(shop, "a", "b")
    shop.wait_for_hits(20)
    with outage(own_server.kill, own_server.start, 0.3):
        pass
    shop.wait(nodes, timeout=40)
    assert not any(BEGAN in node.log for node in nodes)
    assert not shop.verdict().twice
    assert not shop.verdict().lost


@pytest.mark.slow
def test_a_node_that_was_frozen_knows_better(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A process that wakes after 3 x TTL has heard nothing for long, but the store was not away: it sends nothing.

    What had passed the gate when it froze, and was not at the socket yet, goes out as it wakes, and is cut off at once.
    """
    shop = fleet(url=own_server.url, products=200, latency=0.3)
    # Whoever reads a list first has most of what it leads to: the other comes when the sleeper has enough.
    (sleeper,) = start(shop, "sleeper")
    shop.wait_for_hits(10)
    (other,) = start(shop, "other")
    other.wait_for("joins run")
    sleeper.pause()
    time.sleep(3 * TTL)
    sleeper.resume()
    shop.wait([sleeper, other], timeout=60)
    assert BEGAN not in sleeper.log
    assert not shop.verdict().lost
    for path in shop.verdict().twice:
        first, second = (hit for hit in shop.hits(path) if hit.path == path)
        was_cut_off = second.node == "sleeper" and second.status == ABORTED
        assert was_cut_off or (first.node, second.node) == ("sleeper", "other"), f"{path}: {first}, {second}"
