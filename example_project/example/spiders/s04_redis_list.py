"""04: fed through a Redis list, as spiders of scrapy-redis are, and safe when a node dies.

    scrapy crawl s04_redis_list                # on as many hosts as there are
    redis-cli lpush s04_redis_list:start_urls http://127.0.0.1:8000/product/1
    redis-cli lpush s04_redis_list:start_urls '{"url": "http://127.0.0.1:8000/product/2", "meta": {"source": "mail"}}'

New: ``RedisSpider``. What a node takes from the list stays on its account until the shared backlog has it; another node
takes over the account of one that died. The list is in the store; ``REDIS_URL`` names another server.
"""

from __future__ import annotations

from scrapy.http import TextResponse

from example.items import Product, product_from
from scrapy_lease import RedisSpider


class RedisListSpider(RedisSpider):
    """Product pages, as they are fed -> products. It waits for more; ``-a max_idle_time=60`` ends it."""

    name = "s04_redis_list"

    def parse(self, response: TextResponse) -> Product:
        return product_from(response)
