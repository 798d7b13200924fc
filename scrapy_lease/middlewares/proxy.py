"""Downloader middlewares of leased proxies: one gives a request its proxy, one judges what came of it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.proxies.manager import Proxies


class ProxyMiddleware:
    """Just outside of Scrapy's HttpProxyMiddleware, which takes the credentials from ``meta["proxy"]``."""

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Proxies.of(crawler))

    def process_request(self, request: Request) -> Request | Awaitable[Request | None] | None:
        # Not a coroutine function: most requests need not wait.
        return self._proxies.enters(request)


class JudgeMiddleware:
    """Innermost but for the guard: what is no answer of the site reaches no cache, cookie jar, redirect or retry.

    It also takes proxy and credentials off the request, so that neither a copy that another middleware makes nor the
    HTTP cache gets them.
    """

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Proxies.of(crawler))

    def process_response(self, request: Request, response: Response) -> Response | Request:
        return self._proxies.answered(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        return self._proxies.failed(request, exception)
