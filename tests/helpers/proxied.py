"""Crawls through leased proxies: the spider, the nodes, and what is left in the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import redis

from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace, PoolKeys
from scrapy_lease.store.pool_scripts import PoolScripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.fleet import Fleet, Node
from tests.helpers.proxies import ForwardProxy, Web
from tests.helpers.spiders import crawl

#: Asks for the pages of the paths in *paths*, or for *pages* pages; an item is a path and the proxy that served it.
PAGES = """
class Pages(ShopSpider):
    paths = ""
    pages = "20"

    async def start(self):
        for path in self.paths.split() or [f"/page/{number}" for number in range(int(self.pages))]:
            yield self.page(path)

    def parse(self, response):
        lease = response.meta.get("lease") or {}
        yield {"path": response.url.removeprefix(self.base), "status": response.status, "proxy": lease.get("proxy")}
"""
#: Proxies that fail come back soon; nobody waits long.
QUICK = {"LEASE_PROXY_BACKOFF": "0.5,2", "LEASE_PROXY_WAIT": "20", "DOWNLOAD_TIMEOUT": "2", "RETRY_TIMES": "1"}


class Bed:
    """A site behind proxies, and nodes that crawl it through them.

    :param shop: starts the nodes and names the store; its own site is not used.
    """

    def __init__(self, web: Web, shop: Fleet, client: redis.Redis) -> None:
        self.web = web
        self.site = web.site
        self.shop = shop
        self.client = client

    def crawl(
        self, source: str = PAGES, name: str = "n0", *, settings: Mapping[str, Any] = {}, **arguments: Any
    ) -> Node:
        """Start a node whose pool `default` has all proxies, unless *settings* say something else."""
        own = {"LEASE_PROXIES": urls(self.web.proxies)} if "LEASE_PROXY_POOLS" not in settings else {}
        chosen = {**QUICK, **own, **settings}
        return crawl(self.shop, name, source, base=self.site.base, settings=chosen, **arguments)

    def run(self, source: str = PAGES, name: str = "n0", **options: Any) -> Node:
        """The same, until the node has ended by itself."""
        node = self.crawl(source, name, **options)
        self.shop.wait([node])
        return node

    def left(self, pool: str = "default") -> dict[str, int]:
        """How many resources of a pool are leased, free, resting, and known at all."""
        keys = pool_keys(pool)
        return {
            "leased": self.client.hlen(keys.key("leases")),
            "free": self.client.zcard(keys.key("free")) + self.client.zcard(keys.key("spotted")),
            "resting": self.client.zcard(keys.key("resting")),
            "known": self.client.hlen(keys.key("resources")),
        }

    def free(self, *ids: str, pool: str = "default") -> None:
        """End the leases of these proxies, as ``scrapy-lease proxies free`` does."""

        async def run() -> None:
            channel = Channel(self.shop.url, self.shop.url, 5.0, StoreStats(), None)
            try:
                await PoolScripts(channel, pool_keys(pool)).change("free", ids)
            finally:
                await channel.close()

        asyncio.run(run())

    def exits(self, proxies: list[ForwardProxy] | None = None) -> set[str]:
        """The addresses of the proxies."""
        return {proxy.exit for proxy in (self.web.proxies if proxies is None else proxies)}


def pool_keys(pool: str = "default") -> PoolKeys:
    """The keys of a pool of proxies."""
    return Namespace("scrapybot").pool("proxy", pool)


def wasted(nodes: list[Node], proxy: ForwardProxy) -> int:
    """The requests of nodes, which log details, that went out again after they went through this proxy.

    By their logs: one that cannot be connected to sees nothing of it.
    """
    return max(
        proxy.refused + len(proxy.seen), sum(node.log.count(f" through {proxy.endpoint}: ") for node in nodes)
    )  # fmt: skip


def urls(proxies: list[ForwardProxy]) -> str:
    """LEASE_PROXIES, as -s takes it."""
    return json.dumps([proxy.url for proxy in proxies])
