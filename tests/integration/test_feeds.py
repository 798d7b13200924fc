"""Spiders that read a feed: each entry is requested once, as scrapy-redis would, and nothing is left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.feeds import FED, FEED, crawl_feed, feed, left_behind, urls
from tests.helpers.fleet import Fleet, until
from tests.helpers.servers import Server
from tests.helpers.spiders import items_of, paths_of

pytestmark = pytest.mark.one_server

KINDS = {"list": {}, "set": {"REDIS_START_URLS_AS_SET": "True"}, "zset": {"REDIS_START_URLS_AS_ZSET": "True"}}


def fetched(shop: Fleet, prefix: str = "/product/") -> Counter[str]:
    """How often each page was fetched."""
    return Counter(paths_of(shop.hits(prefix)))


@pytest.mark.each_server
@pytest.mark.parametrize("kind", KINDS)
def test_a_feed_of_urls(fleet: Callable[..., Fleet], server: Server, kind: str) -> None:
    """500 URLs in a list, set or sorted set: each is fetched once, and no key is left on the feed's server."""
    shop, client = fleet(products=500), server.client()
    feed(client, kind, *urls(shop))
    shop.wait([crawl_feed(shop, "n0", settings=KINDS[kind])])
    assert fetched(shop) == Counter(shop.expected)
    assert Counter(paths_of(items_of(shop))) == Counter(shop.expected)
    assert left_behind(client) == []


@pytest.mark.each_server
@pytest.mark.parametrize("mode", ["one", "each"])
def test_two_nodes_and_a_feed(fleet: Callable[..., Fleet], server: Server, mode: str) -> None:
    """Whoever reads, both nodes fetch what is fed, each page once; both end when there was no work for a while."""
    # Slow enough that one node cannot fetch all that it reads.
    shop, client = fleet(products=200, latency=0.15), server.client()
    nodes = [crawl_feed(shop, f"n{node}", idle=5, settings={"LEASE_START": mode}) for node in range(2)]
    for node in nodes:
        node.wait_for("Spider opened")
    feed(client, "list", *urls(shop))
    shop.wait(nodes)
    assert fetched(shop) == Counter(shop.expected)
    assert {hit.node for hit in shop.hits()} == {"n0", "n1"}
    assert left_behind(client) == []


def test_json_entries(fleet: Callable[..., Fleet], server: Server) -> None:
    """Of an object url, method and meta are the request's, the rest is form data; the spider sees no key of ours."""
    shop, client = fleet(products=500), server.client()
    objects = [
        {"url": url, "meta": {"my_number": number, "my_tags": ["a", {"b": None}]}, "page": str(number), "q": ["x", "y"]}
        for number, url in enumerate(urls(shop))
    ]
    feed(client, "list", *map(json.dumps, objects))
    shop.wait([crawl_feed(shop, "n0")])
    given = {item["path"]: item for item in items_of(shop)}
    assert len(given) == len(items_of(shop)) == 500
    for number, path in enumerate(shop.expected):
        item = given[f"{path}?page={number}&q=x&q=y"]
        assert item["given"] == {"my_number": number, "my_tags": ["a", {"b": None}]}
        assert {key for key in item["meta"] if not key.startswith(("my", "download"))} <= {
            "depth", "is_start_request", "lease", "proxy",
        }  # fmt: skip


def test_posts(fleet: Callable[..., Fleet], server: Server) -> None:
    """A POST sends the form data: the shop logs in each user, and shows the page only who sent the right form."""
    shop, client = fleet(products=1), server.client()
    forms = [
        {"url": f"{shop.base}/login", "method": "post", "user": f"user {number}", "password": "secret",
         "meta": {"dont_redirect": True, "handle_httpstatus_list": [302], "my_user": number}}
        for number in range(60)
    ]  # fmt: skip
    feed(client, "list", *map(json.dumps, forms))
    shop.wait([crawl_feed(shop, "n0")])
    assert [hit.status for hit in shop.hits("/login")] == [302] * 60
    items = items_of(shop)
    assert {item["method"] for item in items} == {"POST"}
    assert sorted(item["given"]["my_user"] for item in items) == list(range(60))


def test_the_same_url_fed_twice_is_fetched_twice(fleet: Callable[..., Fleet], server: Server) -> None:
    """Entries are what counts, not URLs: in one batch, in another, and after the first was fetched."""
    shop, client = fleet(products=1), server.client()
    (url,) = urls(shop)
    feed(client, "list", url, url)
    node = crawl_feed(shop, "n0")
    shop.wait_for_hits(2)
    feed(client, "list", url)
    shop.wait([node])
    assert fetched(shop) == {"/product/1": 3}


