"""The store goes away, restarts or is emptied while hosts discover for themselves (``LEASE_QUEUE = "local"``)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.chaos.test_store import LONG, judge, outage, speaks_once
from tests.helpers.fleet import Fleet, Node
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, items_of, paths_of, records_of, scope_of
from tests.integration.cli_tool import Tool

pytestmark = pytest.mark.one_server

LOCAL = {"LEASE_QUEUE": "local"}
PRODUCTS = """
class Products(ShopSpider):
    async def start(self):
        for number in range(1, 61):
            yield self.page(f"/product/{number}")
"""


def local(shop: Fleet, name: str, source: str = PRODUCTS, **settings: object) -> Node:
    """Start a local crawl of *source*."""
    return crawl(shop, name, source, settings={**LOCAL, **settings})


@pytest.mark.each_server
@pytest.mark.parametrize("seconds", [0.5, 5, *([60] if LONG else [])])
def test_the_server_is_killed(fleet: Callable[..., Fleet], own_server: Server, seconds: float) -> None:
    """SIGKILL of the store in mid-crawl and back: nothing lost, twice only what was in flight, no hang."""
    shop = fleet(url=own_server.url, products=120, latency=0.2)
    nodes = [shop.crawl(name, settings=LOCAL, per_page=20) for name in ("a", "b")]
    shop.wait_for_hits(30)
    with outage(own_server.kill, own_server.start, seconds) as away:
        pass
    shop.wait(timeout=40)
    judge(shop, away)
    for node in nodes:
        speaks_once(node)
    assert not records_of(own_server.client(), scope_of(job="s01_catalog", namespace="example"))


def test_the_server_is_killed_during_the_first_page(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """Nothing is known yet but the page that is in flight: neither it nor what it leads to is lost."""
    shop = fleet(url=own_server.url, products=30, latency=1)
    node = shop.crawl("a", settings=LOCAL)
    shop.wait_for_hits(1, "/lists")
    with outage(own_server.kill, own_server.start, 1.5) as away:
        pass
    shop.wait(timeout=30)
    judge(shop, away)
    speaks_once(node)


def test_the_server_is_frozen(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """A server that keeps its connections and says nothing is one that is away."""
    shop = fleet(url=own_server.url, products=120, latency=0.2)
    nodes = [shop.crawl(name, settings={**LOCAL, "LEASE_STORE_TIMEOUT": 2}, per_page=20) for name in ("a", "b")]
    shop.wait_for_hits(30)
    with outage(own_server.pause, own_server.resume, 4) as away:
        pass
    shop.wait(timeout=40)
    judge(shop, away)
    for node in nodes:
        speaks_once(node)


@pytest.mark.each_server
def test_the_store_is_emptied(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """FLUSHALL in mid-crawl: the hosts go on, and everything is fetched at least once; what is done may come again."""
    shop = fleet(url=own_server.url, products=60, latency=0.2)
    nodes = [local(shop, name) for name in ("a", "b")]
    shop.wait_for_hits(20)
    own_server.client().flushall()
    shop.wait(nodes, timeout=40)
    assert set(paths_of(items_of(shop))) == set(shop.expected)


@pytest.mark.parametrize("kill", [False, True])
def test_contended_is_not_skipped_in_the_grace_of_a_new_server(
    fleet: Callable[..., Fleet], own_server: Server, kill: bool
) -> None:
    """LEASE_ON_CONTENDED = "skip": what is not granted because the server restarted, or is away, is not dropped."""
    shop = fleet(url=own_server.url, products=60, latency=0.2)
    node = local(shop, "a", LEASE_ON_CONTENDED="skip")
    shop.wait_for_hits(10)
    own_server.restart(kill=kill)
    shop.wait([node], timeout=40)
    assert Counter(paths_of(items_of(shop))) == Counter(shop.expected)


@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_a_paused_job(fleet: Callable[..., Fleet], server: Server, policy: str) -> None:
    """While the job is paused nothing is fetched and nothing is dropped; resumed, all is fetched once."""
    shop = fleet(products=60, latency=0.2)
    tool = Tool(server.url, "scrapybot")
    node = local(shop, "a", LEASE_ON_CONTENDED=policy)
    shop.wait_for_hits(10)
    assert tool("pause", "shop").status == 0
    time.sleep(2)
    before = len(shop.hits("/product/"))
    time.sleep(1.5)
    assert len(shop.hits("/product/")) == before < 60
    assert node.is_running
    assert tool("resume", "shop").status == 0
    shop.wait([node])
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)


def test_a_drained_node(fleet: Callable[..., Fleet], server: Server) -> None:
    """A node that is asked to leave ends what it has under way; the other fetches the rest, each page once."""
    shop = fleet(products=60, latency=0.3)
    tool = Tool(server.url, "scrapybot")
    nodes = [local(shop, name, CONCURRENT_REQUESTS=4) for name in ("a", "b")]
    shop.wait_for_hits(10)
    assert tool("drain", "a").status == 0
    assert nodes[0].wait(10) == 0
    assert nodes[0].stats["finish_reason"] == "lease_drained"
    shop.wait([nodes[1]])
    assert Counter(paths_of(shop.hits("/product/"))) == Counter(shop.expected)
    assert tool("undrain", "a").status == 0


def test_dead_letters_are_retried(fleet: Callable[..., Fleet], server: Server) -> None:
    """``items retry`` while a local node stays: it takes them up, with fresh attempts."""
    shop = fleet(products=3)
    tool = Tool(server.url, "scrapybot")
    (shop.folder / "failing").touch()
    node = local(shop, "a", """
        class Failing(ShopSpider):
            async def start(self):
                for number in range(1, 4):
                    yield self.page(f"/product/{number}")

            def parse(self, response):
                if Path("failing").exists():
                    raise ValueError("for now")
                return super().parse(response)
        """, LEASE_QUEUE_IDLE=6, LEASE_ITEM_ATTEMPTS=1)  # fmt: skip
    shop.wait_for_hits(3)
    time.sleep(0.5)
    (shop.folder / "failing").unlink()
    assert tool("items", "retry", "--all").status == 0
    shop.wait([node])
    assert Counter(paths_of(items_of(shop))) == Counter(shop.expected)
