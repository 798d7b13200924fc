"""Rate limits of leased proxies: each address has its own, and a request goes through one that has permits left."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from scrapy import Request

from tests.helpers.fleet import until
from tests.helpers.proxied import Bed

pytestmark = pytest.mark.one_server

#: Half of a character that takes two in JSON: json.loads returns it as it is.
HALF = "\ud83d"


def half(request: Request) -> str:
    """A dimension of rates: the page is limited by half a character."""
    return HALF


HALVES = """
class Halves(ShopSpider):
    async def start(self):
        for number in range(4):
            yield self.page(f"/page/{number}", meta={"lease_sticky": chr(0xD83D)} if self.is_sticky == "1" else {})
"""


@pytest.mark.parametrize("is_sticky", [False, True])
def test_keys_that_are_no_whole_text(bed: Callable[..., Bed], is_sticky: bool) -> None:
    """Of a spider or of a dimension's function: the request goes by it as by any other, and keeps up nobody else."""
    b = bed(1)
    limits = {} if is_sticky else {"LEASE_RATE_LIMITS": json.dumps({f"{__name__}.half": "100/second"})}
    node = b.crawl(HALVES, settings=limits, is_sticky=int(is_sticky))
    until(lambda: node.process.poll() is not None, 15, "the end")
    assert len(b.site.hits) == 4
    assert "Traceback" not in node.log


def test_the_address_is_that_of_the_proxy(bed: Callable[..., Bed]) -> None:
    """Four proxies at 5 in 20 seconds and 20 pages: all are sent in one window, none through a proxy that had its 5."""
    b = bed(4)
    time.sleep(max(0.0, 20 - time.time() % 20 if time.time() % 20 > 10 else 0))
    node = b.run(pages=20, settings={"LEASE_RATE_LIMITS": json.dumps({"ip": "5/20 seconds"})})
    hits = b.site.hits
    assert len(hits) == 20
    assert hits[-1].started - hits[0].started < 12
    assert Counter(hit.peer for hit in hits) == dict.fromkeys(b.exits(), 5)
    assert node.stats["lease/rate/granted/ip"] == 20


def test_nobody_waits_in_the_downloader_for_an_address(bed: Callable[..., Bed]) -> None:
    """When all addresses have had theirs the rest is parked, goes back when the node leaves, and no limit is passed."""
    b = bed(2)
    node = b.crawl(pages=20, settings={"LEASE_RATE_LIMITS": json.dumps({"ip": "3/hour"})})
    until(lambda: len(b.site.hits) >= 6, 40, "six pages")
    time.sleep(2)
    node.terminate()
    assert node.wait(10) == 0
    assert Counter(hit.peer for hit in b.site.hits) == dict.fromkeys(b.exits(), 3)
    assert node.stats["lease/rate/granted/ip"] == 6
    assert node.stats["lease/rate/parked/ip"] >= 1
