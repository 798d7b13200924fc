"""Nodes that are killed, at random moments: nothing is lost, and only what was in flight is fetched twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet, Node
from tests.helpers.spiders import crawl, is_long, items_of, paths_of, seeds

READER = """
class Reader(ShopSpider):
    number = "0"

    async def start(self):
        for number in range(1, int(self.number) + 1):
            yield self.page(f"/product/{number}")
            await asyncio.sleep(0.02)
        Path("read-by-" + self.settings["LEASE_NODE"]).touch()
"""
FIRST = """
class First(ShopSpider):
    async def start(self):
        yield self.page("/slow/1?s=1.5", callback=self.parse_first)

    def parse_first(self, response):
        yield self.page("/lists?page=1&per_page=50", callback=self.parse_list)

    def parse_list(self, response):
        yield from response.follow_all(css="a.product")
        yield from response.follow_all(css="a.next", callback=self.parse_list)
"""


def kill_and_judge(shop: Fleet, nodes: list[Node], victim: Node) -> None:
    kill = victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    verdict = shop.verdict(kill)
    assert not verdict.lost
    assert verdict.twice == verdict.excused


@pytest.mark.parametrize("seed", seeds(2))
def test_a_node_is_killed(fleet: Callable[..., Fleet], seed: int) -> None:
    """Three nodes, one SIGKILLed at a random moment: nothing lost, twice only what it had in flight."""
    chance = random.Random(seed)
    shop = fleet(products=400 if is_long() else 150, latency=0.05)
    nodes = [shop.crawl(f"n{number}") for number in range(3)]
    shop.wait_for_hits(chance.randrange(5, shop.products * 4 // 5))
    kill_and_judge(shop, nodes, chance.choice(nodes))


@pytest.mark.parametrize("seed", seeds(1))
def test_a_node_is_killed_with_the_first_page_in_flight(fleet: Callable[..., Fleet], seed: int) -> None:
    """The node that fetches the very first page, which leads to all others, is killed meanwhile: nothing is lost."""
    shop = fleet(products=400 if is_long() else 30, latency=0.02)
    nodes = [crawl(shop, f"n{number}", FIRST) for number in range(3 if is_long() else 2)]
    holder = shop.wait_for_hits(1, "/slow/")[0].node
    victim = next(node for node in nodes if node.name == holder)
    time.sleep(random.Random(seed).uniform(0, 1.3))
    kill = victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    assert paths_of(items_of(shop)) == sorted(shop.expected)
    assert paths_of(shop.hits("/product/")) == sorted(shop.expected)
    first, second = shop.hits("/slow/")
    assert first.ended is None or first.ended >= kill.at
    assert second.node != holder


@pytest.mark.parametrize("seed", seeds(2))
def test_the_reader_of_start_is_killed(fleet: Callable[..., Fleet], seed: int) -> None:
    """The session that reads start() is killed half way: another reads it, nothing is lost."""
    chance = random.Random(seed)
    shop = fleet(products=400 if is_long() else 40, latency=0.02)
    reader = crawl(shop, "n0", READER, number=shop.products)
    reader.wait_for("Spider opened")
    others = [crawl(shop, f"n{number}", READER, number=shop.products) for number in (1, 2)]
    shop.wait_for_hits(chance.randrange(1, shop.products * 3 // 4))
    kill = reader.kill()
    assert not (shop.folder / "read-by-n0").exists()
    shop.wait(others)
    assert set(paths_of(items_of(shop))) == set(shop.expected)
    hits = shop.hits("/product/")
    twice = {path for path in paths_of(hits) if paths_of(hits).count(path) > 1}
    in_flight = {hit.path for hit in hits if hit.node == "n0" and (hit.ended or kill.at) > kill.at - 0.5}
    assert twice <= in_flight


def test_a_page_that_is_in_the_pipeline_is_not_done(fleet: Callable[..., Fleet]) -> None:
    """Killed after the download and before the pipeline stored it: the page is fetched again and stored."""
    shop = fleet(products=1)
    slow = """
    class SlowPipeline:
        async def process_item(self, item):
            await asyncio.sleep(30 if Path("first").exists() else 0)
            return item

    class Stored(ShopSpider):
        custom_settings = {"ITEM_PIPELINES": {SlowPipeline: 50, ItemLog: 100}}

        async def start(self):
            yield self.page("/product/1")
    """
    (shop.folder / "first").touch()
    victim = crawl(shop, "n0", slow)
    shop.wait_for_hits(1)
    time.sleep(0.3)
    victim.kill()
    (shop.folder / "first").unlink()
    shop.wait([crawl(shop, "n1", slow)])
    assert paths_of(items_of(shop)) == ["/product/1"]
    assert len(shop.hits("/product/1")) == 2


def test_a_node_that_ends_deletes_nothing_of_the_others(fleet: Callable[..., Fleet]) -> None:
    """One of two nodes leaves in mid-crawl: the other finishes all; at most what was cut off is fetched twice."""
    shop = fleet(products=120, latency=0.05)
    nodes = [shop.crawl(f"n{number}") for number in range(2)]
    shop.wait_for_hits(20)
    nodes[0].terminate()
    shop.wait()
    verdict = shop.verdict()
    assert not verdict.lost
    assert len(verdict.twice) <= 16
