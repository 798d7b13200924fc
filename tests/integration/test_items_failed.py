"""Items that fail: counted, waited for, dead at last with their reason, and never taken for done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from scrapy_lease.meta import digest_of
from scrapy_lease.payload import from_spec
from tests.helpers.fleet import Fleet, until
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl, dead_letters, is_long, items_of, paths_of, push, records_of

pytestmark = pytest.mark.one_server

FAILING = """
class Failing(ShopSpider):
    async def start(self):
        yield self.page("/product/1")
        yield self.page("/product/2", callback=self.parse_{kind})

    def parse_target(self, response):
        yield {{"path": "never"}}

    def parse_callback(self, response):
        yield {{"path": "before"}}
        raise ValueError("no price")

    def parse_pipeline(self, response):
        yield {{"path": 7, "lease": object()}}
"""


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=40)


@pytest.mark.each_server
@pytest.mark.parametrize(
    ("kind", "trace"), [("callback", "ValueError: no price"), ("pipeline", "not JSON serializable")]
)
def test_an_exception_ends_in_the_dead_letters(shop: Fleet, server: Server, kind: str, trace: str) -> None:
    """A callback or pipeline that raises: fetched again, dead after LEASE_ITEM_ATTEMPTS with reason and trace."""
    source = FAILING.format(kind=kind).replace('"lease": object()', '"value": object()')
    node = crawl(shop, "n0", source, settings={"LEASE_ITEM_ATTEMPTS": 2})
    shop.wait([node])
    (letter,) = dead_letters(server.client())
    assert (letter["reason"], letter["attempts"], letter["deaths"]) == (kind, 2, 0)
    assert trace in letter["trace"]
    assert len(shop.hits("/product/2")) == 2
    assert len(shop.hits("/product/1")) == 1


def test_a_page_that_fails_is_not_done(shop: Fleet, server: Server) -> None:
    """A page that fails all retries is dead, not done: fed again, it is fetched again and can succeed."""
    source = """
        class Feeding(ShopSpider):
            async def start(self):
                yield self.page("/product/41")
        """
    settings = {"RETRY_HTTP_CODES": "404", "LEASE_ITEM_ATTEMPTS": 2}
    shop.wait([crawl(shop, "n0", source, settings=settings)])
    (letter,) = dead_letters(server.client())
    assert (letter["reason"], letter["attempts"]) == ("target", 2)
    # Two attempts of two tries each.
    assert len(shop.hits("/product/41")) == 4
    healed = {**settings, "HTTPERROR_ALLOW_ALL": True, "RETRY_HTTP_CODES": "500"}
    shop.wait([crawl(shop, "n1", source, settings=healed)])
    assert paths_of(items_of(shop)) == ["/product/41"]
    assert not dead_letters(server.client())


def test_a_failed_item_waits(shop: Fleet) -> None:
    """LEASE_ITEM_BACKOFF: the waits between the attempts double, within the jitter; the crawl stays for them."""
    node = crawl(shop, "n0", """
        class Waiting(ShopSpider):
            async def start(self):
                yield self.page("/product/1")

            def parse(self, response):
                raise ValueError
        """, settings={"LEASE_ITEM_BACKOFF": "1,60", "LEASE_ITEM_ATTEMPTS": 3})  # fmt: skip
    shop.wait([node])
    first, second, third = (hit.started for hit in shop.hits("/product/1"))
    assert 0.75 <= second - first < 2.5
    assert 1.5 <= third - second < 4.5


@pytest.mark.slow
@pytest.mark.skipif(not is_long(), reason="takes half a minute: set SCRAPY_LEASE_TEST_SEEDS")
def test_a_page_that_kills_its_process(shop: Fleet, server: Server) -> None:
    """LEASE_ITEM_DEATHS: a page that kills whoever parses it is dead after so many; the innocent are all done."""
    # Items that saw two deaths wait by their digest: this one longest.
    deadly = max(range(1, 41), key=lambda number: digest_of(f"item-{number}"))
    source = f"""
        class Deadly(ShopSpider):
            async def start(self):
                for number in range(1, 41):
                    yield self.page(f"/product/{{number}}", meta={{"lease_item": f"item-{{number}}"}})

            def parse(self, response):
                if response.url.endswith("/product/{deadly}"):
                    os._exit(9)
                return super().parse(response)
        """
    settings = {"LEASE_ITEM_DEATHS": 3, "CONCURRENT_REQUESTS": 4, "LEASE_TTL": 2}
    statuses = [crawl(shop, f"n{number}", source, settings=settings).wait(30) for number in range(4)]
    assert statuses == [9, 9, 9, 0]
    assert [(letter["reason"], letter["deaths"]) for letter in dead_letters(server.client())] == [("deaths", 3)]
    assert set(paths_of(items_of(shop))) == set(shop.expected) - {f"/product/{deadly}"}


@pytest.mark.each_server
def test_at_most_once(shop: Fleet, server: Server) -> None:
    """LEASE_ON_HOLDER_DEATH = park: what a killed node may have sent is a doubtful dead letter, the rest is done."""
    source = """
        class Once(ShopSpider):
            async def start(self):
                for number in range(1, 31):
                    yield self.page(f"/slow/{number}?s=0.3")
        """
    settings = {"LEASE_ON_HOLDER_DEATH": "park", "CONCURRENT_REQUESTS": 4, "LEASE_WINDOW": 6}
    victim = crawl(shop, "n0", source, settings=settings)
    shop.wait_for_hits(9, "/slow/")
    victim.kill()
    shop.wait([crawl(shop, "n1", source, settings=settings)])
    assert max(Counter(paths_of(shop.hits("/slow/"))).values()) == 1
    letters = dead_letters(server.client())
    assert 4 <= len(letters) <= 4 + 6 + 4
    assert {letter["reason"] for letter in letters} == {"doubtful"}
    assert len(set(paths_of(items_of(shop)))) + len(letters) >= 30


def test_no_progress(shop: Fleet, server: Server) -> None:
    """LEASE_MAX_HOLD: an item that makes no progress is given up as failed by its holder; the others go on."""
    node = crawl(shop, "n0", """
        class Stuck(ShopSpider):
            async def start(self):
                yield self.page("/product/1", callback=self.parse_stuck)
                for number in range(2, 6):
                    yield self.page(f"/slow/{number}?s=0.5")

            async def parse_stuck(self, response):
                Path("stuck").touch()
                await asyncio.sleep(60)
        """, settings={"LEASE_MAX_HOLD": 2, "LEASE_ITEM_ATTEMPTS": 1})  # fmt: skip
    until((shop.folder / "stuck").exists)
    until(lambda: dead_letters(server.client()), 5, "the dead letter")
    assert dead_letters(server.client())[0]["reason"] == "max_hold"
    until(lambda: len(items_of(shop)) == 4, 10, "the others")
    assert not records_of(server.client())
    node.end()


@pytest.mark.parametrize(("when", "done"), [("items", False), ("response", True)])
def test_when_an_item_is_done(shop: Fleet, server: Server, when: str, done: bool) -> None:
    """LEASE_DONE_WHEN: items: a pipeline's error fails the page; response: the end of the callback is enough."""
    source = FAILING.format(kind="pipeline").replace('"lease": object()', '"value": object()')
    settings = {"LEASE_DONE_WHEN": when, "LEASE_ITEM_ATTEMPTS": 1}
    shop.wait([crawl(shop, "n0", source, settings=settings)])
    assert (not dead_letters(server.client())) is done


