"""LEASE_ROLLOUT in real crawls: a share of the items is leased, the rest each host fetches for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter

from scrapy_lease.meta import digest_of, is_enforced
from tests.helpers.fleet import Fleet

pytestmark = pytest.mark.one_server

SHARE = 0.1


def enforced(shop: Fleet, share: float) -> set[str]:
    """The products whose item is to be leased."""
    fingerprint = RequestFingerprinter().fingerprint
    keys = {path: fingerprint(Request(shop.base + path)).hex() for path in shop.expected}
    return {path for path, key in keys.items() if is_enforced(digest_of(key), share)}


@pytest.mark.parametrize(
    "queue", [{"LEASE_QUEUE": "local"}, {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}], ids=["local", "guard"]
)
def test_a_tenth_is_leased(fleet: Callable[..., Fleet], queue: dict[str, str]) -> None:
    """Of two hosts that walk the same lists, one fetches a leased product, and both fetch every other."""
    shop = fleet(products=300)
    nodes = [shop.crawl(name, settings={**queue, "LEASE_ROLLOUT": str(SHARE)}) for name in ("a", "b")]
    shop.wait(nodes)
    fetched = Counter(hit.path for hit in shop.hits("/product/"))
    leased = enforced(shop, SHARE)
    assert 10 < len(leased) < 60
    assert {path for path, times in fetched.items() if times == 1} == leased
    assert {path for path, times in fetched.items() if times == 2} == set(shop.expected) - leased
    for node in nodes:
        assert {hit.path for hit in shop.hits("/product/") if hit.node == node.name} >= set(shop.expected) - leased
        # The list pages are items too: some of the seven (one of them empty) are in the share.
        shadow = len(shop.expected) - len(leased)
        assert shadow <= node.stats["lease/items/shadow"] <= shadow + 7
        assert node.stats["item_scraped_count"] == sum(hit.node == node.name for hit in shop.hits("/product/"))


def test_nothing_is_leased(fleet: Callable[..., Fleet]) -> None:
    """A share of 0: the crawl is as without leases, and all of it is counted."""
    shop = fleet(products=200)
    node = shop.crawl("a", settings={"LEASE_QUEUE": "local", "LEASE_ROLLOUT": "0", "LEASE_WINDOW": "4"})
    shop.wait()
    assert sorted(hit.path for hit in shop.hits("/product/")) == sorted(shop.expected)
    assert "lease/items/leased" not in node.stats
    assert node.stats["lease/items/shadow"] == node.stats["lease/queue/popped"] > 200


def test_the_shared_backlog_leases_all(fleet: Callable[..., Fleet]) -> None:
    """It cannot leave an item out: it leases all, and says so once."""
    shop = fleet(products=30)
    nodes = [shop.crawl(name, settings={"LEASE_ROLLOUT": str(SHARE)}) for name in ("a", "b")]
    shop.wait()
    assert sorted(hit.path for hit in shop.hits("/product/")) == sorted(shop.expected)
    for node in nodes:
        assert node.log.count("LEASE_ROLLOUT = 0.1: the shared backlog leases every item") == 1
        assert "lease/items/shadow" not in node.stats
