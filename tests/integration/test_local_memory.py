"""``LEASE_QUEUE = "local"``: what many requests, many of them another's, cost a host in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from scrapy_lease.scheduler.ahead import ASIDE
from tests.helpers.fleet import Fleet, until
from tests.helpers.spiders import crawl

pytestmark = pytest.mark.one_server

LONG = os.environ.get("SCRAPY_LEASE_TEST_LONG") == "1"
NUMBER = 200_000 if LONG else 8_000
WINDOW = 32

#: Reads start() to its end, looks around for a while, says what it took and leaves.
MANY = f"""
class Many(ShopSpider):
    custom_settings = {{}}
    most = 0

    async def start(self):
        watch = asyncio.ensure_future(self.watch())
        for number in range({NUMBER}):
            yield self.page(f"/slow/1?s=1&n={{number}}", dont_filter=DONT_FILTER, callback=self.parse_nothing)
        await asyncio.sleep(float(self.seconds))
        watch.cancel()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        name = self.settings["LEASE_NODE"]
        Path(f"{{name}}.part").write_text(__import__("json").dumps({{"rss": pages * 4096, "aside": self.most}}))
        Path(f"{{name}}.part").rename(f"{{name}}.json")
        raise CloseSpider("seen")

    async def watch(self):
        while True:
            ahead = getattr(self.crawler.engine.scheduler, "_ahead", None)
            self.most = max(self.most, len(ahead._aside) if ahead else 0)
            await asyncio.sleep(0.05)

    def parse_nothing(self, response):
        pass
"""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dont_filter", [False, True])
def test_requests_that_others_hold(fleet: Callable[..., Fleet], dont_filter: bool) -> None:
    """Three hosts with the same requests, two of which hold many: 1.5 times bare Scrapy's memory, and few aside."""
    shop = fleet(products=1, fresh=True)
    source = MANY.replace("DONT_FILTER", str(dont_filter))

    def told(name: str, **settings: Any) -> dict[str, int]:
        path = shop.folder / f"{name}.json"
        crawl(shop, name, source, settings=settings, seconds="15" if LONG else "8")
        until(path.exists, 900, f"the figures of {name}: {shop.nodes[-1].log[-3000:]}")
        return dict(json.loads(path.read_text()))

    bare = told("bare", ADDONS="{}")
    local = {"LEASE_QUEUE": "local", "LEASE_TTL": 30}
    for number in range(2):
        crawl(shop, f"holder{number}", source, settings={**local, "LEASE_WINDOW": 1000}, seconds="600")
    until(lambda: len(shop.hits("/slow/")) > 60)
    leased = told("leased", **local, LEASE_WINDOW=WINDOW)
    print(f"{NUMBER} requests, bytes: bare {bare['rss']}, leased {leased['rss']}; {leased['aside']} aside")
    assert leased["rss"] <= 1.5 * bare["rss"]
    assert 0 < leased["aside"] <= ASIDE * WINDOW