SEVERAL = """
class Several(scrapy_lease.RedisSpider):
    name = "shop"
    custom_settings = {"ITEM_PIPELINES": {ItemLog: 100}}

    def make_request_from_data(self, data):
        words = data.decode().split()
        if words[0] == "none":
            return None
        if words[0] == "raise":
            raise ValueError("on purpose, of http://user:secret@host/")
        if words[0] == "item":
            return [{"no": "request"}]
        if words[0] == "lambda":
            return Request(self.base + "/product/9", callback=lambda response: None, dont_filter=True)
        return [Request(self.base + path, dont_filter=words[0] == "all") for path in words[1:]]

    def parse(self, response):
        return {"path": response.url.removeprefix(self.base)}
"""


def test_what_the_spider_makes_of_an_entry(fleet: Callable[..., Fleet], server: Server) -> None:
    """Several requests, or none; without dont_filter a page is fetched once; what fails is put aside."""
    shop, client = fleet(products=9), server.client()
    wrong = ["raise", "item", "lambda"]
    good = ["none", "all /product/1 /product/2", "all /product/1", "once /product/3", "once /product/3 /product/4"]
    feed(client, "list", *wrong, *good)
    node = crawl_feed(shop, "n0", SEVERAL, settings={"LOG_LEVEL": "INFO"})
    shop.wait([node])
    assert fetched(shop) == {"/product/1": 2, "/product/2": 1, "/product/3": 1, "/product/4": 1}
    failed = f"{{{FEED}}}:lease:failed"
    assert left_behind(client) == [failed.encode()]
    assert sorted(client.lrange(failed, 0, -1)) == sorted(word.encode() for word in wrong)
    assert node.log.count("is put aside in the list") == 3
    for reason in ("ValueError: on purpose", "is no Request", "callback"):
        assert reason in node.log
    assert "secret" not in node.log


def test_entries_that_make_no_request(fleet: Callable[..., Fleet], server: Server) -> None:
    """Bytes that are no text, no URL, or JSON without one are put aside; the crawl goes on."""
    shop, client = fleet(products=1), server.client()
    wrong = [b"\xff\xfe", b"no url", b"[1, 2]", b'{"meta": {}}', b'{"url": ""}', b"17", b'{"url": 5}', b""]
    client.rpush(FEED, *wrong)
    feed(client, "list", *urls(shop))
    node = crawl_feed(shop, "n0")
    shop.wait([node])
    assert fetched(shop) == {"/product/1": 1}
    assert sorted(client.lrange(f"{{{FEED}}}:lease:failed", 0, -1)) == sorted(wrong)
    assert "Traceback" not in node.log


RULES = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule

class Rules(scrapy_lease.RedisCrawlSpider):
    name = "shop"
    redis_key = "fed %(name)s"
    custom_settings = {"ITEM_PIPELINES": {ItemLog: 100}}
    rules = [Rule(LinkExtractor(allow="/product/"), callback="parse_product"), Rule(LinkExtractor(allow="/lists"))]

    def parse_product(self, response):
        return {"path": response.url.removeprefix(self.base)}
"""


def test_a_crawl_spider(fleet: Callable[..., Fleet], server: Server) -> None:
    """The rules of a RedisCrawlSpider apply to what is fed; its redis_key may name the spider."""
    shop, client = fleet(products=30), server.client()
    feed(client, "list", f"{shop.base}/lists?page=1&per_page=10", key="fed shop")
    shop.wait([crawl_feed(shop, "n0", RULES)])
    assert paths_of(items_of(shop)) == sorted(shop.expected)


def test_the_example_spider(fleet: Callable[..., Fleet], server: Server) -> None:
    """s04_redis_list fetches what is pushed into its list, as a URL or as JSON, and stores the products."""
    shop, client = fleet(products=6), server.client()
    first, *others = urls(shop)
    feed(client, "list", first, *(json.dumps({"url": url}) for url in others), key="s04_redis_list:start_urls")
    shop.wait([shop.crawl("n0", "s04_redis_list", max_idle_time=2)])
    verdict = shop.verdict()
    assert not verdict.lost | verdict.twice
    assert sorted(shop.stored()) == sorted(shop.expected)


def test_start_urls_count_once(fleet: Callable[..., Fleet], server: Server) -> None:
    """start_urls are fetched once over all nodes, then the feed is read."""
    shop, client = fleet(products=3), server.client()
    source = (
        FED
        + """
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [self.base + "/product/1", self.base + "/product/2"]
"""
    )
    feed(client, "list", shop.base + "/product/3")
    shop.wait([crawl_feed(shop, f"n{node}", source, settings={"LEASE_START": "each"}) for node in range(2)])
    assert fetched(shop) == Counter(shop.expected)


OLD = """
class Old(ShopSpider):
    start_urls = ["http://127.0.0.1:1/never"]

    def start_requests(self):
        yield self.page("/product/1")
