"""Schedulers that the user chose: left as they are, while each item is leased before it is fetched."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.foreign import plain, scrapy_redis, together
from tests.helpers.servers import Server
from tests.helpers.spiders import ALL_ARE_HERE, crawl, items_of, paths_of, records_of, scope_of

pytestmark = pytest.mark.one_server

Run = Callable[..., Node]
LIST = """
    class Listed(ShopSpider):
        async def start(self):
            await self.all_are_here()
            for number in range(1, 41):
                yield self.page(f"/product/{number}")
    """
#: Pages that lead on: two lists of 20 products, the second linked from the first.
LISTS = """
    class Lists(ShopSpider):
        async def start(self):
            await self.all_are_here()
            yield self.page("/lists?page=1&per_page=20", callback=self.parse_list)

        def parse_list(self, response):
            yield {"path": "list"}
            for path in response.css("a::attr(href)").getall():
                callback = self.parse_list if "lists" in path else self.parse
                yield response.follow(path, callback=callback, meta=response.meta)
    """


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=40, latency=0.02)


@pytest.fixture
def run(shop: Fleet) -> Run:
    """Crawls with one node, whose scheduler is in its memory, until it has ended by itself."""
    (shop.folder / ALL_ARE_HERE).touch()

    def run(source: str, name: str = "n0", settings: dict[str, Any] | None = None, **options: Any) -> Node:
        node = crawl(shop, name, source, settings=plain(**(settings or {})), **options)
        shop.wait([node])
        return node

    return run


def fetched(shop: Fleet, prefix: str = "/product/") -> Counter[str]:
    """How often the shop saw each path."""
    return Counter(hit.path for hit in shop.hits(prefix))


@pytest.mark.each_server
def test_two_nodes_with_one_list_fetch_each_product_once(shop: Fleet, server: Server) -> None:
    """Each host has its own scheduler and the same list: the site sees each product once, nobody keeps a lease."""
    nodes = together(shop, 2, LIST, lambda: plain(CONCURRENT_REQUESTS=4))
    shop.wait(nodes)
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)
    assert paths_of(items_of(shop)) == sorted(shop.expected)
    assert sum(node.stats["lease/items/done"] for node in nodes) == 40
    assert not records_of(server.client())
    for node in nodes:
        assert "SCHEDULER = 'tests.helpers.foreign.PlainScheduler' stays as it is" in node.log


def test_start_urls_count_once(shop: Fleet) -> None:
    """start_urls, which Scrapy requests with dont_filter, are fetched once over all hosts; the same one twice twice."""
    source = """
        class Urls(ShopSpider):
            async def start(self):
                await self.all_are_here()
                self.start_urls = [f"{self.base}/product/{number}" for number in (*range(1, 9), 1)]
                async for request in super().start():
                    yield request
        """
    shop.wait(together(shop, 2, source, plain))
    assert fetched(shop) == {f"/product/{number}": 2 if number == 1 else 1 for number in range(1, 9)}


def test_a_page_that_leads_on_is_fetched_by_each_host(shop: Fleet) -> None:
    """Lists are walked by each host, so that each discovers; what they yield counts once; products are fetched once."""
    nodes = together(shop, 2, LISTS, lambda: plain(CONCURRENT_REQUESTS=4))
    shop.wait(nodes)
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)
    assert {(hit.path, hit.node) for hit in shop.hits("/lists")} == {
        (f"/lists?page={page}&per_page=20", node.name) for page in (1, 2) for node in nodes
    }
    assert len(shop.hits("/lists")) == 4
    assert paths_of(items_of(shop)) == [*sorted(shop.expected), "list", "list"]


def test_a_second_crawl_fetches_what_is_new(shop: Fleet, run: Run) -> None:
    """What is done stays done over crawls; a crawl in which everything was done says so."""
    run(LIST)
    assert run(LIST, "n1").stats["finish_reason"] == "lease_all_done"
    run(LISTS, "n2")
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)


@pytest.mark.parametrize("kind", ["plain", "scrapy-redis"])
def test_the_scheduler_is_left_alone(shop: Fleet, server: Server, kind: str) -> None:
    """The engine works with the very scheduler that was chosen; it is asked for each request and closed as ever."""
    settings = plain() if kind == "plain" else scrapy_redis(server.url)
    node = crawl(shop, "n0", """
        class Asking(ShopSpider):
            async def start(self):
                scheduler = self.crawler.engine.scheduler
                self.logger.info("It is %s", type(scheduler).__name__)
                yield self.page("/product/1")
                yield self.page("/product/1")

            def closed(self, reason):
                ours = {"enqueue_request", "next_request"}
                self.logger.info("Left: %s", ours & set(vars(self.crawler.engine.scheduler)))
        """, settings=settings)  # fmt: skip
    shop.wait([node])
    assert f"It is {'PlainScheduler' if kind == 'plain' else 'Scheduler'}" in node.log
    assert "Left: set()" in node.log
    queue = "memory" if kind == "plain" else "redis"
    assert node.stats[f"scheduler/enqueued/{queue}"] == node.stats[f"scheduler/dequeued/{queue}"] == 1
    assert fetched(shop) == {"/product/1": 1}


def test_what_is_no_item_is_fetched_each_time(shop: Fleet, run: Run) -> None:
    """dont_filter without a key is no item: every such request is fetched; a redirect of it too, by this node."""
    node = run("""
        class Loose(ShopSpider):
            async def start(self):
                yield self.page("/product/1", callback=self.parse_first)

            def parse_first(self, response):
                for path in ("/product/2", "/product/2", "/go/3", "/flaky/4"):
                    yield self.page(path, dont_filter=True)
        """)
    assert paths_of(items_of(shop)) == ["/flaky/4", "/product/2", "/product/2", "/product/3"]
    assert node.stats["lease/items/leased"] == 1


def test_what_is_contended_holds_nobody_up(shop: Fleet) -> None:
    """Requests whose items another host holds wait outside of the downloader: those behind them are fetched at once."""
    source = """
        class Behind(ShopSpider):
            async def start(self):
                for number in range(1, 9):
                    yield self.page(f"/slow/{number}?s=30")
                for number in range(1, int(self.products) + 1):
                    yield self.page(f"/product/{number}")
        """
    holder = crawl(shop, "n0", source, settings=plain(CONCURRENT_REQUESTS=8), products=0)
    shop.wait_for_hits(8, "/slow/")
    other = crawl(shop, "n1", source, settings=plain(CONCURRENT_REQUESTS=2), products=40)
    shop.wait_for_hits(40)
    assert len(shop.hits("/slow/")) == 8
    assert other.is_running
    holder.kill()
    hits = shop.wait_for_hits(10, "/slow/")
    assert Counter(hit.node for hit in hits) == {"n0": 8, "n1": 2}


def test_spiders_of_scrapy_redis_are_fed(shop: Fleet, server: Server) -> None:
    """Two nodes of scrapy_redis.spiders.RedisSpider: what is pushed to their list is fetched, what it leads to once."""
    source = """
        from scrapy_redis.spiders import RedisSpider

        class Fed(RedisSpider, ShopSpider):
            redis_key = "fed"
            max_idle_time = 4

            def parse(self, response):
                if "links" not in response.url:
                    yield ShopSpider.parse(self, response)
                for path in response.css("a::attr(href)").getall():
                    yield response.follow(path)
        """
    server.client().rpush("fed", *(f"{shop.base}/links/{number}" for number in (10, 20, 30, 40)))
    shop.wait([crawl(shop, name, source, settings=scrapy_redis(server.url)) for name in ("n0", "n1")])
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)
    assert len(shop.hits("/links/")) == 4


def test_jobdir_resumes(shop: Fleet, server: Server) -> None:
    """Stopped and resumed with JOBDIR: what was not fetched comes from the scheduler or the store, nothing twice."""
    settings = plain(JOBDIR=str(shop.folder / "job"), CONCURRENT_REQUESTS=4, DOWNLOAD_DELAY=0.05)
    (shop.folder / ALL_ARE_HERE).touch()
    first = crawl(shop, "n0", LIST, settings=settings)
    shop.wait_for_hits(8)
    first.terminate()
    shop.wait([first])
    assert len(items_of(shop)) < 40
    shop.wait([crawl(shop, "n1", LIST, settings=settings)])
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)
    assert paths_of(items_of(shop)) == sorted(shop.expected)
    assert not records_of(server.client())


def test_what_was_parked_goes_back_to_the_scheduler(shop: Fleet) -> None:
    """A node that leaves gives what others hold back to its scheduler, as the items that they were."""
    source = """
        class Slow(ShopSpider):
            async def start(self):
                for number in range(1, 5):
                    yield self.page(f"/slow/{number}?s=30")
        """
    holder = crawl(shop, "n0", source, settings=plain())
    shop.wait_for_hits(4, "/slow/")
    settings = plain(JOBDIR=str(shop.folder / "job"))
    waiting = crawl(shop, "n1", source, settings=settings)
    waiting.wait_for("Crawled 0 pages")
    time.sleep(1)
    waiting.terminate()
    shop.wait([waiting])
    assert waiting.stats["lease/items/contended"] == 4
    heir = crawl(shop, "n2", "class Empty(ShopSpider):\n    start_urls = []\n", settings=settings)
    heir.wait_for("Resuming crawl \\(4 requests scheduled\\)")
    time.sleep(1)
    assert len(shop.hits("/slow/")) == 4
    holder.kill()
    shop.wait_for_hits(8, "/slow/")
    heir.terminate()
    assert Counter(hit.node for hit in shop.hits("/slow/")) == {"n0": 4, "n2": 4}


def test_a_paused_job_takes_nothing_out_of_the_scheduler(shop: Fleet, server: Server) -> None:
    """While the job is paused nothing is fetched, and no more is taken out than the downloader has places."""
    control, pause = scope_of().namespace.control, "pause:shop"
    server.client().hset(control, pause, "1")
    (shop.folder / ALL_ARE_HERE).touch()
    node = crawl(shop, "n0", LIST, settings=scrapy_redis(server.url, CONCURRENT_REQUESTS=4))
    queue = "shop:requests"
    until(lambda: server.client().zcard(queue) == 36, 20, "36 of 40 requests in the queue")
    time.sleep(1)
    assert server.client().zcard(queue) == 36
    assert not shop.hits()
    server.client().hdel(control, pause)
    shop.wait([node])
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)


def test_a_node_is_drained(shop: Fleet, server: Server) -> None:
    """Asked to leave, a node ends what it has under way and gives back the rest, which another one fetches."""
    (shop.folder / ALL_ARE_HERE).touch()
    settings = scrapy_redis(server.url, CONCURRENT_REQUESTS=4, DOWNLOAD_DELAY=0.1)
    node = crawl(shop, "n0", LIST, settings=settings)
    shop.wait_for_hits(8)
    server.client().hset(scope_of().namespace.control, "drain:n0", "1")
    shop.wait([node])
    assert node.stats["finish_reason"] == "lease_drained"
    assert len(shop.hits()) < 40
    shop.wait([crawl(shop, "n1", LIST, settings=scrapy_redis(server.url))])
    assert fetched(shop) == dict.fromkeys(shop.expected, 1)


def test_without_a_reactor(shop: Fleet, run: Run) -> None:
    """Scrapy's reactorless mode works alike: pages that lead on, redirects, retries."""
    node = run("""
        class Linked(ShopSpider):
            async def start(self):
                yield self.page("/links/8", callback=self.parse_links)

            def parse_links(self, response):
                for path in (*response.css("a::attr(href)").getall(), "/go/9", "/flaky/10"):
                    yield response.follow(path)
        """, settings={"TWISTED_REACTOR_ENABLED": "False"})  # fmt: skip
    assert node.stats["lease/items/done"] == 11
    assert node.stats["scheduler/dequeued/memory"] == 11
    assert fetched(shop) == dict.fromkeys(shop.expected[:9], 1)


def test_a_scheduler_that_cannot_be_guarded_refuses(shop: Fleet) -> None:
    """One ERROR of ours that says everything, exit status 1, nothing is fetched."""
    node = crawl(shop, "n0", """
        from scrapy.core.scheduler import Scheduler

        class Stiff(Scheduler):
            def __setattr__(self, name, value):
                if name == "next_request":
                    raise AttributeError(name)
                super().__setattr__(name, value)

        class Refused(ShopSpider):
            custom_settings = {**ShopSpider.custom_settings, "SCHEDULER": Stiff}
            start_urls = ["http://127.0.0.1:9/"]
        """)  # fmt: skip
    assert node.wait(30) == 1
    assert "[scrapy_lease.guard.hooks] ERROR: SCHEDULER: Stiff cannot be guarded" in node.log
