"""Download slots: what is handed out goes to the wire at once, limits are exact, a slow host keeps nobody waiting."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from example.hits import max_concurrency
from tests.helpers.fleet import Fleet
from tests.helpers.spiders import crawl, is_long

pytestmark = pytest.mark.one_server

TEMPLATE = {"DOWNLOAD_DELAY": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "RANDOMIZE_DOWNLOAD_DELAY": "False"}
GAPS = """

class Gaps(ShopSpider):
    \"\"\"Logs how long each request takes from the scheduler to the download handler.\"\"\"

    async def start(self):
        self.handed_out = {}
        scheduler = self.crawler.engine._slot.scheduler
        hand_out = scheduler.next_request

        def next_request():
            request = hand_out()
            if request is not None:
                self.handed_out[request.url] = time.monotonic()
            return request

        scheduler.next_request = next_request
        for number in range(1, 31):
            yield self.page(f"/product/{number}")

    def parse(self, response):
        sent = time.monotonic() - response.meta["download_latency"]
        self.logger.info("gap %.3f", sent - self.handed_out[response.url])
"""


def test_with_the_settings_of_the_project_template(fleet: Callable[..., Fleet]) -> None:
    """One request a second: from hand-out to the wire under 2.5 s; SIGTERM ends within 3 s and sends at most 2 more."""
    shop = fleet(products=30)
    node = crawl(shop, "n0", GAPS, settings=TEMPLATE)
    shop.wait_for_hits(5)
    node.terminate()
    told, sent = time.monotonic(), len(shop.hits("/product/"))
    assert node.wait(10) == 0
    assert time.monotonic() - told < 3
    assert len(shop.hits("/product/")) <= sent + 2
    gaps = [float(gap) for gap in re.findall(r"gap ([\d.]+)", node.log)]
    assert len(gaps) >= 4
    assert max(gaps) < 2.5


@pytest.mark.parametrize("per_domain", [2, 5])
def test_a_page_with_many_links(fleet: Callable[..., Fleet], per_domain: int) -> None:
    """N per domain means never more than N at the site, also right after a page with 500 links; all N are used."""
    shop = fleet(products=500, latency=0.01)
    settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": per_domain, "CONCURRENT_REQUESTS": 32, "CLOSESPIDER_ITEMCOUNT": 150}
    node = crawl(shop, "n0", """
        class Links(ShopSpider):
            async def start(self):
                yield self.page("/links/500", callback=self.parse_links)

            def parse_links(self, response):
                yield from response.follow_all(css="a.product")
        """, settings=settings)  # fmt: skip
    shop.wait([node])
    assert max(max_concurrency(shop.hits(), "host").values()) == per_domain


def test_a_slow_host_keeps_nobody_waiting(fleet: Callable[..., Fleet]) -> None:
    """64 slow pages of one host queued before 100 fast ones of another: the fast ones take no longer than alone."""
    shop = fleet(products=200)
    other = shop.base.replace("127.0.0.1", "localhost")
    node = crawl(shop, "n0", """
        class Two(ShopSpider):
            other = ""

            async def start(self):
                for number in range(1, 65):
                    yield self.page(f"/slow/{number}?s=5")
                for number in range(1, 101):
                    yield Request(f"{self.other}/product/{number}")
        """, other=other)  # fmt: skip
    fast = shop.wait_for_hits(100, "/product/")
    slow = shop.hits("/slow/")
    # On a machine with other work only what tells: no slow page has ended, so none was waited for.
    assert fast[-1].started - min(slow[0].started, fast[0].started) < (1.0 if is_long() else 4.0)
    assert len(slow) == 8
    node.end()


def test_download_slots_of_its_own(fleet: Callable[..., Fleet]) -> None:
    """meta["download_slot"] and DOWNLOAD_SLOTS are respected: one at a time where they say so."""
    shop = fleet(products=40, latency=0.02)
    settings = {"DOWNLOAD_SLOTS": '{"one": {"concurrency": 1, "delay": 0}}', "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    node = crawl(shop, "n0", """
        class Slot(ShopSpider):
            async def start(self):
                for number in range(1, 21):
                    yield self.page(f"/product/{number}", meta={"download_slot": "one"})
        """, settings=settings)  # fmt: skip
    shop.wait([node])
    assert max_concurrency(shop.hits(), "host") == {shop.base.removeprefix("http://"): 1}
    assert len(shop.hits("/product/")) == 20
