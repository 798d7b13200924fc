"""Nodes that freeze or block: frozen ones are taken over from and find out, blocked ones keep what they hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet, until
from tests.helpers.spiders import crawl, is_long, items_of, paths_of

pytestmark = pytest.mark.one_server

TTL = 3.0
#: Seconds of a call that blocks.
BLOCK = "20" if is_long() else str(3 * TTL)
PAGES = """
class Pages(ShopSpider):
    custom_settings = {**ShopSpider.custom_settings, "CONCURRENT_REQUESTS": 4}

    async def start(self):
        for number in range(1, 31):
            yield self.page(f"/slow/{number}?s=0.4")
"""
BLOCKING = """
class Blocking(ShopSpider):
    block = "0"
    custom_settings = {**ShopSpider.custom_settings, "CONCURRENT_REQUESTS": 4}

    async def start(self):
        for number in range(1, 21):
            yield self.page(f"/slow/{number}?s=0.2")

    def parse(self, response):
        if response.url.endswith("/slow/3?s=0.2") and self.settings["LEASE_NODE"] == "n0":
            Path("blocked").touch()
            time.sleep(float(self.block))
        yield super().parse(response)
"""


@pytest.mark.each_server
def test_a_frozen_node_is_taken_over_from(fleet: Callable[..., Fleet]) -> None:
    """SIGSTOP for 3 x TTL: others take over; awake, its stale results reach no pipeline, it reclaims and goes on."""
    shop = fleet(products=40)
    sleeper = crawl(shop, "n0", PAGES)
    shop.wait_for_hits(6, "/slow/")
    sleeper.pause()
    frozen = {hit.path for hit in shop.hits("/slow/") if hit.node == "n0" and hit.ended is None}
    other = crawl(shop, "n1", PAGES)
    paused_at = time.monotonic()
    time.sleep(3 * TTL)
    # The lease clock stands while nobody calls: on a busy machine the other node comes late.
    until(lambda: {hit.path for hit in shop.hits("/slow/") if hit.node == "n1"} & frozen, 30, "the takeover")
    sleeper.resume()
    shop.wait([sleeper, other])
    items = items_of(shop)
    assert {item["path"] for item in items} == {f"/slow/{number}?s=0.4" for number in range(1, 31)}
    taken = {hit.path for hit in shop.hits("/slow/") if hit.node == "n1"} & frozen
    assert taken
    # What had left its pipelines before it froze may not have been reported.
    after = [item for item in items if item["mono"] > paused_at]
    assert not [item for item in after if item["node"] == "n0" and item["path"] in taken]
    assert max(Counter(paths_of(after)).values()) == 1
    assert sleeper.stats["lease/session/lost"] == 1


def test_a_frozen_node_goes_on_alone(fleet: Callable[..., Fleet]) -> None:
    """SIGSTOP for 3 x TTL with nobody else there: while nobody calls, the lease clock stands, and it just goes on."""
    shop = fleet(products=40)
    sleeper = crawl(shop, "n0", PAGES)
    shop.wait_for_hits(6, "/slow/")
    sleeper.pause()
    time.sleep(3 * TTL)
    sleeper.resume()
    shop.wait()
    assert Counter(paths_of(items_of(shop))) == Counter(f"/slow/{number}?s=0.4" for number in range(1, 31))
    assert sleeper.stats["lease/session/lost"] == 0
    assert "lease/items/failed" not in sleeper.stats


def test_a_blocked_reactor_costs_nothing(fleet: Callable[..., Fleet]) -> None:
    """A blocking call of 20 s in a callback loses no session and no item, and nothing is fetched twice."""
    shop = fleet(products=20)
    blocked = crawl(shop, "n0", BLOCKING, block=BLOCK)
    shop.wait_for_hits(2, "/slow/")
    other = crawl(shop, "n1", BLOCKING)
    shop.wait([blocked, other])
    assert blocked.stats["lease/session/lost"] == 0
    assert set(paths_of(items_of(shop))) == {f"/slow/{number}?s=0.2" for number in range(1, 21)}
    assert max(Counter(paths_of(shop.hits("/slow/"))).values()) == 1


def test_without_grace_a_blocked_reactor_loses_its_session(fleet: Callable[..., Fleet]) -> None:
    """LEASE_BLOCK_GRACE = 0: the blocked session is lost, others take over, its stale results reach no pipeline."""
    shop = fleet(products=20)
    blocked = crawl(shop, "n0", BLOCKING, settings={"LEASE_BLOCK_GRACE": 0}, block=BLOCK)
    shop.wait_for_hits(2, "/slow/")
    other = crawl(shop, "n1", BLOCKING)
    shop.wait([blocked, other])
    assert blocked.stats["lease/session/lost"] == 1
    assert blocked.stats["lease/items/stale"] >= 1
    began = (shop.folder / "blocked").stat().st_mtime - time.time() + time.monotonic()
    after = [item for item in items_of(shop) if item["mono"] > began + 1]
    assert max(Counter(paths_of(after)).values()) == 1
    assert set(paths_of(items_of(shop))) == {f"/slow/{number}?s=0.2" for number in range(1, 21)}
    assert [item["node"] for item in items_of(shop) if item["path"].startswith("/slow/3?")] == ["n1"]


def test_what_cannot_be_stored_outlives_a_loss(fleet: Callable[..., Fleet]) -> None:
    """Requests that stay with their node, because they cannot be stored, are fetched after its session was lost too."""
    shop = fleet(products=20)
    source = """
        class Local(ShopSpider):
            custom_settings = {**ShopSpider.custom_settings, "CONCURRENT_REQUESTS": 2}

            async def start(self):
                for number in range(1, 13):
                    yield self.page(f"/slow/{number}?s=0.3", meta={"lock": asyncio.Lock()})
        """
    sleeper = crawl(shop, "n0", source)
    shop.wait_for_hits(3, "/slow/")
    sleeper.pause()
    crawl(shop, "n1", source, settings={"LEASE_QUEUE_IDLE": -1}).wait_for("joins run")
    time.sleep(2 * TTL + 1)
    sleeper.resume()
    shop.wait([sleeper])
    assert sleeper.stats["lease/session/lost"] == 1
    done = [item["path"] for item in items_of(shop) if item["node"] == "n0"]
    assert set(done) == {f"/slow/{number}?s=0.3" for number in range(1, 13)}
