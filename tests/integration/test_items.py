"""Items: what makes requests one item, what belongs to it, and what survives the backlog."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from scrapy_lease.payload import from_spec
from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.servers import Server
from tests.helpers.spiders import AGAIN, crawl, dead_letters, items_of, paths_of, push, records_of

pytestmark = pytest.mark.one_server

Run = Callable[..., Node]


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=20)


@pytest.fixture
def run(shop: Fleet) -> Run:
    """Crawls with one node until it has ended by itself."""

    def run(source: str, name: str = "n0", **options: Any) -> Node:
        node = crawl(shop, name, source, **options)
        shop.wait([node])
        return node

    return run


def test_a_method_of_the_spider_makes_the_key(shop: Fleet, run: Run) -> None:
    """lease_item_key of the spider: requests of one key are fetched once; None is no item and never a duplicate."""
    run("""
        class Keyed(ShopSpider):
            def lease_item_key(self, request):
                return None if "/lists" in request.url else request.url.partition("?")[0]

            async def start(self):
                for number in range(6):
                    yield self.page(f"/product/1?visit={number}")
                    yield self.page(f"/lists?page=1&per_page=20")
        """)
    assert len(shop.hits("/product/1")) == 1
    assert len(shop.hits("/lists")) == 6


def test_a_function_makes_the_key(shop: Fleet, run: Run) -> None:
    """LEASE_ITEM_KEY names a function: it decides; meta["lease_item"] wins over it, False is no item."""
    (shop.folder / "keys.py").write_text("def key(request, spider):\n    return spider.name\n")
    run("""
        class Keyed(ShopSpider):
            async def start(self):
                for number in range(1, 5):
                    yield self.page(f"/product/{number}")
                    yield self.page(f"/product/{number + 4}", meta={"lease_item": f"own-{number % 2}"})
                    yield self.page(f"/product/{number + 8}", meta={"lease_item": False})
                    yield self.page(f"/product/{number + 8}", meta={"lease_item": False})
        """, settings={"LEASE_ITEM_KEY": "keys.key"})  # fmt: skip
    counted = Counter(int(path.rpartition("/")[2]) for path in paths_of(items_of(shop)))
    assert sum(counted[number] for number in range(1, 5)) == 1
    assert sum(counted[number] for number in range(5, 9)) == 2
    assert [counted[number] for number in range(9, 13)] == [2, 2, 2, 2]


def test_a_wrong_key_is_a_fault_of_the_page_that_led_to_it(shop: Fleet, run: Run, server: Server) -> None:
    """A key function that raises: the request is not fetched, the page it came from has failed and is dead at last."""
    node = run("""
        class Wrong(ShopSpider):
            def lease_item_key(self, request):
                if request.url.endswith("/2"):
                    raise KeyError("sku")
                return request.url

            async def start(self):
                yield self.page("/product/1")

            def parse(self, response):
                yield self.page("/product/2")
        """)
    assert not shop.hits("/product/2")
    assert len(shop.hits("/product/1")) == 3
    (letter,) = dead_letters(server.client())
    assert letter["reason"] == "item_key"
    assert "KeyError" in letter["trace"]
    assert node.stats["lease/items/dead"] == 1


@pytest.mark.each_server
def test_redirects_and_retries_belong_to_their_item(shop: Fleet, run: Run, server: Server) -> None:
    """A redirected and a retried page are each one item, done once; the page redirected to is an item of its own."""
    source = """
        class Redirected(ShopSpider):
            async def start(self):
                yield self.page("/go/1")
                yield self.page("/flaky/2")
                yield self.page("/product/1")
        """
    node = run(source)
    assert node.stats["lease/items/leased"] == node.stats["lease/items/done"] == 3
    assert paths_of(items_of(shop)) == ["/flaky/2", "/product/1", "/product/1"]
    assert not records_of(server.client())
    again = run(source, "n1")
    assert again.stats["finish_reason"] == "lease_all_done"
    assert len(shop.hits()) == 5


def test_a_callback_asks_for_its_page_again(shop: Fleet, run: Run) -> None:
    """get_retry_request, or the same key yielded again: the item goes on under its lease and is done with the last."""
    node = run(AGAIN)
    assert paths_of(items_of(shop)) == ["/product/1", "/product/2"]
    assert len(shop.hits("/product/1")) == 3
    assert len(shop.hits("/product/2")) == 3
    assert node.stats["lease/items/done"] == node.stats["lease/items/leased"] == 2
    assert run(AGAIN, "n1").stats["finish_reason"] == "lease_all_done"


def test_closing_from_a_callback_hands_back(shop: Fleet, run: Run, server: Server) -> None:
    """CloseSpider in a callback: its page and all others are pending again, without an attempt."""
    node = run("""
        class Closing(ShopSpider):
            async def start(self):
                for number in range(1, 21):
                    yield self.page(f"/product/{number}")

            def parse(self, response):
                raise CloseSpider("enough")
                yield
        """, settings={"CONCURRENT_REQUESTS": 2})  # fmt: skip
    assert node.stats["finish_reason"] == "enough"
    records = records_of(server.client())
    assert len(records) == 20
    assert {(record.state, record.attempts, record.deaths) for record in records} == {("pending", 0, 0)}


def test_what_an_errback_yields(shop: Fleet, run: Run) -> None:
    """Items and requests of an errback are processed, for a refused status and for a page that could not be had."""
    run("""
        class Errbacks(ShopSpider):
            async def start(self):
                yield self.page("/product/999", errback=self.failed)
                yield Request("http://127.0.0.1:9/", errback=self.failed)

            def failed(self, failure):
                number = 1 if hasattr(failure.value, "response") else 2
                yield {"path": f"errback-{number}"}
                yield self.page(f"/product/{number}")
        """, settings={"LEASE_ITEM_ATTEMPTS": 1})  # fmt: skip
    assert paths_of(items_of(shop)) == ["/product/1", "/product/2", "errback-1", "errback-2"]


@pytest.mark.each_server
def test_what_survives_the_backlog(shop: Fleet, run: Run) -> None:
    """Method, body, headers, cookies, cb_kwargs, flags, meta, priority and request classes come out as they went in."""
    run("""
        class Survives(ShopSpider):
            async def start(self):
                common = {"callback": self.parse_all, "dont_filter": True}
                yield Request(self.base + "/login", method="POST", body=b"\\x00\\xff", headers={"X-A": ["1", "2"]},
                    cookies={"a": "b"}, flags=["f"], priority=7, meta={"deep": {"k": (1, b"2", None)},
                    "handle_httpstatus_all": True}, cb_kwargs={"given": [1, "2"]}, **common)
                yield JsonRequest(self.base + "/login", data={"j": 1}, meta={"handle_httpstatus_all": True}, **common)
                yield FormRequest(self.base + "/login", formdata={"user": "u", "password": "secret"}, **common)

            def parse_all(self, response, given=None):
                request = response.request
                yield {"path": type(request).__name__, "given": given, "status": response.status,
                    "body": request.body.hex(), "headers": str(request.headers.getlist("X-A")),
                    "cookie": str(request.headers.get("Cookie")), "flags": request.flags,
                    "priority": request.priority, "deep": repr(request.meta.get("deep")), "url": response.url}
        """)
    plain, posted, form = (
        next(item for item in items_of(shop) if item["path"] == name or item["url"].endswith(url))
        for name, url in (("Request", "/nowhere"), ("JsonRequest", "/nowhere"), ("", "/account"))
    )
    assert (plain["given"], plain["body"], plain["flags"], plain["priority"]) == ([1, "2"], "00ff", ["f"], 7)
    assert (plain["headers"], plain["cookie"]) == ("[b'1', b'2']", "b'a=b'")
    assert plain["deep"] == "{'k': (1, b'2', None)}"
    assert json.loads(bytes.fromhex(posted["body"])) == {"j": 1}
    assert form["status"] == 200


def test_what_cannot_be_stored_stays(shop: Fleet, run: Run, server: Server) -> None:
    """Unserialisable meta: fetched by this node, also one object many times, one warning, nothing lost or left over."""
    node = run("""
        class Local(ShopSpider):
            async def start(self):
                for number in range(1, 6):
                    yield self.page(f"/product/{number}", meta={"lock": asyncio.Lock()})
                yield self.page("/lists", callback=self.parse_list)

            def parse_list(self, response):
                same = self.page("/product/6", meta={"lock": asyncio.Lock()}, dont_filter=True)
                for _ in range(30):
                    yield same
                yield self.page("/product/7", callback=lambda response: {"path": "/product/7"})
        """)
    assert Counter(paths_of(items_of(shop))) == {
        **{f"/product/{number}": 1 for number in (1, 2, 3, 4, 5, 7)}, "/product/6": 30
    }  # fmt: skip
    assert node.log.count("stays with this node because it cannot be stored") == 1
    assert "'lock'" in node.log
    assert node.stats["lease/queue/local_only"] == 36
    assert not records_of(server.client())


def test_what_cannot_be_stored_is_read_again(shop: Fleet, server: Server) -> None:
    """A node that leaves with requests that cannot be stored has not read start() to its end: the next one does."""
    source = """
        class Local(ShopSpider):
            async def start(self):
                for number in range(1, 11):
                    yield self.page(f"/slow/{number}?s=0.4", meta={"lock": asyncio.Lock()} if number > 5 else {})
        """
    leaving = crawl(shop, "n0", source, settings={"CONCURRENT_REQUESTS": 2})
    shop.wait_for_hits(3, "/slow/")
    leaving.terminate()
    assert leaving.wait(10) == 0
    shop.wait([crawl(shop, "n1", source)])
    assert set(paths_of(items_of(shop))) == {f"/slow/{number}?s=0.4" for number in range(1, 11)}


def test_lease_of_an_item_and_the_fence_field(shop: Fleet, run: Run) -> None:
    """LEASE_FENCE_FIELD receives the fence that lease_of(item) tells in a pipeline and response.meta in a callback."""
    node = run("""
        from scrapy import Field, Item

        class Bare(Item):
            path = Field()

        class Fenced(ShopSpider):
            async def start(self):
                yield self.page("/product/1")

            def parse(self, response):
                yield {"path": "with", "told": response.meta["lease"]["fence"]}
                yield Bare(path="without")
                yield Bare(path="without")
        """, settings={"LEASE_FENCE_FIELD": "fence"})  # fmt: skip
    item, *others = sorted(items_of(shop), key=lambda item: item["path"])
    assert item["fence"] == item["told"] == item["lease"]["fence"] > 0
    assert [other["path"] for other in others] == ["without", "without"]
    assert node.log.count("items of Bare cannot receive the fence") == 1


def test_without_a_reactor(shop: Fleet, run: Run) -> None:
    """TWISTED_REACTOR_ENABLED = False: pages, redirects and retries as with a reactor; it ends by itself."""
    node = run("""
        class Reactorless(ShopSpider):
            async def start(self):
                yield self.page("/go/1")
                yield self.page("/flaky/2")
                yield self.page("/lists?page=1&per_page=20", callback=self.parse_list)

            def parse_list(self, response):
                yield from response.follow_all(css="a.product")
        """, settings={"TWISTED_REACTOR_ENABLED": "False"})  # fmt: skip
    assert set(paths_of(items_of(shop))) == {*shop.expected, "/flaky/2"}
    assert node.stats["lease/session/renewed"] >= 1
    assert node.stats["finish_reason"] == "finished"


@pytest.mark.each_server
def test_hostile_payloads(shop: Fleet, run: Run, server: Server) -> None:
    """Rubbish and code in the backlog: dead letters, nothing of it runs, the rest is fetched."""
    hostile = [
        b"", b"\xc1", b"\x80", b"cos\nsystem\n(S'touch stolen'\ntR.", b"\x81\xa1v\x01", bytes(5000),
        b"\x82\xa1v\x01\xa3url\xa9not a url",
        from_spec({"url": shop.base, "callback": "parse"}).replace(b"parse", b"a.b()"),
    ]  # fmt: skip
    push(server.url, from_spec({"url": shop.base + "/product/2"}), *hostile)
    node = run("""
        class Fed(ShopSpider):
            async def start(self):
                for number in range(3, 13):
                    yield self.page(f"/product/{number}")
        """)
    assert paths_of(items_of(shop)) == sorted(f"/product/{number}" for number in range(2, 13))
    assert [letter["reason"] for letter in dead_letters(server.client())] == ["payload"] * len(hostile)
    assert node.stats["lease/items/dead"] == len(hostile)
    assert not (shop.folder / "stolen").exists()


def test_a_callback_that_this_node_lacks(shop: Fleet, server: Server) -> None:
    """A callback that only another version of the spider has: handed back, no attempt counted, done by the other."""
    push(server.url, from_spec({"url": shop.base + "/product/1", "callback": "parse_new"}))
    source = """
        class Version(ShopSpider):
            async def start(self):
                yield self.page("/product/2")
        """
    older = crawl(shop, "n0", source)
    older.wait_for("left to nodes that have its callback")
    client = server.client()
    until(lambda: [record.state for record in records_of(client)] == ["delayed"], 5, "a wait in the backlog")
    assert [(record.attempts, record.deaths) for record in records_of(client)] == [(0, 0)]
    newer = crawl(shop, "n1", source + """
            def parse_new(self, response):
                yield {"path": "new"}
        """)  # fmt: skip
    shop.wait([older, newer])
    assert paths_of(items_of(shop)) == ["/product/2", "new"]


@pytest.mark.parametrize("queue", ["redis", "local"])
def test_a_page_that_links_to_itself_ends(shop: Fleet, run: Run, queue: str) -> None:
    """What the pages of an item ask for again without dont_filter is a duplicate: no crawl walks in a circle."""
    run(
        """
        class Circles(ShopSpider):
            async def start(self):
                yield self.page("/product/1")
                yield self.page("/product/2")

            def lease_item_key(self, request):
                return "one" if "/product/1" in request.url else "pair"

            def parse(self, response):
                yield super().parse(response)
                if "/product/1" in response.url:
                    yield self.page("/product/1")
                    yield self.page("/product/1#top")
                else:
                    yield self.page("/product/2")
                    yield self.page("/product/3")
        """,
        settings={"LEASE_QUEUE": queue},
    )
    assert Counter(paths_of(shop.hits("/product/"))) == {"/product/1": 1, "/product/2": 1, "/product/3": 1}
    assert len(items_of(shop)) == 3
