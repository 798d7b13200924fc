"""One crawl in a process of its own, as its JSON argument says; prints one JSON line of figures."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, Self

from scrapy import Request, Spider, signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.http import Response

COMMON: dict[str, Any] = {
    "BOT_NAME": "bench",
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "CONCURRENT_ITEMS": 10,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "ERROR",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


class FixedProxies:
    """Sends each request through the next of a list of proxies: the least that a crawl through proxies does."""

    def __init__(self, proxies: Sequence[str]) -> None:
        self._next = cycle(proxies)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings.getlist("FIXED_PROXIES"))

    def process_request(self, request: Request) -> None:
        request.meta["proxy"] = next(self._next)


#: As many as there are requests at once, and what each has.
ACCOUNTS = [
    {"id": f"member{number}", "cookies": {"sid": f"session-of-{number}"}, "headers": {"X-Key": f"key-of-{number}"}}
    for number in range(16)
]


class FixedCookies:
    """Sends each request as the next of a list of accounts, with a cookiejar each: the least that such a crawl does."""

    def __init__(self) -> None:
        self._next = cycle(ACCOUNTS)

    def process_request(self, request: Request) -> None:
        account = next(self._next)
        request.meta["cookiejar"] = account["id"]
        request.cookies = account["cookies"]
        request.headers.update(account["headers"])


def settings_of(system: str, redis_url: str, proxies: Sequence[str]) -> dict[str, Any]:
    """Return what a user of `system` writes into settings.py."""
    if system == "fixed proxies":
        return {"FIXED_PROXIES": list(proxies), "DOWNLOADER_MIDDLEWARES": {FixedProxies: 745}}
    if system == "fixed cookies":
        return {"DOWNLOADER_MIDDLEWARES": {FixedCookies: 690}}
    if system == "scrapy-rotating-proxies":
        return {
            "ROTATING_PROXY_LIST": list(proxies),
            "DOWNLOADER_MIDDLEWARES": {
                "rotating_proxies.middlewares.RotatingProxyMiddleware": 610,
                "rotating_proxies.middlewares.BanDetectionMiddleware": 620,
            },
        }
    if system == "scrapy-redis":
        return {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": redis_url,
        }
    lease = {"ADDONS": {"scrapy_lease.Addon": 500}, "LEASE_REDIS_URL": redis_url}
    if system == "scrapy-lease":
        return lease
    if system == "scrapy-lease proxies":
        return lease | {"LEASE_PROXIES": list(proxies)}
    if system == "scrapy-lease accounts":
        return lease | {"LEASE_ACCOUNTS": ACCOUNTS}
    if system == "scrapy-lease rates":
        # Three dimensions, none of which is reached.
        return lease | {"LEASE_RATE_LIMITS": dict.fromkeys(("ip", "ua", "api"), "10000/second")}
    if system == "scrapy-lease local":
        return lease | {"LEASE_QUEUE": "local"}
    if system == "scrapy-lease guard":
        return lease | {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}
    return {}


class Catalogue(Spider):
    """List pages lead to products; each product page is one item."""

    name = "catalogue"

    def parse(self, response: Response) -> Iterator[Request]:
        """Follow the products of a list page and the next list page."""
        yield from response.follow_all(css="a.next", priority=1)
        yield from response.follow_all(css="a.product", callback=self.parse_product)

    def parse_product(self, response: Response) -> Iterator[dict[str, Any]]:
        """Yield the product."""
        yield {
            "url": response.url,
            "name": response.css(".name::text").get(),
            "price": float(response.css(".price::text").get("0")),
            "stock": int(response.css(".stock::text").get("0")),
        }


class Stopwatch:
    """Takes wall and CPU time from the engine's start to the last item, and the resident size at the end."""

    def __init__(self, crawler: Crawler) -> None:
        self.begin = self.last = (0.0, 0.0)
        self.items = 0
        self.rss = 0
        crawler.signals.connect(self._started, signals.engine_started)
        crawler.signals.connect(self._scraped, signals.item_scraped)
        crawler.signals.connect(self._closed, signals.spider_closed)

    def _started(self) -> None:
        self.begin = (time.perf_counter(), time.process_time())

    def _scraped(self) -> None:
        self.items += 1
        self.last = (time.perf_counter(), time.process_time())

    def _closed(self) -> None:
        with open("/proc/self/status") as status:
            self.rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def main() -> None:
    """Crawl as the JSON argument says: system, url, redis, proxies, settings."""
    order = json.loads(sys.argv[1])
    settings = COMMON | settings_of(order["system"], order["redis"], order["proxies"]) | order.get("settings", {})
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(Catalogue)
    watch = Stopwatch(crawler)
    process.crawl(crawler, start_urls=[order["url"]])
    process.start()
    found = crawler.stats.get_stats()
    figures = {
        "items": watch.items,
        "seconds": watch.last[0] - watch.begin[0],
        "cpu": watch.last[1] - watch.begin[1],
        "rss_kb": watch.rss,
        "reason": found.get("finish_reason"),
        "lease": {key: value for key, value in found.items() if key.startswith("lease/")},
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
