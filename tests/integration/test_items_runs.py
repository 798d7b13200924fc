"""Runs: what a second crawl fetches again, passes that have a name, and marks that end."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, items_of, paths_of, records_of, scope_of

pytestmark = pytest.mark.one_server

LISTS = """
class Lists(ShopSpider):
    per_page = "5"

    async def start(self):
        yield self.page(f"/lists?page=1&per_page={self.per_page}", callback=self.parse_list)

    def parse_list(self, response):
        yield from response.follow_all(css="a.product")
        yield from response.follow_all(css="a.next", callback=self.parse_list)
"""
ONE = """
class One(ShopSpider):
    async def start(self):
        yield self.page("/product/1")
"""
#: Few done buckets, which take little time to delete.
SMALL = {"LEASE_EXPECTED_ITEMS": 200_000}


@pytest.mark.each_server
def test_a_second_crawl_finds_what_is_new(fleet: Callable[..., Fleet]) -> None:
    """The second crawl walks the lists again, fetches no product that it knows, and finds the new ones."""
    shop = fleet(products=20)
    shop.wait([crawl(shop, "n0", LISTS)])
    shop.reopen_shop(products=23)
    second = crawl(shop, "n1", LISTS)
    shop.wait([second])
    assert paths_of(shop.hits("/product/")) == ["/product/21", "/product/22", "/product/23"]
    assert len(shop.hits("/lists")) == 5
    assert paths_of(items_of(shop)) == sorted(f"/product/{number}" for number in range(1, 24))
    assert second.stats["finish_reason"] == "finished"


def test_a_crawl_in_which_all_was_done(fleet: Callable[..., Fleet]) -> None:
    """Nothing to fetch because all is done: reason lease_all_done, exit status 0, one line says what to do."""
    shop = fleet(products=1)
    shop.wait([crawl(shop, "n0", ONE)])
    second = crawl(shop, "n1", ONE)
    shop.wait([second])
    assert len(shop.hits()) == 1
    assert second.stats["finish_reason"] == "lease_all_done"
    assert second.log.count("LEASE_RUN") == 1


def test_a_named_run_is_a_pass_of_its_own(fleet: Callable[..., Fleet], server: Server) -> None:
    """A named run fetches everything once more; the same name resumes what is left and repeats nothing."""
    shop = fleet(products=20, latency=0.05)
    settings = {"LEASE_RUN": "monday", "CONCURRENT_REQUESTS": 2, **SMALL}
    shop.wait([crawl(shop, "n0", LISTS)])
    first = crawl(shop, "n1", LISTS, settings=settings)
    shop.wait_for_hits(25)
    first.terminate()
    assert first.wait(10) == 0
    assert records_of(server.client(), scope_of("monday"))
    shop.wait([crawl(shop, "n2", LISTS, settings=settings)])
    assert paths_of(items_of(shop)) == sorted(shop.expected * 2)
    assert len(shop.hits("/product/")) == 40
    last = crawl(shop, "n3", LISTS, settings=settings)
    shop.wait([last])
    assert last.stats["finish_reason"] == "lease_all_done"


@pytest.mark.each_server
def test_old_runs_are_deleted(fleet: Callable[..., Fleet], server: Server) -> None:
    """LEASE_RUNS_KEEP: of named runs only the last are kept, no key of the others stays; the unnamed run does."""
    shop = fleet(products=1)
    client = server.client()
    shop.wait([crawl(shop, "unnamed", ONE, settings=SMALL)])
    for name in ("a", "b", "c"):
        settings = {"LEASE_RUN": name, "LEASE_RUNS_KEEP": 2, "LEASE_QUEUE_IDLE": 1, **SMALL}
        shop.wait([crawl(shop, name, ONE, settings=settings)])
    scopes = {key.decode().split(":")[3] for key in client.scan_iter("*:job:*")}
    assert scopes == {"shop", "shop@b", "shop@c"}
    assert client.zrange(scope_of().namespace.runs("shop"), 0, -1) == [b"b", b"c"]
    assert len(shop.hits()) == 4


def test_a_live_run_is_not_deleted(fleet: Callable[..., Fleet], server: Server) -> None:
    """A run in which a session is alive is kept, however many newer ones there are."""
    shop = fleet(products=1)
    keep = {"LEASE_RUNS_KEEP": 1, "LEASE_QUEUE_IDLE": 1, **SMALL}
    standing = crawl(shop, "n0", ONE, settings={**keep, "LEASE_RUN": "old", "LEASE_QUEUE_IDLE": -1})
    shop.wait_for_hits(1)
    shop.wait([crawl(shop, "n1", ONE, settings={**keep, "LEASE_RUN": "new"})])
    assert server.client().exists(scope_of("old").key("meta"))
    assert standing.is_running
    standing.terminate()
    assert standing.wait(10) == 0


@pytest.mark.each_server
def test_marks_that_end(fleet: Callable[..., Fleet], server: Server) -> None:
    """LEASE_DONE_TTL: a product is fetched again once so long has passed since it was done, and not before."""
    shop = fleet(products=1)
    client, settings = server.client(), {"LEASE_DONE_TTL": 3600}
    shop.wait([crawl(shop, "n0", ONE, settings=settings)])
    shop.wait([crawl(shop, "n1", ONE, settings=settings)])
    assert len(shop.hits()) == 1
    (bucket,) = client.scan_iter("*:done:*")
    ((field, done_at),) = client.hgetall(bucket).items()
    client.hset(bucket, field, int(done_at) - 3600)
    shop.wait([crawl(shop, "n2", ONE, settings=settings)])
    assert len(shop.hits()) == 2


def test_a_mark_of_its_own(fleet: Callable[..., Fleet]) -> None:
    """meta["lease_done_ttl"] overrides LEASE_DONE_TTL; fractions of a second count as a second, never as for ever."""
    shop = fleet(products=3)
    source = """
        class Own(ShopSpider):
            async def start(self):
                yield self.page("/product/1", meta={"lease_done_ttl": 0.5})
                yield self.page("/product/2", meta={"lease_done_ttl": 0})
                yield self.page("/product/3")
        """
    settings = {"LEASE_DONE_TTL": 0.5}
    shop.wait([crawl(shop, "n0", source, settings=settings)])
    time.sleep(1.0)
    shop.wait([crawl(shop, "n1", source, settings=settings)])
    assert paths_of(shop.hits("/product/")) == [
        "/product/1", "/product/1", "/product/2", "/product/3", "/product/3"
    ]  # fmt: skip
