"""What a project says of its accounts: how they log in, and how their requests show who asks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_lease.accounts.account import Account
from scrapy_lease.exceptions import LeaseError

#: What ``login`` fetches with: a URL or a request, through the account's own lease, address and cookies.
Fetch = Callable[..., Awaitable[Response]]
Login = Callable[[Account, Fetch], Awaitable[Mapping[str, str] | None]]


class LoginFailed(LeaseError):
    """Raised by ``login`` of LEASE_ACCOUNT_HANDLER: the site does not let this account in. The text is logged."""


class Handler:
    """LEASE_ACCOUNT_HANDLER laid over the defaults.

    :ivar login: None where accounts do not log in: their cookies or headers do.
    """

    def __init__(self, own: Any = None) -> None:
        self.login: Login | None = getattr(own, "login", None)
        self.apply: Callable[[Request, Account], None] = getattr(own, "apply", apply)

    def __repr__(self) -> str:
        return f"<Handler {'with' if self.login else 'without'} a login>"

    @classmethod
    def from_crawler(cls, crawler: Crawler, given: str | type | None) -> Handler:
        """Make the handler that a pool names, by its ``from_crawler`` if it has one; None: the default."""
        return cls() if given is None else cls(build_from_crawler(load_object(given), crawler))


def apply(request: Request, account: Account) -> None:
    """Let *request* show who asks: by the headers of the account. Its cookies are in its own cookiejar."""
    for name, value in account.headers.items():
        request.headers[name] = value


def checked_handler(value: Any) -> Any:
    """Return LEASE_ACCOUNT_HANDLER; raise ValueError unless it is, or leads to, a class that can do something."""
    try:
        found = load_object(value)
    except Exception as error:
        raise ValueError(f"cannot be imported ({type(error).__name__}: {error})") from None
    if not isinstance(found, type):
        raise ValueError("is no class")
    if not any(callable(getattr(found, name, None)) for name in ("login", "apply")):
        raise ValueError(
            f"leads to {found.__qualname__}, which has neither async login(account, fetch) nor apply(request, account)"
        )
    if _is_async(found, "login") is False:
        raise ValueError(f"leads to {found.__qualname__}, whose login is not async: write async def login")
    if _is_async(found, "apply"):
        raise ValueError(f"leads to {found.__qualname__}, whose apply is async: nobody would wait for it")
    return value


def _is_async(found: type, name: str) -> bool | None:
    """Is a method a coroutine function? None: it is not there, or may be anything."""
    method = inspect.unwrap(getattr(found, name, object))
    return inspect.iscoroutinefunction(method) if inspect.isfunction(method) else None
