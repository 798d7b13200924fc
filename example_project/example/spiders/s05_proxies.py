"""05: leased proxies. However many nodes there are, each proxy serves one request of one node at a time.

    python -m example.proxies --count 6 --port 3128                                     # six local proxies
    scrapy crawl s05_proxies -a base=http://127.0.0.1:8000                              # on as many hosts as there are
    scrapy-lease proxies list                                                           # who holds which
    curl -X POST http://127.0.0.1:PORT/1/ban                  # the first is banned: it rests (PORT is what it prints)

New: ``LEASE_PROXIES``. The answer to a banned proxy never comes to the spider; the page is asked for again through
another. No proxy, no request: nothing is ever fetched from the host's own address.
"""

from __future__ import annotations

from typing import ClassVar

from example.spiders.s01_catalog import CatalogSpider


class ProxiesSpider(CatalogSpider):
    """The catalogue of 01, each page through a leased proxy."""

    name = "s05_proxies"
    custom_settings: ClassVar = {"LEASE_PROXIES": [f"http://127.0.1.{number}:3128" for number in range(1, 7)]}