def test_an_item_that_is_completed_by_hand(shop: Fleet, server: Server) -> None:
    """LEASE_DONE_WHEN = manual: done is what scrapy_lease.complete(response) was awaited for, the rest has failed."""
    node = crawl(shop, "n0", """
        class Manual(ShopSpider):
            async def start(self):
                for number in range(1, 5):
                    yield self.page(f"/product/{number}")

            async def parse(self, response):
                if response.url.endswith(("1", "2")):
                    await scrapy_lease.complete(response)
                yield {"path": response.url}
        """, settings={"LEASE_DONE_WHEN": "manual", "LEASE_ITEM_ATTEMPTS": 1})  # fmt: skip
    shop.wait([node])
    assert node.stats["lease/items/done"] == 2
    assert [letter["reason"] for letter in dead_letters(server.client())] == ["manual", "manual"]


def test_a_dropped_item_is_a_good_end(shop: Fleet, server: Server) -> None:
    """DropItem in a pipeline: the page is done."""
    node = crawl(shop, "n0", """
        class Drop:
            def process_item(self, item):
                raise DropItem("known")

        class Dropping(ShopSpider):
            custom_settings = {"ITEM_PIPELINES": {Drop: 1}}

            async def start(self):
                yield self.page("/product/1")
        """)  # fmt: skip
    shop.wait([node])
    assert node.stats["lease/items/done"] == 1
    assert not dead_letters(server.client())


def test_a_page_that_is_gone(shop: Fleet, server: Server) -> None:
    """404 is neither done nor a fault: over for this run, no dead letter, asked again in the next run."""
    source = """
        class Gone(ShopSpider):
            async def start(self):
                for _ in range(3):
                    yield self.page("/product/999")
        """
    for node in ("n0", "n1"):
        shop.wait([crawl(shop, node, source)])
    assert len(shop.hits("/product/999")) == 2
    assert not dead_letters(server.client())


def test_a_standing_worker(shop: Fleet, server: Server) -> None:
    """LEASE_QUEUE_IDLE: the node stays so many seconds after the run is drained, is woken by a push, and then ends."""
    source = """
        class Standing(ShopSpider):
            async def start(self):
                yield self.page("/product/1")
        """
    node = crawl(shop, "n0", source, settings={"LEASE_QUEUE_IDLE": 4})
    shop.wait_for_hits(1)
    until(lambda: not records_of(server.client()), 5, "the run to be drained")
    push(server.url, from_spec({"url": shop.base + "/product/2"}))
    pushed_at = shop.wait_for_hits(2, timeout=3)[-1].started
    shop.wait([node])
    assert node.stats["finish_reason"] == "finished"
    assert node.stats["elapsed_time_seconds"] > 4
    assert pushed_at
