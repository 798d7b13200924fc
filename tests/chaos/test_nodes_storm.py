"""Many faults at random moments in one crawl: nodes are killed, frozen, told to leave and replaced."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet, Node
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, dead_letters, items_of, paths_of, records_of, seeds

PRODUCTS = 240
LISTS = """
class Lists(ShopSpider):
    custom_settings = {**ShopSpider.custom_settings, "CONCURRENT_REQUESTS": 4, "LEASE_ITEM_DEATHS": 50}

    async def start(self):
        for page in range(1, 13):
            yield self.page(f"/lists?page={page}&per_page=20", callback=self.parse_list, dont_filter=page % 2)
            await asyncio.sleep(0.2)

    def parse_list(self, response):
        yield from response.follow_all(css="a.product")
"""


class Storm:
    """Nodes to which something happens; each that was killed or left is replaced."""

    def __init__(self, shop: Fleet, chance: random.Random) -> None:
        self.shop = shop
        self.chance = chance
        self.frozen: list[Node] = []
        self.gone: list[Node] = []
        self.started = 0
        self.awake: list[Node] = []
        for _ in range(3):
            self.start()

    def start(self) -> None:
        self.awake.append(crawl(self.shop, f"n{self.started}", LISTS))
        self.started += 1

    def strike(self) -> None:
        """Something happens to one node."""
        what = self.chance.choice((self.kill, self.freeze, self.wake, self.leave))
        what()

    def kill(self) -> None:
        node = self.take()
        node.kill()
        self.start()

    def freeze(self) -> None:
        if not self.frozen:
            self.frozen.append(self.take())
            self.frozen[-1].pause()

    def wake(self) -> None:
        while self.frozen:
            self.frozen[-1].resume()
            self.awake.append(self.frozen.pop())

    def leave(self) -> None:
        node = self.take()
        node.terminate()
        self.gone.append(node)
        self.start()

    def take(self) -> Node:
        return self.awake.pop(self.chance.randrange(len(self.awake)))


@pytest.mark.parametrize("seed", seeds(1))
def test_a_storm(fleet: Callable[..., Fleet], server: Server, seed: int) -> None:
    """Whatever happens to nodes: nothing is lost, nothing dead, nothing left over, and all that live end by themselves.

    A page is fetched again only where a node died, froze or was cut off: what each of them held is the bound.
    """
    shop = fleet(products=PRODUCTS, latency=0.08)
    storm = Storm(shop, random.Random(seed))
    shop.wait_for_hits(10)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        time.sleep(storm.chance.uniform(0.2, 1.2))
        storm.strike()
    storm.wake()
    shop.wait(storm.awake)
    # A process that is told to leave before it has begun just ends.
    assert {node.wait() for node in storm.gone} <= {0, -signal.SIGTERM}
    assert set(paths_of(items_of(shop))) == set(shop.expected)
    assert not records_of(server.client())
    assert not dead_letters(server.client())
    again = Counter(paths_of(shop.hits("/product/")))
    assert again.total() - PRODUCTS <= 8 * storm.started