"""


@pytest.mark.parametrize("base", ["ShopSpider", "scrapy_lease.RedisSpider"])
def test_a_spider_with_start_requests_is_warned_of(fleet: Callable[..., Fleet], base: str) -> None:
    """Scrapy calls start_requests() no more: one warning names spider, class and cure; the crawl does what it can."""
    shop = fleet(products=1)
    source = OLD.replace("ShopSpider", base) + "\n    name = 'shop'\n    start_urls = []\n"
    node = crawl_feed(shop, "n0", source, idle=1)
    shop.wait([node])
    warned = [line for line in node.log.splitlines() if "start_requests" in line]
    assert len(warned) == 1
    assert "WARNING: spider 'shop' defines start_requests() in spider_n0.Old" in warned[0]
    assert not shop.hits()


def test_entries_stay_in_the_feed_while_enough_is_pending(fleet: Callable[..., Fleet], server: Server) -> None:
    """LEASE_START_AHEAD holds for feeds: what is not needed yet stays where its owner can see and change it."""
    shop, client = fleet(products=1), server.client()
    feed(client, "list", *(f"{shop.base}/slow/1?s=9&n={number}" for number in range(1000)))
    settings = {"LEASE_START_AHEAD": 20, "CONCURRENT_REQUESTS": 4}
    node = crawl_feed(shop, "n0", idle=None, settings=settings)
    shop.wait_for_hits(2, "/slow/")
    with pytest.raises(AssertionError, match="in vain"):
        until(lambda: client.llen(FEED) < 600, 2)
    node.terminate()
    assert node.wait(15) == 0
    assert not [key for key in left_behind(client) if b"taken" in key]


def test_a_standing_worker_waits_for_what_comes(fleet: Callable[..., Fleet], server: Server) -> None:
    """Without max_idle_time the crawl stays; SIGTERM ends it, and what it had not begun is in the feed again."""
    shop, client = fleet(products=3), server.client()
    node = crawl_feed(shop, "n0", idle=None)
    node.wait_for("Spider opened")
    for number in (1, 2):
        feed(client, "list", f"{shop.base}/product/{number}")
        shop.wait_for_hits(number)
    assert node.is_running
    node.terminate()
    assert node.wait(10) == 0
    assert left_behind(client) == []
    assert node.stats["finish_reason"] == "shutdown"


def test_a_named_run_reads_its_feed_again(fleet: Callable[..., Fleet], server: Server) -> None:
    """Resumed by its name a run reads what was fed since: a feed was idle, not read to its end."""
    shop, client = fleet(products=2), server.client()
    for url in urls(shop):
        feed(client, "list", url)
        shop.wait([crawl_feed(shop, "n0", idle=1, settings={"LEASE_RUN": "may"})])
    assert fetched(shop) == Counter(shop.expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ADDONS": "{}"}, "SCHEDULER = "),
        ({"LEASE_ENABLED": "False"}, "SCHEDULER = "),
        ({"SCHEDULER": "scrapy.core.scheduler.Scheduler"}, "SCHEDULER = 'scrapy.core.scheduler.Scheduler'"),
        ({"LEASE_QUEUE": "local"}, "LEASE_QUEUE = 'local'"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL = 'http://x' is no URL of a server with feeds"),
        ({"REDIS_START_URLS_KEY": " "}, "REDIS_START_URLS_KEY = ' ' is no key of a feed"),
        ({"REDIS_ENCODING": "base64"}, "REDIS_ENCODING = 'base64' is no text encoding"),
        ({"MAX_IDLE_TIME_BEFORE_CLOSE": "-1"}, "MAX_IDLE_TIME_BEFORE_CLOSE = '-1' is not allowed"),
    ],
)
def test_what_refuses_to_start(
    fleet: Callable[..., Fleet], server: Server, settings: dict[str, Any], message: str
) -> None:
    """What could lose an entry, or is wrong: exit status 1, one ERROR of ours, and the feed is not touched."""
    shop, client = fleet(products=1), server.client()
    feed(client, "list", *urls(shop))
    node = crawl_feed(shop, "n0", idle=None, settings=settings)
    assert node.wait(20) == 1
    ours = [line for line in node.log.splitlines() if "[scrapy_lease" in line and " ERROR: " in line]
    assert len(ours) == 1
    assert message in ours[0]
    assert client.llen(FEED) == 1
    assert not shop.hits()


@pytest.mark.each_server
def test_a_feed_of_another_type_closes_the_crawl(fleet: Callable[..., Fleet], server: Server) -> None:
    """A set read as a list: one error says what to set, the crawl closes, the feed is as it was."""
    shop, client = fleet(products=1), server.client()
    feed(client, "set", *urls(shop))
    node = crawl_feed(shop, "n0", idle=None)
    shop.wait([node], timeout=20)
    assert node.stats["finish_reason"] == "lease_feed_refused"
    assert "REDIS_START_URLS_AS_SET = True" in node.log
    assert client.scard(FEED) == 1
