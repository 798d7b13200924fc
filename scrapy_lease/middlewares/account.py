"""Downloader middlewares of leased accounts: one lets a request go as its account, one judges what came of it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease.accounts.manager import Accounts


class AccountMiddleware:
    """Just outside of Scrapy's CookiesMiddleware: it chooses the cookiejar, and takes what is the account's off again.

    So neither the spider nor a copy that another middleware makes gets headers or cookies of an account.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Accounts.of(crawler))

    def process_request(self, request: Request) -> Request | Awaitable[Request | None] | None:
        # Not a coroutine function: most requests need not wait.
        return self._accounts.enters(request)

    def process_response(self, request: Request, response: Response) -> Response:
        self._accounts.leaves(request)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._accounts.leaves(request)


class AccountJudge:
    """Innermost but for the guard: what is no page of the account reaches no cache, cookiejar, redirect or retry."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Accounts.of(crawler))

    def process_response(self, request: Request, response: Response) -> Response | Request:
        return self._accounts.answered(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        return self._accounts.failed(request, exception)
