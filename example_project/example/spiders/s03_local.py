"""03: Scrapy's own queues. Each host discovers the shop for itself; together they fetch each product once.

    scrapy crawl s03_local -a base=http://127.0.0.1:8000                     # on as many hosts as there are
    scrapy crawl s03_local -a base=http://127.0.0.1:8000 -s JOBDIR=job-1     # can be stopped and resumed

New: ``LEASE_QUEUE = "local"``. The lists are fetched by every host, for their links; the products, which lead nowhere,
by one. What a host that dies had in hand is taken over by the others.
"""

from __future__ import annotations

from typing import ClassVar

from example.spiders.s01_catalog import CatalogSpider


class LocalSpider(CatalogSpider):
    """The catalogue of 01, with the queue of each host."""

    name = "s03_local"
    custom_settings: ClassVar = {"LEASE_QUEUE": "local"}
