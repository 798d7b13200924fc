"""How accounts log in to the shop, and what says that one is not logged in any more."""

from __future__ import annotations

from typing import Any, Self

from scrapy import FormRequest, Request
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse

from scrapy_lease import Account, LoginFailed


class ShopLogin:
    """``LEASE_ACCOUNT_HANDLER``: fills in the form of the shop; the cookie that it gives is kept for the next node."""

    def __init__(self, base: str) -> None:
        self.base = base

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(getattr(crawler.spider, "base", ""))

    async def login(self, account: Account, fetch: Any) -> None:
        filled = {"user": account.username, "password": account.password}
        answer: TextResponse = await fetch(FormRequest(f"{self.base}/login", formdata=filled))
        if answer.css("#user::text").get() != account.username:
            raise LoginFailed("the shop does not take the password")


class MembersOnly:
    """``LEASE_POLICY``: who asks for a page of members and is sent to the form is not logged in."""

    def judge(self, request: Request, response: Response | None, exception: Exception | None) -> str | None:
        if response is None or response.status != 302 or "/members/" not in request.url:
            return None
        return "logged_out" if (response.headers.get("Location") or b"").endswith(b"/login") else None
