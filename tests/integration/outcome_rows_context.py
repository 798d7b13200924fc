"""Rows that show how Scrapy uses tasks and contexts, and that attribution holds when much runs at once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from scrapy import signals

from tests.integration.outcome_crawls import Rows, RowSpider, hooks, options, path_of

ROWS = Rows()
PAGES = 48


class CheckingPipeline:
    """Notes each item that it meets in a context other than that of the page it came from."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> CheckingPipeline:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(random.uniform(0, 0.005))
            self.crawler.spider.check("pipeline", item["page"])
        return item


@ROWS.row({f"/{kind}/{n}": ["done +1"] for kind in ("page", "child") for n in range(PAGES)})
class Concurrency(RowSpider):
    """16 requests at once: callbacks of all kinds, pipelines, enqueue_request see their own request only."""

    extra = options(
        CONCURRENT_REQUESTS=16,
        CONCURRENT_REQUESTS_PER_DOMAIN=16,
        ITEM_PIPELINES={CheckingPipeline: 300},
    )

    async def start(self) -> Any:
        for n in range(PAGES):
            callback = (self.parse_generator, self.parse_async, self.parse_async_generator)[n % 3]
            yield self.request(f"/page/{n}", callback=callback)

    def check(self, where: str, path: str) -> None:
        if self.current() != path:
            self.record.note(where, path, self.current())

    def outputs(self, response: Any) -> list[Any]:
        path = path_of(response.request)
        self.check("callback", path)
        child = self.request(path.replace("page", "child"), callback=self.parse_child)
        return [{"page": path}, child]

    def parse_generator(self, response: Any) -> Any:
        yield from self.outputs(response)

    async def parse_async(self, response: Any) -> Any:
        await asyncio.sleep(random.uniform(0, 0.01))
        return self.outputs(response)

    async def parse_async_generator(self, response: Any) -> Any:
        for output in self.outputs(response):
            await asyncio.sleep(random.uniform(0, 0.01))
            self.check("generator", path_of(response.request))
            yield output

    async def parse_child(self, response: Any) -> Any:
        await self.crawler.engine.download_async(self.request("/aside"))
        path = path_of(response.request)
        self.check("child", path)
        if (path, path.replace("child", "page")) not in self.record.parents:
            self.record.note("enqueue_request", path)
        yield {"page": path}


class UntrackedBase(RowSpider):
    """Has one event, by which pages wait for each other."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.noted = asyncio.Event()

    def note(self, response: Any) -> None:
        self.record.note(path_of(response.request), self.current())
        self.noted.set()


@ROWS.row({"/page": ["done"]}, ["/untracked None", "/page /page"])
class Untracked(UntrackedBase):
    """A request that was handed out untracked has no outcome and does not run as the one that yielded it."""

    async def parse(self, response: Any) -> Any:
        yield self.request("/untracked", meta={"untracked": True}, callback=self.note)
        await self.noted.wait()
        self.note(response)


async def wait_for_untracked(self: Any, request: Any) -> None:
    if request.url.endswith("/late"):
        await request.meta["noted"].wait()


@ROWS.row({"/page": ["done"], "/late": ["done"]}, ["/untracked None", "/late /late"])
class UntrackedOvertakes(UntrackedBase):
    """Nor does it run as the one that was handed out just before it, whose response is still to come."""

    extra = options(DOWNLOADER_MIDDLEWARES={hooks(process_request=wait_for_untracked): 100})

    def parse(self, response: Any) -> Any:
        yield self.request("/late", callback=self.note, priority=1, meta={"noted": self.noted})
        yield self.request("/untracked", callback=self.note, meta={"untracked": True})


def fact(where: str) -> Any:
    """A hook of any middleware that tells the spider which task it runs in."""

    def hook(self: Any, request: Any = None, response: Any = None) -> Any:
        path = path_of(request or response.request)
        if path == "/page":
            self.spider.seen(where, response)
        return response if where == "process_response" else None

    def from_crawler(cls: type, crawler: Any) -> Any:
        middleware = cls()
        middleware.spider = crawler.spider
        return middleware

    return {where: hook, "from_crawler": classmethod(from_crawler)}


@ROWS.row(
    {"/page": ["done +1"]},
    [
        "chain ended, 1 task",
        "same response: True",
        "item scraped",
        "scrape ended, 1 task, enqueued by /page: True",
    ],
)
class Facts(RowSpider):
    """What `outcomes` builds on, seen without it.

    All middlewares of one chain run in one task, which ends before the scrape begins; process_spider_input of
    all runs in another, which ends after the items are scraped and the children enqueued; the response is one
    object.
    """

    extra = options(
        DOWNLOADER_MIDDLEWARES={
            hooks(**fact("process_request")): 40,
            hooks(**fact("process_request")): 940,
            hooks(**fact("process_response")): 940,
            hooks(**fact("process_response")): 40,
        },
        SPIDER_MIDDLEWARES={hooks(**fact("process_spider_input")): number for number in (40, 940)},
    )

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.tasks: dict[str, set[Any]] = {"chain": set(), "scrape": set()}
        self.response: Any = None

    def seen(self, where: str, response: Any) -> None:
        part = "scrape" if where == "process_spider_input" else "chain"
        task = asyncio.current_task()
        assert task is not None
        if task not in self.tasks[part]:
            self.tasks[part].add(task)
            task.add_done_callback(self.chain_ended if part == "chain" else self.scrape_ended)
        if part == "scrape" and len(self.tasks[part]) == 1 and self.response is not None:
            self.record.note("same response:", response is self.response)
            self.response = None
        elif response is not None and part == "chain":
            self.response = response

    def chain_ended(self, task: asyncio.Task[Any]) -> None:
        self.record.note(f"chain ended, {len(self.tasks['chain'])} task")

    def scrape_ended(self, task: asyncio.Task[Any]) -> None:
        enqueued = ("/page", "/page") in self.record.parents
        self.record.note(f"scrape ended, {len(self.tasks['scrape'])} task, enqueued by /page: {enqueued}")

    def parse(self, response: Any) -> Any:
        self.crawler.signals.connect(self.item_scraped, signals.item_scraped)
        yield {"n": 1}
        yield self.request("/page")

    def item_scraped(self) -> None:
        self.record.note("item scraped")
